"""Sealed values open in their own place, under their own key, unchanged; otherwise never."""

from __future__ import annotations

import base64
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from slackwater.errors import Misconfigured
from slackwater.sealing import Sealer, sealer_from
from slackwater.settings import Settings

SEALER = Sealer(bytes(range(32)))


@given(plain=st.binary(max_size=300), context=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_what_is_sealed_comes_back(plain: bytes, context: str) -> None:
    assert SEALER.unseal(SEALER.seal(plain, context), context) == plain


def test_two_seals_of_one_value_differ_and_hide_it() -> None:
    one, two = SEALER.seal(b"whsec_secret", "a|1"), SEALER.seal(b"whsec_secret", "a|1")

    assert one != two
    assert b"whsec_secret" not in one


def test_a_copy_in_another_row_does_not_open() -> None:
    sealed = SEALER.seal(b"secret", "instance|inst_1")

    with pytest.raises(Misconfigured):
        SEALER.unseal(sealed, "instance|inst_2")


def test_another_master_key_does_not_open() -> None:
    with pytest.raises(Misconfigured):
        Sealer(os.urandom(32)).unseal(SEALER.seal(b"secret", "c"), "c")


@given(st.integers(0, 200), st.integers(1, 255))
def test_a_changed_byte_does_not_open(place: int, flip: int) -> None:
    sealed = bytearray(SEALER.seal(b"secret", "c"))
    sealed[place % len(sealed)] ^= flip

    with pytest.raises(Misconfigured):
        SEALER.unseal(bytes(sealed), "c")


@pytest.mark.parametrize("cut", [0, 1, 5, 13, 20])
def test_a_cut_value_does_not_open(cut: int) -> None:
    with pytest.raises(Misconfigured):
        SEALER.unseal(SEALER.seal(b"secret", "c")[:cut], "c")


@pytest.mark.parametrize("key", [None, "not base64!", base64.b64encode(b"short").decode()])
def test_a_missing_or_wrong_master_key_is_named(key: str | None) -> None:
    with pytest.raises(Misconfigured, match=r"(?i)master"):
        sealer_from(Settings(master_key=SecretStr(key) if key else None))


def test_a_right_master_key_is_taken() -> None:
    sealer = sealer_from(Settings(master_key=SecretStr(base64.b64encode(bytes(range(32))).decode())))

    assert SEALER.unseal(sealer.seal(b"secret", "c"), "c") == b"secret"
