"""The comparison as a table of text and as charts."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Values
from html import escape
from typing import Final

from scheduler.simulator.compare import Line

WIDTH: Final = 900
ROW: Final = 18
LEFT: Final = 220


def _by_policy(lines: Iterable[Line]) -> dict[str, dict[str, list[Line]]]:
    found: dict[str, dict[str, list[Line]]] = {}
    for line in lines:
        found.setdefault(line.figures.policy, {}).setdefault(line.case.name, []).append(line)
    return found


def _mean(values: Values[float]) -> float:
    return sum(values) / len(values)


def shares(lines: Values[Line]) -> str:
    """Per cent of the oracle's batch tokens, the mean over the seeds; `!` counts the seeds in which the promise was broken."""
    found = _by_policy(lines)
    cases = list(dict.fromkeys(line.case.name for line in lines))
    rows = [["% of the oracle", *cases], ["oracle, tokens/s", *(_oracle(lines, c) for c in cases)]]
    for name, by_case in found.items():
        if name in ("live only", "in-engine oracle"):
            continue
        rows.append([name, *(_cell(by_case[c]) for c in cases)])
    return markdown(rows)


def _oracle(lines: Values[Line], case: str) -> str:
    best = [line.oracle.batch_tokens_per_second for line in lines if line.case.name == case]
    return f"{_mean(best):,.0f}"


def _cell(lines: Values[Line]) -> str:
    broken = sum(line.is_broken for line in lines)
    said = f"{100 * _mean([line.share for line in lines]):.0f}"
    return said + (f" !{broken}" if broken else "")


def details(lines: Values[Line]) -> str:
    """The worst seed of each policy and case: shares of the objectives, and ratios to live traffic alone."""
    head = ["policy", "case", "of oracle", "TTFT/objective", "inter-token/objective", "TTFT × alone", "gap × alone"]
    rows = [[*head, "wasted", "stops within", "NVML busy"]]
    for name, by_case in _by_policy(lines).items():
        for case, found in by_case.items():
            rows.append([name, case, *_worst(found)])
    return markdown(rows)


def _worst(found: Values[Line]) -> list[str]:
    figures = [line.figures for line in found]
    return [
        f"{min(line.share for line in found):.2f}",
        f"{max(line.figures.ttft_p99 / line.promise.ttft for line in found):.2f}",
        f"{max(line.figures.tpot_p99_ms / line.promise.inter_token for line in found) / 1000:.2f}",
        f"{max(line.figures.ttft_p99 / line.alone.ttft_p99 for line in found):.2f}",
        f"{max(line.figures.gap_p99_ms / line.alone.gap_p99_ms for line in found):.2f}",
        f"{100 * max(f.wasted_ratio for f in figures):.1f} %",
        f"{1000 * max(f.stop_p99 for f in figures):.0f} ms",
        f"{100 * _mean([f.busy_ratio for f in figures]):.0f} %",
    ]


def markdown(rows: Values[Values[str]]) -> str:
    """A table with its columns aligned."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    out = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in rows]
    out.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(out)


def chart(title: str, lines: Values[Line]) -> str:
    """An SVG of bars: per cent of the oracle's batch tokens by policy and case; red where the promise was broken in any seed."""
    bars = [
        (f"{name}, {case}", 100 * _mean([x.share for x in found]), any(x.is_broken for x in found))
        for name, by_case in _by_policy(lines).items()
        if name != "live only"
        for case, found in by_case.items()
    ]
    most = max([100.0, *(value for _, value, _ in bars)])
    height = 40 + ROW * len(bars)
    body = [_bar(i, *bar, most) for i, bar in enumerate(bars)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="11">'
    return "\n".join([head, f'<text x="8" y="18" font-size="14">{escape(title)}</text>', *body, "</svg>", ""])


def _bar(i: int, name: str, value: float, is_broken: bool, most: float) -> str:
    y = 32 + ROW * i
    width = max(1.0, (WIDTH - LEFT - 60) * value / most)
    colour = "#c0392b" if is_broken else "#2c7fb8"
    return (
        f'<text x="{LEFT - 6}" y="{y + 11}" text-anchor="end">{escape(name)}</text>'
        f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="13" fill="{colour}"/>'
        f'<text x="{LEFT + width + 4:.1f}" y="{y + 11}">{value:.0f}</text>'
    )
