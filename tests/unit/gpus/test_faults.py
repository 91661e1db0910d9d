"""Each NVML error has its own answer, by the numbers of the real binding."""

from __future__ import annotations

import pynvml
import pytest

from workers.gpus.faults import ANSWERS, NAMES, Answer, answer_to, name_of


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        ("NOT_SUPPORTED", Answer.DROP),
        ("NO_PERMISSION", Answer.DROP),
        ("NOT_FOUND", Answer.EMPTY),
        ("UNINITIALIZED", Answer.REINITIALISE),
        ("FUNCTION_NOT_FOUND", Answer.FALL_BACK),
        ("DRIVER_NOT_LOADED", Answer.RESTART),
        ("LIBRARY_NOT_FOUND", Answer.RESTART),
        ("LIB_RM_VERSION_MISMATCH", Answer.RESTART),
        ("UNKNOWN", Answer.RESTART),
        ("TIMEOUT", Answer.RESTART),
        ("GPU_IS_LOST", Answer.QUARANTINE),
        ("RESET_REQUIRED", Answer.QUARANTINE),
    ],
)
def test_the_answer_to_an_error(error: str, answer: Answer) -> None:
    code = getattr(pynvml, f"NVML_ERROR_{error}")

    assert (name_of(code), answer_to(code)) == (error, answer)


def test_names_are_those_of_the_binding() -> None:
    assert {code: getattr(pynvml, f"NVML_ERROR_{name}") for code, name in NAMES.items()} == {
        code: code for code in NAMES
    }
    assert set(ANSWERS) <= set(NAMES.values())


def test_an_error_nobody_knows_costs_one_signal() -> None:
    assert (name_of(4711), answer_to(4711)) == ("ERROR_4711", Answer.DROP)
