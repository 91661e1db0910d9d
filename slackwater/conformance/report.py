"""A run of checks as text for a person, or as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Sequence

from slackwater.conformance.registry import EXTENSIONS
from slackwater.conformance.runner import Outcome, Verdict


def as_text(outcome: Outcome) -> str:
    """One line of a check that passed; of one that failed also what OpenAI answers and what this server did."""
    if outcome.passed:
        return f"pass  {outcome.name}"
    if outcome.verdict is Verdict.NOT_OFFERED:
        return f"none  {outcome.name}  (not offered: {outcome.answered})"
    who = "Slackwater" if outcome.name.startswith(EXTENSIONS) else "OpenAI"
    return (
        f"FAIL  {outcome.name}  ({outcome.section})\n"
        f"        {who} answers: {outcome.expected}\n"
        f"        this server: {outcome.answered}"
    )


def summary(outcomes: Sequence[Outcome]) -> str:
    """The last line: how many passed and failed, and how many extensions of ours the server does not have."""
    counts = _counts(outcomes)
    said = f"{counts['passed']} of {counts['total']} checks passed, {counts['failed']} failed"
    return said + (f", {counts['not_offered']} not offered" if counts["not_offered"] else "")


def as_json(base_url: str, outcomes: Sequence[Outcome]) -> str:
    """Everything, for a program."""
    checks = [outcome.as_json() for outcome in outcomes]
    return json.dumps({"base_url": base_url, **_counts(outcomes), "checks": checks}, ensure_ascii=False, indent=2)


def _counts(outcomes: Sequence[Outcome]) -> dict[str, int]:
    counts = {verdict.value: sum(outcome.verdict is verdict for outcome in outcomes) for verdict in Verdict}
    return {"total": len(outcomes)} | counts
