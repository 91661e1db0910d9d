"""Live traffic to replay and batch work to run beside it. Everything is a function of its seed."""

from __future__ import annotations

import csv
import gzip
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Final, TextIO

from slackwater.errors import Misconfigured

MOONCAKE_TICK_SECONDS: Final = 3.0
BATCH_PROMPT_MEDIAN: Final = 4000
BATCH_OUTPUT_MEDIAN: Final = 250
BATCH_SIGMA: Final = 0.7
LARGEST_PROMPT: Final = 32_000


@dataclass(frozen=True, slots=True)
class Arrival:
    """A live request: seconds from the start of the trace, tokens of its prompt and of its answer."""

    at: float
    prompt: int
    output: int


def load(name: str, folder: Path, seconds: float, seed: int = 0) -> list[Arrival]:
    """The first `seconds` of a trace by name: `conv`, `code`, `mooncake`, or `poisson` (which needs no file).

    Raises:
        Misconfigured: the trace is not known, or its file is not in `folder`.
    """
    if name == "poisson":
        return list(poisson(5.0, seconds, seeded(seed)))
    files = {
        "conv": "azure/AzureLLMInferenceTrace_conv.csv",
        "code": "azure/AzureLLMInferenceTrace_code.csv",
        "mooncake": "mooncake/conversation_trace.jsonl",
    }
    if name not in files:
        raise Misconfigured(f"no trace is called {name}; known are poisson, {', '.join(files)}")
    with _open(folder / files[name]) as lines:
        read = _mooncake(lines, seeded(seed)) if name == "mooncake" else _azure(lines)
        return sorted((a for a in read if a.at < seconds), key=lambda a: a.at)


def _open(path: Path) -> TextIO:
    packed = path.with_name(path.name + ".gz")
    if packed.exists():
        return gzip.open(packed, "rt", encoding="utf-8")
    if not path.exists():
        raise Misconfigured(f"{path} does not exist: name the folder of the traces with --traces")
    return path.open(encoding="utf-8")


def _azure(lines: TextIO) -> Iterator[Arrival]:
    """Azure LLM inference trace 2023: TIMESTAMP,ContextTokens,GeneratedTokens."""
    begun = None
    for row in csv.DictReader(lines):
        at = datetime.fromisoformat(row["TIMESTAMP"][:26])
        begun = begun or at
        yield Arrival(
            (at - begun).total_seconds(), max(1, int(row["ContextTokens"])), max(1, int(row["GeneratedTokens"]))
        )


def _mooncake(lines: TextIO, random: Random) -> Iterator[Arrival]:
    """Mooncake: milliseconds in ticks of three seconds, so each arrival falls somewhere inside its tick."""
    for line in lines:
        row = json.loads(line)
        at = row["timestamp"] / 1000 + random.random() * MOONCAKE_TICK_SECONDS
        yield Arrival(at, max(1, row["input_length"]), max(1, row["output_length"]))


def poisson(rate: float, seconds: float, random: Random) -> Iterator[Arrival]:
    """Arrivals at `rate` a second with log-normal lengths like a conversation's."""
    at = random.expovariate(rate)
    while at < seconds:
        yield Arrival(at, _lognormal(random, 1000, 0.8, 8000), _lognormal(random, 130, 0.9, 1000))
        at += random.expovariate(rate)


def thin(arrivals: list[Arrival], share: float, random: Random) -> list[Arrival]:
    """Each arrival is kept with probability `share`: bursts keep their shape. Above 1, copies are added a moment later."""
    kept = []
    for a in arrivals:
        left = share
        while left > 0:
            if random.random() < left:
                kept.append(a if left == share else Arrival(a.at + random.random(), a.prompt, a.output))
            left -= 1
    return sorted(kept, key=lambda a: a.at)


def batch_work(random: Random) -> Iterator[tuple[int, int]]:
    """An endless backlog of (prompt, output) tokens."""
    while True:
        yield (
            _lognormal(random, BATCH_PROMPT_MEDIAN, BATCH_SIGMA, LARGEST_PROMPT),
            _lognormal(random, BATCH_OUTPUT_MEDIAN, BATCH_SIGMA, 4000),
        )


def seeded(*parts: int) -> Random:
    """A stream of its own for each combination of numbers; nothing here is a secret."""
    return Random(repr(parts))  # noqa: S311


def _lognormal(random: Random, median: float, sigma: float, most: int) -> int:
    return max(1, min(most, round(median * math.exp(random.gauss(0, sigma)))))
