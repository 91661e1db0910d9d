"""What a phase offers: stretches of chat as the trace has it, idle stretches, and a backlog of batch requests. All from one seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any, Final

from scheduler.simulator.traces import Arrival, batch_work, seeded, thin

MODEL: Final = "smollm2-135m-instruct"
SCALE: Final = 8
TRACE_BEGIN: Final = 600.0
TRACE_SECONDS: Final = 900.0
MOST_PROMPT: Final = 1200
MOST_OUTPUT: Final = 128
WORDS: Final = (
    "time", "people", "water", "house", "world", "number", "light", "point", "north", "river",
    "small", "large", "night", "story", "field", "plant", "green", "paper", "stone", "music",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stretch:
    """Seconds from the begin of a phase, with chat or idle of it."""

    begin: float
    end: float
    is_busy: bool

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def stretches(times: int, seconds: float) -> list[Stretch]:
    """Chat and idleness by turns, `times` each, chat first."""
    return [Stretch(i * seconds, (i + 1) * seconds, i % 2 == 0) for i in range(2 * times)]


def chats(trace: Sequence[Arrival], phase: Sequence[Stretch], share: float, seed: int) -> list[Arrival]:
    """The trace's arrivals from its tenth minute on, thinned to a share and made shorter, through the busy stretches one after the other."""
    kept = thin(list(trace), share, seeded(seed))
    placed, passed = list[Arrival](), TRACE_BEGIN
    for stretch in phase:
        if stretch.is_busy:
            here = (a for a in kept if passed <= a.at < passed + stretch.seconds)
            placed += [Arrival(stretch.begin + a.at - passed, *shorter(a.prompt, a.output)) for a in here]
            passed += stretch.seconds
    return placed


def shorter(prompt: int, output: int) -> tuple[int, int]:
    """Lengths for a model of this size on a processor: an eighth, within its context."""
    return max(1, min(MOST_PROMPT, prompt // SCALE)), max(2, min(MOST_OUTPUT, output // SCALE))


def chat_body(arrival: Arrival, n: int, salt: str) -> dict[str, Any]:
    """A streamed chat request of about this length. Every phase has its own `salt`, so that no cached prefix of another helps it."""
    random = seeded(n, arrival.prompt)
    return _body(f"{salt} {n}: {_words(random, arrival.prompt)}", arrival.output) | {
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def batch_lines(count: int, salt: str, seed: int) -> bytes:
    """Batch requests with the lengths that the simulator takes, as short."""
    lengths = islice(batch_work(seeded(seed, 7)), count)
    return b"".join(_batch_line(n, salt, *shorter(prompt, output)) for n, (prompt, output) in enumerate(lengths))


def _batch_line(n: int, salt: str, prompt: int, output: int) -> bytes:
    body = _body(f"{salt} {n}: {_words(seeded(n, prompt), prompt)}", output)
    line = {"custom_id": f"r{n}", "method": "POST", "url": "/v1/chat/completions", "body": body}
    return json.dumps(line).encode() + b"\n"


def _body(text: str, output: int) -> dict[str, Any]:
    """`ignore_eos`: an answer is as long as the trace says, whatever a small model would like."""
    messages = [{"role": "user", "content": text}]
    return {"model": MODEL, "messages": messages, "max_tokens": output, "ignore_eos": True, "temperature": 0}


def _words(random: Random, count: int) -> str:
    """Words of one token each."""
    return " ".join(random.choice(WORDS) for _ in range(count))
