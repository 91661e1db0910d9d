"""Idempotent steps that any process may run at any time; two at once do no harm. The database says what is due."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from psycopg import Connection
from psycopg.rows import TupleRow

from slackwater.settings import Settings

Step = Callable[[Connection[TupleRow], Settings], int]


@dataclass(frozen=True, slots=True)
class Duty:
    """A named step. It returns how much it did; something done means that more may be due."""

    name: str
    step: Step
    interval_seconds: float = 1.0
