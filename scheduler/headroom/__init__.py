"""The room live traffic leaves: how much batch work may run now. Pure; the clock is passed in."""

from scheduler.headroom.policy import Headroom
from scheduler.headroom.slices import Row, Slice

__all__ = ["Headroom", "Row", "Slice"]
