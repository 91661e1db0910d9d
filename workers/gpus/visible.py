"""Which GPU a name means: a UUID, the beginning of one, a MIG instance, or CUDA's index. Pure.

NVML counts all GPUs in the order of their PCI addresses; CUDA counts those that `CUDA_VISIBLE_DEVICES` lets through, in the order
given there. The reading of the variable follows CUDA: it ends at the first entry that names nothing, and a GPU named twice hides all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

UUID_CHARACTERS: Final = 36


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A part of a GPU, by its UUID and its place: GPU instance and compute instance."""

    uuid: str
    gpu_instance: int
    compute_instance: int


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU in NVML's order, with its MIG instances; `uuid` is None where it does not tell."""

    uuid: str | None
    instances: tuple[MigInstance, ...] = ()

    @property
    def default(self) -> str | None:
        """What CUDA uses when the card is named as a whole: with MIG on, its first instance."""
        return self.instances[0].uuid if self.instances else self.uuid


def resolve(name: str, cards: Sequence[Card], visible: str | None) -> str | None:
    """The UUID that `name` means in a process with `CUDA_VISIBLE_DEVICES` = `visible`; None when it means none.

    A number is CUDA's index. A UUID names its GPU whatever is visible, the whole card also when MIG is on.
    """
    if name.strip().isdecimal():
        seen = visible_uuids(cards, visible)
        return seen[int(name)] if int(name) < len(seen) else None
    return _by_uuid(name.strip(), cards)


def visible_uuids(cards: Sequence[Card], visible: str | None) -> tuple[str, ...]:
    """The UUIDs CUDA can use, in its order. Without the variable all, but only one MIG instance of a card."""
    if visible is None:
        return tuple(card.default for card in cards if card.default is not None)
    found = tuple(_named(visible, cards))
    return found if len(set(found)) == len(found) else ()


def _named(visible: str, cards: Sequence[Card]) -> Iterator[str]:
    for entry in visible.split(","):
        uuid = _by_entry(entry.strip(), cards)
        if uuid is None:
            return
        yield uuid


def _by_entry(entry: str, cards: Sequence[Card]) -> str | None:
    if entry.isdecimal():
        return cards[int(entry)].default if int(entry) < len(cards) else None
    uuid = _by_uuid(entry, cards)
    return next((card.default for card in cards if uuid is not None and card.uuid == uuid), uuid)


def _by_uuid(name: str, cards: Sequence[Card]) -> str | None:
    """A whole UUID, its unique beginning, or the older `MIG-GPU-<uuid>/<gpu instance>/<compute instance>`."""
    if name.startswith("MIG-GPU-"):
        return _by_place(name, cards)
    if not name.startswith(("GPU-", "MIG-")):
        return None
    uuids = [card.uuid for card in cards if card.uuid] + [part.uuid for card in cards for part in card.instances]
    found = [uuid for uuid in uuids if uuid.startswith(name)]
    return found[0] if len(found) == 1 else None


def _by_place(name: str, cards: Sequence[Card]) -> str | None:
    uuid, _, place = name.removeprefix("MIG-").partition("/")
    places = {
        f"{part.gpu_instance}/{part.compute_instance}": part.uuid
        for card in cards
        if card.uuid == uuid
        for part in card.instances
    }
    return places.get(place)


def is_whole_uuid(name: str) -> bool:
    """Whether the driver can be asked for it as it stands."""
    return name.startswith(("GPU-", "MIG-")) and len(name) == len("GPU-") + UUID_CHARACTERS
