"""A run of checks as text for a person, or as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Sequence

from slackwater.conformance.registry import EXTENSIONS
from slackwater.conformance.runner import Outcome


def as_text(outcome: Outcome) -> str:
    """One line of a check that passed; of one that failed also what OpenAI answers and what this server did."""
    if outcome.passed:
        return f"pass  {outcome.name}"
    who = "Slackwater" if outcome.name.startswith(EXTENSIONS) else "OpenAI"
    return (
        f"FAIL  {outcome.name}  ({outcome.section})\n"
        f"        {who} answers: {outcome.expected}\n"
        f"        this server: {outcome.answered}"
    )


def summary(outcomes: Sequence[Outcome]) -> str:
    """The last line: how many passed and failed."""
    failed = sum(not outcome.passed for outcome in outcomes)
    return f"{len(outcomes) - failed} of {len(outcomes)} checks passed, {failed} failed"


def as_json(base_url: str, outcomes: Sequence[Outcome]) -> str:
    """Everything, for a program."""
    failed = sum(not outcome.passed for outcome in outcomes)
    report = {
        "base_url": base_url,
        "total": len(outcomes),
        "passed": len(outcomes) - failed,
        "failed": failed,
        "checks": [outcome.as_json() for outcome in outcomes],
    }
    return json.dumps(report, ensure_ascii=False, indent=2)
