"""The table of a run, every figure beside what it is of chat alone or of batch alone, and what of the aim is met."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.beside_live.figures import Phase, Tail

TTFT_FACTOR: Final = 1.25
TTFT_MARGIN_SECONDS: Final = 0.010
IDLE_SHARE: Final = 0.80
HEAD: Final = (
    "| phase | first token p50 / p95 / p99, ms | × alone | between tokens p50 / p95 / p99, ms | × alone | batch tokens/s idle | of batch alone "
    "| with chat | over all | stops, starts, flaps, moments a minute |"
)


def table(phases: Sequence[Phase], alone: Phase, reference: Phase) -> str:
    """Markdown. The ratios of times are those of the 99th percentiles."""
    lines = [HEAD, "|---" * (HEAD.count("|") - 1) + "|"]
    return "\n".join([*lines, *(_row(phase, alone, reference) for phase in phases)])


def _row(phase: Phase, alone: Phase, reference: Phase) -> str:
    a, minutes = phase.admission, phase.seconds / 60
    idle = phase.idle_rate
    cells = [
        phase.name,
        _tail(phase.first_token),
        _ratio(phase.first_token, alone.first_token),
        _tail(phase.gap),
        _ratio(phase.gap, alone.gap),
        "–" if idle is None else f"{idle:.0f}",
        "–" if idle is None or not reference.batch_rate else f"{idle / reference.batch_rate:.0%}",
        "–" if phase.busy_rate is None else f"{phase.busy_rate:.0f}",
        f"{phase.batch_rate:.0f}",
        ", ".join(f"{n / minutes:.1f}" for n in (a.stops, a.starts, a.flaps, a.moments)) if a.decisions else "–",
    ]
    return f"| {' | '.join(cells)} |"


def verdicts(ours: Phase, alone: Phase, reference: Phase) -> list[str]:
    """The aim, part by part, and whether it was met."""
    said = []
    if ours.first_token is not None and alone.first_token is not None:
        most = TTFT_FACTOR * alone.first_token.p99 + TTFT_MARGIN_SECONDS
        got = ours.first_token.p99
        said.append(f"{_met(got <= most)}: first token p99 {got * 1000:.0f} ms, at most {most * 1000:.0f} ms")
    if ours.idle_rate is not None:
        share = ours.idle_rate / reference.batch_rate
        said.append(
            f"{_met(share >= IDLE_SHARE)}: {share:.0%} of the batch-alone rate in idle stretches, at least {IDLE_SHARE:.0%}"
        )
    said.append(f"{_met(ours.admission.flaps == 0)}: {ours.admission.flaps} stops within five seconds of their start")
    return said


def _met(is_met: bool) -> str:
    return "met" if is_met else "missed"


def _tail(tail: Tail | None) -> str:
    return "–" if tail is None else " / ".join(f"{x * 1000:.0f}" for x in (tail.p50, tail.p95, tail.p99))


def _ratio(tail: Tail | None, of: Tail | None) -> str:
    return "–" if tail is None or of is None else f"{tail.p99 / of.p99:.2f}"
