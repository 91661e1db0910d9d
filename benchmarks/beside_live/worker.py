"""The worker of a phase: the production one, with what it decides written down, or with another rule in the place of the policy.

python -m benchmarks.beside_live.worker --instance NAME --rule ours|always --log FILE [--opens-at UNIX-SECONDS]
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from scheduler.admission import Admit, Hold, OwnLoad, Policy, Readings
from scheduler.headroom import Headroom
from slackwater.cli.parts import begin
from slackwater.explain import Reason
from workers.main import main as serve

WITHOUT_END = 1 << 30


@dataclass
class Noted(Headroom):
    """The policy as it is; each decision goes to `log` as a line of JSON with what it rests on."""

    log: TextIO | None = None

    def decide(self, readings: Readings, own: OwnLoad, now: float) -> Admit | Hold:
        decision = super().decide(readings, own, now)
        if self.log is not None:
            self.log.write(json.dumps(said(decision, readings, own) | self._learned()) + "\n")
            self.log.flush()
        return decision

    def _learned(self) -> dict[str, Any]:
        """What the policy believes: milliseconds, shares, seconds."""
        return {
            "target_ms": round(self.target_ms, 1),
            "share": round(self.outer.share, 3),
            "burden": round(self.outer.burden, 3),
            "model": [round(c, 2) for c in self.model.coefficients],
            "feed": [round(x, 1) for x in (self.feed.tokens, self.feed.live_rate, self.feed.own_rate)],
            "quiet": [self.quiet.ttft_seconds, self.quiet.inter_token_seconds],
            "pace": [round(self.pace.share, 3), round(self.pace.owed, 3), round(self.underway.reading_ms, 1)],
            "reading": self.underway.count,
            "lull": self.lulls.needed() if self.lulls.needed() < 1e9 else None,
        }


@dataclass
class Always(Noted):
    """No policy: every slot, from `opens_at` (unix seconds) on."""

    opens_at: float = field(default=0.0)

    def decide(self, readings: Readings, own: OwnLoad, now: float) -> Admit | Hold:
        is_open = time.time() >= self.opens_at
        decision = Admit(self.policy.max_slots, WITHOUT_END) if is_open else Hold(Reason.MODEL_PAUSED)
        if self.log is not None:
            self.log.write(json.dumps(said(decision, readings, own)) + "\n")
            self.log.flush()
        return decision


def said(decision: Admit | Hold, readings: Readings, own: OwnLoad) -> dict[str, Any]:
    """A decision and its readings as JSON; `at` is unix seconds."""
    engine, live = readings.engine, readings.live
    reason = decision.reason.value if isinstance(decision, Hold) else None
    return {
        "at": round(time.time(), 3),
        "reason": reason,
        "details": decision.details if isinstance(decision, Hold) else None,
        "slots": decision.slots if isinstance(decision, Admit) else 0,
        "tokens": decision.prompt_tokens if isinstance(decision, Admit) else 0,
        "own": own.mine,
        "engine": engine and [round(engine.age_seconds, 3), engine.running, engine.waiting, engine.kv_used_ratio],
        "iterations": engine and [engine.iterations, engine.iteration_tokens],
        "live": live
        and [
            round(live.age_seconds, 3),
            live.running,
            live.waiting,
            live.ttft_p99_seconds,
            live.inter_token_p99_seconds,
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--instance", required=True)
    parser.add_argument("--rule", choices=("ours", "always"), required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--opens-at", type=float, default=0.0)
    arguments = parser.parse_args()
    with arguments.log.open("a") as log:

        def made(policy: Policy) -> Headroom:
            if arguments.rule == "ours":
                return Noted(policy, log=log)
            return Always(policy, log=log, opens_at=arguments.opens_at)

        serve(begin(None), arguments.instance, made)


if __name__ == "__main__":
    main()
