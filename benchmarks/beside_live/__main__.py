"""Chat beside batch work on this machine: `python -m benchmarks.beside_live` (about eleven minutes; `make bench-headroom`).

Chat alone, beside batch work under our policy, ungated, in a fixed window, and batch work alone: the same chats, one after the other, on one
vLLM. Chat streams through our gateway, batches come over the REST API, and the worker is the production one in every phase.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from benchmarks.beside_live.chat import Heard, replay
from benchmarks.beside_live.figures import Phase, phase_of
from benchmarks.beside_live.load import TRACE_SECONDS, Stretch, batch_lines, chats, stretches
from benchmarks.beside_live.product import Product, keep_to_the_first_processor
from benchmarks.beside_live.report import table, verdicts
from benchmarks.beside_live.server import ROOT, Server
from benchmarks.beside_live.weights import model_directory
from scheduler.simulator.traces import Arrival, load

BUILD: Final = ROOT / "build" / "beside-live"
TRACES: Final = ROOT / "benchmarks" / "traces"
LEAD_SECONDS: Final = 6.0
ALONE: Final = "chat alone"
OURS: Final = "our policy"
REFERENCE: Final = "batch alone"


@dataclass
class Run:
    """What all phases share."""

    server: Server
    product: Product
    trace: list[Arrival]
    share: float
    lines: int
    seed: int

    def measured(
        self,
        name: str,
        rule: str | None,
        phase: Sequence[Stretch],
        *,
        has_chat: bool = True,
        has_batch: bool = True,
        opens_after: float = 0.0,
    ) -> Phase:
        """Run one phase to its end. `rule` starts a worker for it; None leaves the one that runs. Batch work begins some seconds before."""
        batch = self.product.submit(batch_lines(self.lines, name, self.seed)) if has_batch else None
        began_at = time.time() + LEAD_SECONDS
        if rule is not None:
            self.product.rest()
            self.product.work(rule, began_at + opens_after if opens_after else 0.0)
        time.sleep(max(0.0, began_at - time.time()))
        heard, counted = asyncio.run(self._replayed(name, phase, has_chat=has_chat))
        ended_at = time.time()
        done = self._clear(batch)
        heard_in_full = {"began_at": began_at, "chats": [asdict(h) for h in heard]}
        (BUILD / f"{name.replace(' ', '-')}.json").write_text(json.dumps(heard_in_full))
        return phase_of(name, phase, heard, counted, self._log(began_at, ended_at), done)

    async def _replayed(self, name: str, phase: Sequence[Stretch], *, has_chat: bool) -> tuple[list[Heard], list[int]]:
        """What the chats heard, and the engine's tokens at the begin and at the end of every stretch."""
        offered = chats(self.trace, phase, self.share, self.seed) if has_chat else []
        begun = time.monotonic()
        chatting = asyncio.create_task(replay(self.product.url, self.product.key, offered, name, begun))
        counted = [await asyncio.to_thread(self.server.tokens)]
        for stretch in phase:
            await asyncio.sleep(begun + stretch.end - time.monotonic())
            counted.append(await asyncio.to_thread(self.server.tokens))
        return await chatting, counted

    def _clear(self, batch: str | None) -> int:
        """Nothing of this phase may run in the next one. Returns how many batch requests were completed."""
        done = 0 if batch is None else int(self.product.cancel(batch)["request_counts"]["completed"])
        while not self.server.is_idle():
            time.sleep(0.1)
        return done

    def _log(self, begin: float, end: float) -> list[dict[str, Any]]:
        if not self.product.log.exists():
            return []
        lines = (json.loads(line) for line in self.product.log.read_text().splitlines())
        return [line for line in lines if begin <= line["at"] < end]


def main() -> None:
    arguments = _arguments()
    BUILD.mkdir(parents=True, exist_ok=True)
    decisions = BUILD / "decisions.jsonl"
    decisions.unlink(missing_ok=True)
    model = model_directory(BUILD)
    trace = load("conv", TRACES, TRACE_SECONDS)
    with (BUILD / "vllm.log").open("w") as log:
        server = Server.start(model, BUILD, log, arguments.flags.split())
        keep_to_the_first_processor()
        product = None
        try:
            product = Product.start(server.url, arguments.slots, _options(arguments.option), decisions)
            warm(product)
            report(Run(server, product, trace, arguments.share, arguments.lines, arguments.seed), arguments)
            (BUILD / "logs.txt").write_text(product.logs())
        finally:
            if product is not None:
                product.remove()
            server.stop()


def plan(arguments: argparse.Namespace) -> list[tuple[str, str | None, list[Stretch], dict[str, Any]]]:
    """The phases in order. Our worker is there during chat alone, as in production: that is how it learns what is owed."""
    phase = stretches(arguments.times, arguments.stretch)
    rules: list[tuple[str, str | None, list[Stretch], dict[str, Any]]] = [
        (ALONE, "ours", phase, {"has_batch": False}),
        (OURS, None, phase, {}),
        ("ungated", "always", phase, {}),
        ("fixed window", "always", phase, {"opens_after": phase[-1].end / 2}),
        (REFERENCE, "always", phase[:2], {"has_chat": False}),
    ]
    return [rule for rule in rules if not arguments.only or rule[0] in arguments.only.split(",")]


def report(run: Run, arguments: argparse.Namespace) -> None:
    """Every phase, kept as soon as it is over; then the table and the aim."""
    about = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "arguments": vars(arguments)}
    phases = dict[str, Phase]()
    for name, rule, phase, options in plan(arguments):
        print(f"{name}: {phase[-1].end:.0f} s", flush=True)
        phases[name] = run.measured(name, rule, phase, **options)
        figures = {"about": about | {"load": os.getloadavg()}, "phases": {n: asdict(p) for n, p in phases.items()}}
        (BUILD / "figures.json").write_text(json.dumps(figures, indent=1))
    if ALONE in phases and REFERENCE in phases:
        print(table(list(phases.values()), phases[ALONE], phases[REFERENCE]))
        if OURS in phases:
            print("\n".join(verdicts(phases[OURS], phases[ALONE], phases[REFERENCE])))


def warm(product: Product) -> None:
    """Let every part have run before anything is measured."""
    few = [Arrival(0.0, prompt, 4) for prompt in (10, 100, 250)]
    asyncio.run(replay(product.url, product.key, few, "warm", time.monotonic()))


def _options(given: list[str]) -> dict[str, float]:
    return {name: float(value) for name, _, value in (option.partition("=") for option in given)}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=3, help="busy and idle stretches of a phase")
    parser.add_argument("--stretch", type=float, default=20.0, help="seconds of each")
    parser.add_argument("--share", type=float, default=0.4, help="of the trace's arrivals")
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--lines", type=int, default=1000, help="requests of a batch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="phases, with commas between")
    parser.add_argument("--flags", default="--max-num-seqs 32 --max-num-batched-tokens 256", help="for vLLM")
    parser.add_argument("--option", action="append", default=["chunk_tokens=256"], help="of the instance")
    return parser.parse_args()


if __name__ == "__main__":
    main()
