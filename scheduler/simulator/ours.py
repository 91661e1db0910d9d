"""The admission that production runs, in its two uses. The class is the production class; the clock is the replay's."""

from __future__ import annotations

from typing import Final

from scheduler.admission import (
    Admit,
    EngineReading,
    GpuReading,
    Hold,
    LiveReading,
    Mode,
    Objectives,
    OwnLoad,
    Policy,
    Readings,
)
from scheduler.headroom import Headroom, Row
from scheduler.simulator.engine import Replica
from scheduler.simulator.iteration import Iteration, Limits
from scheduler.simulator.replay import Replay
from slackwater.explain import Reason

GPU: Final = "GPU-0"
MAX_SLOTS: Final = 256
UNPREFILLED: Final = 2
LEARN_EVERY: Final = 4


def readings(replay: Replay) -> Readings:
    """What a worker would know now, each value with its age."""
    s, now = replay.signals, replay.now
    engine = EngineReading(
        now - s.engine_at, s.running, s.waiting, s.kv_ratio, s.iterations, s.iteration_tokens, replay.replica.limits.kv
    )
    live = LiveReading(now - s.live_at, s.live_running, s.live_waiting, s.ttft_p99, s.tpot_p99)
    gpu = GpuReading(GPU, now - s.nvml_at, s.busy_ratio)
    return Readings(engine, live, (gpu,), needs_live=True, declared_gpus=(GPU,))


def own(replay: Replay, *, knows_queue: bool = False) -> OwnLoad:
    """What the worker has in flight; an engine of our own also tells which of it stands in its queue."""
    waiting = replay.replica.own_unbegun if knows_queue else 0
    return OwnLoad(replay.own, 0, sum(s.prompt for s in replay.in_flight.values()), waiting)


def policy(ttft_seconds: float, inter_token_seconds: float, limits: Limits, mode: Mode = "balanced") -> Policy:
    """One configuration for every trace; only the objectives are the trace's own."""
    objectives = Objectives(ttft_seconds, inter_token_seconds)
    return Policy(MAX_SLOTS, mode, chunk_tokens=limits.chunk, prefill_cap_tokens=limits.cap, objectives=objectives)


class OverUpstream:
    """Whole requests only: slots, and prompt tokens per decision."""

    def __init__(self, policy: Policy, name: str = "ours over an upstream") -> None:
        self.headroom = Headroom(policy)
        self.name = name

    def tick(self, replay: Replay) -> None:
        decision = self.headroom.decide(readings(replay), own(replay), replay.now)
        obey(replay, decision)
        if isinstance(decision, Admit):
            self._feed(replay, decision)
        replay.look_again(self.headroom.again_seconds)

    def _feed(self, replay: Replay, admit: Admit) -> None:
        tokens = admit.prompt_tokens
        while replay.own < admit.slots and tokens > 0:
            begun = replay.start()
            self.headroom.started(begun)
            tokens -= begun

    def own_tokens(self, replay: Replay) -> int:
        return replay.replica.limits.chunk

    def after(self, replay: Replay, it: Iteration) -> None:
        return


class InEngine:
    """A budget of batch prompt tokens for each iteration."""

    name = "ours in the engine"

    def __init__(self, policy: Policy) -> None:
        self.headroom = Headroom(policy, in_engine=True)
        self._slots = 0

    def tick(self, replay: Replay) -> None:
        decision = self.headroom.decide(readings(replay), own(replay, knows_queue=True), replay.now)
        obey(replay, decision)
        if isinstance(decision, Admit):
            self._slots = decision.slots
        elif decision.reason is not Reason.LIVE_WAITING or self.headroom.gate.was_long:
            self._slots = 0

    def own_tokens(self, replay: Replay) -> int:
        r = replay.replica
        while replay.own < self._slots and replay.own_unprefilled < UNPREFILLED:
            self.headroom.started(replay.start(whole=False))
        part = self.headroom.slice(self._row(r), replay.now)
        return part.prompt_tokens if part.decode else -1

    def _row(self, r: Replica) -> Row:
        decoding = r.live_decoding + r.own_decoding
        room = max(0, r.limits.chunk - decoding)
        prompt, attention, waiting = r.next_live(room)
        past = r.own_prefills[0].past if r.own_prefills else 0
        kv = r.limits.kv
        return Row(decoding, r.kv / kv, r.own_decoding, r.own_kv / kv, prompt, attention, waiting, past)

    def after(self, replay: Replay, it: Iteration) -> None:
        r = replay.replica
        if r.index % LEARN_EVERY == 0:
            prompt = it.live_prompt + it.own_prompt
            self.headroom.learn_iteration(it.ms, it.decoding, it.kv / r.limits.kv, prompt, it.attention)


def obey(replay: Replay, decision: Admit | Hold) -> None:
    """What a hold gives up."""
    if isinstance(decision, Hold):
        if decision.cancel_unprefilled:
            replay.cancel_unprefilled(decision.newest)
        if decision.cancel_decoding:
            replay.cancel_decoding(decision.cancel_decoding)
