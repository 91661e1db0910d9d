"""The mask that a grammar gives is bits, lowest first. Needs torch and llguidance, not the weights."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")
pytest.importorskip("llguidance")

from workers.engine.grammar import unpack

pytestmark = pytest.mark.engine


@given(bits=st.lists(st.booleans(), min_size=1, max_size=100))
def test_every_bit_comes_out_at_its_token(bits: list[bool]) -> None:
    number = sum(1 << index for index, bit in enumerate(bits) if bit)
    mask = number.to_bytes(16, "little")

    assert unpack(mask, len(bits)).tolist() == bits
