"""CUDA_VISIBLE_DEVICES and the names of GPUs, entry by entry."""

from __future__ import annotations

import pytest

from workers.gpus.visible import Card, MigInstance, is_whole_uuid, resolve, visible_uuids

A = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
B = "GPU-89a1b2c3-0000-4106-c12f-20bd9faed9f6"
C = "GPU-12345678-1111-2222-3333-444455556666"
M0 = "MIG-aaaaaaaa-1111-2222-3333-444455556666"
M1 = "MIG-aabbbbbb-1111-2222-3333-444455556666"
CARDS = (Card(A), Card(B), Card(C, (MigInstance(M0, 1, 0), MigInstance(M1, 2, 0))))


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [
        (None, (A, B, M0)),
        ("", ()),
        ("0", (A,)),
        ("1,0", (B, A)),
        (" 1 , 0 ", (B, A)),
        ("2", (M0,)),
        ("0,7,1", (A,)),
        ("-1,0", ()),
        ("0,-1,1", (A,)),
        ("0,x,1", (A,)),
        ("0,,1", (A,)),
        ("0,0", ()),
        (f"0,{A}", ()),
        (A, (A,)),
        (f"{B},{A}", (B, A)),
        ("GPU-893", (A,)),
        ("GPU-89", ()),
        ("GPU-893,GPU-89a", (A, B)),
        ("GPU-ffff", ()),
        ("8932f937", ()),
        (C, (M0,)),
        (M1, (M1,)),
        (f"{M1},{M0}", (M1, M0)),
        ("MIG-aab", (M1,)),
        ("MIG-aa", ()),
        (f"MIG-{C}/2/0", (M1,)),
        (f"MIG-{C}/3/0", ()),
        (f"MIG-{A}/1/0", ()),
        ("NoDevFiles", ()),
    ],
)
def test_what_cuda_sees(visible: str | None, uuids: tuple[str, ...]) -> None:
    assert visible_uuids(CARDS, visible) == uuids


@pytest.mark.parametrize(
    ("name", "visible", "uuid"),
    [
        ("0", None, A),
        ("2", None, M0),
        ("3", None, None),
        ("0", "1", B),
        ("1", "1", None),
        ("0", f"{M1}", M1),
        (A, "1", A),
        ("GPU-893", "1", A),
        ("GPU-89", None, None),
        (C, None, C),
        (f"MIG-{C}/1/0", None, M0),
        ("gpu0", None, None),
        ("", None, None),
    ],
)
def test_what_a_name_means(name: str, visible: str | None, uuid: str | None) -> None:
    assert resolve(name, CARDS, visible) == uuid


def test_a_card_that_does_not_tell_its_uuid_keeps_its_place() -> None:
    cards = (Card(None), Card(B))

    assert visible_uuids(cards, None) == (B,)
    assert visible_uuids(cards, "1") == (B,)
    assert visible_uuids(cards, "0,1") == ()


@pytest.mark.parametrize(
    ("name", "whole"), [(A, True), (M0, True), ("GPU-893", False), (f"MIG-{C}/1/0", False), ("0", False)]
)
def test_whole_uuids(name: str, whole: bool) -> None:
    assert is_whole_uuid(name) is whole
