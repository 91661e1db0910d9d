"""What each NVML error means for the sampler. Pure: a code in, an answer out."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Answer(StrEnum):
    """What is done about an error."""

    DROP = "drop"
    """This signal of this GPU is missing; everything else goes on. It is asked for again every few seconds."""
    EMPTY = "empty"
    """The call worked and there was nothing to tell."""
    FALL_BACK = "fall_back"
    """The driver is older than the call: take the older call, else as `DROP`."""
    REINITIALISE = "reinitialise"
    """Initialise NVML again in this process, once; if that does not help, as `RESTART`."""
    RESTART = "restart"
    """NVML is down for this process: only a new one can load what a new driver brought."""
    QUARANTINE = "quarantine"
    """This GPU is out until NVML was initialised again; the others go on."""


NAMES: Final[dict[int, str]] = {
    1: "UNINITIALIZED",
    2: "INVALID_ARGUMENT",
    3: "NOT_SUPPORTED",
    4: "NO_PERMISSION",
    6: "NOT_FOUND",
    9: "DRIVER_NOT_LOADED",
    10: "TIMEOUT",
    11: "IRQ_ISSUE",
    12: "LIBRARY_NOT_FOUND",
    13: "FUNCTION_NOT_FOUND",
    15: "GPU_IS_LOST",
    16: "RESET_REQUIRED",
    17: "OPERATING_SYSTEM",
    18: "LIB_RM_VERSION_MISMATCH",
    20: "MEMORY",
    21: "NO_DATA",
    25: "ARGUMENT_VERSION_MISMATCH",
    26: "DEPRECATED",
    27: "NOT_READY",
    28: "GPU_NOT_FOUND",
    999: "UNKNOWN",
}
ANSWERS: Final[dict[str, Answer]] = {
    "UNINITIALIZED": Answer.REINITIALISE,
    "NOT_SUPPORTED": Answer.DROP,
    "NO_PERMISSION": Answer.DROP,
    "NOT_FOUND": Answer.EMPTY,
    "NO_DATA": Answer.EMPTY,
    "NOT_READY": Answer.EMPTY,
    "FUNCTION_NOT_FOUND": Answer.FALL_BACK,
    "ARGUMENT_VERSION_MISMATCH": Answer.FALL_BACK,
    "DEPRECATED": Answer.FALL_BACK,
    "DRIVER_NOT_LOADED": Answer.RESTART,
    "TIMEOUT": Answer.RESTART,
    "LIBRARY_NOT_FOUND": Answer.RESTART,
    "LIB_RM_VERSION_MISMATCH": Answer.RESTART,
    "UNKNOWN": Answer.RESTART,
    "GPU_IS_LOST": Answer.QUARANTINE,
    "RESET_REQUIRED": Answer.QUARANTINE,
    "GPU_NOT_FOUND": Answer.QUARANTINE,
}


def name_of(code: int) -> str:
    """The name in `nvml.h` without its prefix; for a code it has none for, `ERROR_<code>`."""
    return NAMES.get(code, f"ERROR_{code}")


def answer_to(code: int) -> Answer:
    """The answer to an error of a reading. What is not in the table costs only the signal it came from."""
    return ANSWERS.get(name_of(code), Answer.DROP)


class Down(Exception):
    """NVML does not work in this process. `signal` is the reading that met it, None outside one."""

    def __init__(self, why: str, signal: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.signal = signal


class Lost(Exception):
    """One GPU does not answer any more."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Uninitialised(Exception):
    """NVML says it was not initialised."""
