"""All GPUs of an instance in one process: initialise NVML, find them, read them, quarantine the one that is lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import pynvml

from workers.gpus.device import Device, mig_handles
from workers.gpus.faults import Answer, Down, Lost, Uninitialised, answer_to, name_of
from workers.gpus.sample import GpuSample, GpuState
from workers.gpus.visible import Card, MigInstance, is_whole_uuid, resolve

SEEK_AGAIN_SECONDS: Final = 1.0
SEEK_AGAIN_MOST_SECONDS: Final = 30.0


class Reader:
    """Reads the GPUs named `declared`; a number among them is CUDA's index under `visible` (`CUDA_VISIBLE_DEVICES`).

    A lost GPU is sought again, each time later, by initialising NVML anew; the others are read on before and after.
    """

    def __init__(self, declared: Sequence[str], visible: str | None, tolerated: frozenset[str] = frozenset()) -> None:
        self.declared, self.visible, self.tolerated = tuple(declared), visible, tolerated
        self.devices: dict[str, Device] = {}
        self.lost: dict[str, str] = {}
        self._seek_at = 0.0
        self._seek_after = SEEK_AGAIN_SECONDS

    def open(self) -> None:
        """Initialise NVML and find every GPU; one that is not there is lost.

        Raises:
            Down: NVML cannot be initialised, or does not answer.
        """
        try:
            pynvml.nvmlInit()
            cards = _cards()
        except pynvml.NVMLError as error:
            raise Down(f"{name_of(error.value)} while NVML was initialised") from error
        self.devices, self.lost = {}, {}
        for declared in self.declared:
            try:
                self.devices[declared] = self._device(declared, cards)
            except Lost as loss:
                self.lost[declared] = loss.why

    def close(self) -> None:
        """Shut NVML down in this process. What it says then does not matter."""
        for device in self.devices.values():
            device.close()
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()

    def read(self) -> list[GpuSample]:
        """A sample of every declared GPU.

        Raises:
            Down: NVML does not work in this process.
        """
        self._seek_lost()
        try:
            return [self._read(declared) for declared in self.declared]
        except Uninitialised:
            self.close()
            self.open()
        try:
            return [self._read(declared) for declared in self.declared]
        except Uninitialised as error:
            raise Down("UNINITIALIZED, also after it was initialised again") from error

    def _read(self, declared: str) -> GpuSample:
        if declared not in self.lost:
            try:
                return self.devices[declared].read()
            except Lost as loss:
                self.lost[declared] = loss.why
        return GpuSample(declared, time.monotonic(), GpuState.LOST, missing={"gpu": self.lost[declared]})

    def _seek_lost(self) -> None:
        """Look again for lost GPUs: after a second, and twice as long after each time that did not find them all."""
        now = time.monotonic()
        if not self.lost:
            self._seek_at, self._seek_after = 0.0, SEEK_AGAIN_SECONDS
        elif not self._seek_at:
            self._seek_at = now + self._seek_after
        elif now >= self._seek_at:
            self._seek_after = min(2 * self._seek_after, SEEK_AGAIN_MOST_SECONDS)
            self._seek_at = now + self._seek_after
            self.close()
            self.open()

    def _device(self, declared: str, cards: Sequence[Card]) -> Device:
        uuid = declared if is_whole_uuid(declared) else resolve(declared, cards, self.visible)
        if uuid is None:
            raise Lost("no GPU by this name")
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            parent, part = handle, None
            if uuid.startswith("MIG-"):
                parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
                part = pynvml.nvmlDeviceGetGpuInstanceId(handle)
        except pynvml.NVMLError as error:
            if answer_to(error.value) in (Answer.RESTART, Answer.REINITIALISE):
                raise
            raise Lost(name_of(error.value)) from error
        return Device(declared, uuid, handle, parent, part, self.tolerated)


def _cards() -> list[Card]:
    """What is built in, in NVML's order. A card that does not tell keeps its place."""
    return [_card(index) for index in range(pynvml.nvmlDeviceGetCount())]


def _card(index: int) -> Card:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = pynvml.nvmlDeviceGetUUID(handle)
    except pynvml.NVMLError as error:
        if answer_to(error.value) is Answer.RESTART:
            raise
        return Card(None)
    return Card(uuid, _instances(handle))


def _instances(card: Any) -> tuple[MigInstance, ...]:
    try:
        if not pynvml.nvmlDeviceGetMigMode(card)[0]:
            return ()
        return tuple(
            MigInstance(uuid, pynvml.nvmlDeviceGetGpuInstanceId(part), pynvml.nvmlDeviceGetComputeInstanceId(part))
            for uuid, part in mig_handles(card)
        )
    except pynvml.NVMLError as error:
        if answer_to(error.value) is Answer.RESTART:
            raise
        return ()
