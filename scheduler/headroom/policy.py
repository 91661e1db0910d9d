"""The decision: vetoes first, then what the model of iterations leaves under the objective, through hysteresis and ramp.

One `Headroom` stands for one worker on one instance. Nothing in it reads a clock or does I/O; `now` is monotonic seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from scheduler.admission import Admit, EngineReading, Hold, OwnLoad, Policy, Readings
from scheduler.headroom import fail_safe
from scheduler.headroom.counters import Counters, cache
from scheduler.headroom.feed import Feed
from scheduler.headroom.gate import Gate
from scheduler.headroom.iteration_model import IterationModel
from scheduler.headroom.lulls import Lulls
from scheduler.headroom.objectives import QuietTimes, pressure
from scheduler.headroom.outer_loop import OuterLoop
from scheduler.headroom.pace import Pace
from scheduler.headroom.slices import Row, Slice
from scheduler.headroom.underway import Underway
from scheduler.headroom.vetoes import Vetoes
from slackwater.explain import Reason

DECODE_SHARE: Final = 1.0
KV_FULL_RATIO: Final = 0.85
BLIND_SHARE: Final = 0.125
UNBOUNDED_TOKENS: Final = 1 << 20
IDLE_SHARE: Final = 1.0
IDLE_BURDEN: Final = 2.0
LULL_BURDEN: Final = 0.2
MOST_PREFILLING: Final = 1
WHOLE_PACE: Final = (0.02, 0.005)
ENGINE_SHARES: Final = (0.45, 0.6)
ENGINE_BURDEN: Final = 0.12


@dataclass
class Headroom:
    """Decides four times a second; in an engine of our own it also sizes each iteration (`slice_tokens`).

    `in_engine` says that this worker's engine computes batch prompts in slices. Call `started` for every request that was started.
    """

    policy: Policy
    in_engine: bool = False
    model: IterationModel = field(default_factory=IterationModel)
    outer: OuterLoop = field(default_factory=OuterLoop)
    pace: Pace = field(default_factory=Pace)
    lulls: Lulls = field(default_factory=Lulls)
    quiet: QuietTimes = field(default_factory=QuietTimes)
    feed: Feed = field(default_factory=Feed)
    counters: Counters = field(default_factory=Counters)
    target_ms: float = 0.0
    decision: Admit | Hold = field(default_factory=lambda: Hold(Reason.NO_SIGNAL))

    def __post_init__(self) -> None:
        if self.in_engine:
            self.outer.least, self.outer.most = ENGINE_SHARES
            self.outer.is_firm = True
        self.vetoes = Vetoes(self.policy, self.in_engine)
        self._valid_until = -inf
        self._is_lull = False
        cap = self.policy.prefill_cap_tokens or self.policy.chunk_tokens
        self.underway = Underway(self.feed, self.counters, cap, in_turn=cap >= self.policy.chunk_tokens)
        if self.underway.in_turn:
            self.pace.share, self.pace.least = WHOLE_PACE

    def started(self, prompt_tokens: int) -> None:
        """A batch request began; its prompt is taken off what may start."""
        seconds = self.underway.started(prompt_tokens)
        if not self._is_lull:
            self.pace.spend(seconds)

    @property
    def gate(self) -> Gate:
        """The hysteresis."""
        return self.vetoes.gate

    @property
    def again_seconds(self) -> float | None:
        """When to decide once more before the next sample; None where that is soon enough."""
        return None if self.in_engine else self.underway.again_seconds

    def decide(self, readings: Readings, own: OwnLoad, now: float) -> Admit | Hold:
        """What this worker may do until the next decision. Order: missing signals, live requests, then room."""
        self.underway.at = now
        self.pace.passes(now)
        missing = fail_safe.missing(readings, self.policy)
        if missing is not None:
            self.decision = missing
            self._valid_until = -inf
            self.counters.forget()
            self.feed.stop(now)
            return self.decision
        veto = self._veto(readings, own, now)
        self._is_lull = not self.in_engine and self.vetoes.quiet_seconds(now) >= self.lulls.needed()
        self._learn(readings, own, now)
        self.decision = veto or self._room(readings, own, now)
        valid = self.policy.max_age_seconds - fail_safe.oldest(readings, self.policy)[1]
        self._valid_until = now + valid
        if isinstance(self.decision, Admit):
            self.decision = replace(self.decision, valid_seconds=valid)
        return self.decision

    def _veto(self, readings: Readings, own: OwnLoad, now: float) -> Hold | None:
        quiet = self.vetoes.quiet_seconds(now)
        was_long = self.gate.was_long
        found = self.vetoes.check(readings, own, now, self.underway.can_take_back)
        self.lulls.see(self.vetoes.live, quiet)
        if found is not None and not self.in_engine:
            is_behind = self._is_lull or self.underway.in_turn or fail_safe.queued(readings, own, 1) > 0
            found = self.underway.give_up(found, is_behind=is_behind)
        if self.gate.was_long:
            self.feed.stop(now)
            if not was_long:
                self.outer.queued()
        return found

    # Learning

    def _learn(self, readings: Readings, own: OwnLoad, now: float) -> None:
        self.quiet.see(readings.live, own.total, now)
        ttft, inter_token = self.quiet.objectives(self.policy.objectives)
        first = later = None
        if readings.live is not None and own.total > 0:
            first = pressure(readings.live.ttft_p99_seconds, ttft)
            later = pressure(readings.live.inter_token_p99_seconds, inter_token)
        if self.in_engine:
            later = max((p for p in (first, later) if p is not None), default=None)
        else:
            self.pace.move(first, now)
        share = self.outer.move(later, now)
        self.target_ms = share * inter_token * 1000
        if not self.in_engine and readings.engine is not None:
            running, kv = readings.engine.running or 0, cache(readings.engine)
            self.underway.reading_ms = self.model.milliseconds(running, kv, self.underway.cap)
            self.counters.see(readings.engine, own, now, self.model, self.feed)

    # Room

    def _room(self, readings: Readings, own: OwnLoad, now: float) -> Admit | Hold:
        engine = readings.engine
        assert engine is not None
        running, _ = fail_safe.live(readings, own)
        most = self.policy.max_slots - running - own.others
        is_idle = self.vetoes.is_idle(now)
        if most <= 0:
            said = f"{running} live and {own.others} other batch requests fill {self.policy.max_slots} slots"
            return Hold(Reason.FULL, said)
        kv = cache(engine)
        if kv > KV_FULL_RATIO:
            return self._full(own, most, f"{kv:.0%} of the cache is in use", readings)
        if engine.iterations is None and not self.in_engine:
            return self._blind(own, most, is_idle=is_idle)
        return self._modelled(readings, own, most, engine, now, is_idle=is_idle)

    def _modelled(
        self,
        readings: Readings,
        own: OwnLoad,
        most: int,
        engine: EngineReading,
        now: float,
        *,
        is_idle: bool,
    ) -> Admit | Hold:
        running, kv = engine.running or 0, cache(engine)
        inter_token_ms = self.target_ms / self.outer.share
        target = self._target(is_idle=is_idle)
        base = self.model.milliseconds(running, kv, 0.0)
        full = self.model.milliseconds(running, kv, self.underway.cap)
        if self._is_lull:
            target = max(target, full)
        if base > DECODE_SHARE * (target if self._is_lull else self.target_ms) and own.total > 0:
            return self._full(
                own, most, f"an iteration takes {base:.0f} ms of {self.target_ms:.0f} without a prompt", readings
            )
        burden = self._burden(engine, own)
        most_burden = ENGINE_BURDEN if self.in_engine else self.outer.burden * (IDLE_BURDEN if is_idle else 1.0)
        if burden > max(most_burden * inter_token_ms, LULL_BURDEN * full if self._is_lull else 0.0):
            return self._full(own, most, f"what decodes for batches adds {burden:.0f} ms to an iteration", readings)
        slots = self.gate.widen(most, own.mine)
        room = min(self.model.room(target, base, running), self.policy.chunk_tokens - running)
        if self.in_engine:
            return Admit(slots, max(0, int(room)))
        if self._is_lull:
            room = max(room, self.underway.cap)
        rate = room * 1000 / target - max(0.0, self.feed.live_rate)
        self.feed.fill(rate * (own.mine + 1) / (own.total + 1), now)
        if self.feed.tokens < 1:
            return self._full(own, most, "the iterations of this moment have no room for a prompt", readings)
        prefilling = self.underway.count
        if prefilling >= MOST_PREFILLING:
            return self._full(own, most, f"{prefilling} batch prompts are being read", readings)
        if not (self._is_lull or self.pace.is_due):
            said = f"first tokens leave {self.pace.share:.0%} of the time for reading batch prompts"
            return self._full(own, most, said, readings)
        return Admit(min(slots, own.mine + MOST_PREFILLING - prefilling), int(self.feed.tokens))

    def _burden(self, engine: EngineReading, own: OwnLoad) -> float:
        """Milliseconds that own decoding adds to every iteration, also to those of a burst of live prompts."""
        kv = cache(engine)
        share = kv * own.total / max(1, engine.running or 0, own.total)
        if own.prompt_tokens is not None and engine.kv_capacity_tokens:
            share = own.prompt_tokens / engine.kv_capacity_tokens * own.total / max(1, own.mine)
        _, per_sequence, per_cache, *_ = self.model.coefficients
        return per_sequence * own.total / 64 + per_cache * min(kv, share)

    def _target(self, *, is_idle: bool) -> float:
        return max(self.target_ms, IDLE_SHARE * self.target_ms / self.outer.share) if is_idle else self.target_ms

    def _blind(self, own: OwnLoad, most: int, *, is_idle: bool) -> Admit | Hold:
        """An engine that does not count its iterations: everything while idle, else a few, fewer when live requests feel it."""
        if is_idle:
            return Admit(most, UNBOUNDED_TOKENS)
        few = min(most, max(1, int(self.policy.max_slots * BLIND_SHARE * self.outer.share)))
        return Admit(self.gate.widen(few, own.mine), self.policy.chunk_tokens)

    def _full(self, own: OwnLoad, most: int, why: str, readings: Readings) -> Admit | Hold:
        """No room. In mode `deadline`, work that is pressed keeps a small share all the same."""
        if self.policy.mode == "deadline" and readings.pressed and (readings.engine is not None):
            kept = min(most, max(1, int(self.policy.max_slots * self.policy.deadline_share)))
            if cache(readings.engine) <= KV_FULL_RATIO:
                return Admit(kept, self.policy.chunk_tokens)
        return Hold(Reason.FULL, why)

    # In an engine of our own

    def slice(self, row: Row, now: float) -> Slice:
        """Batch work of the next iteration. No prompt token while a live request waits, under a hold, and when the decision is old;
        batch requests that decode pause where live prompts need the iteration.

        A hold for a live request that was waiting a moment ago is over as soon as the engine itself sees none waiting.
        """
        target = self._slice_target(row, now)
        base = self.model.milliseconds(row.sequences, row.kv_ratio, row.live_prompt, row.live_attention)
        decode = base <= target or not (row.live_prompt or row.live_waiting)
        is_old = now > self._valid_until
        if is_old or row.live_waiting or not decode or not (isinstance(self.decision, Admit) or self._is_passing):
            return Slice(0, decode)
        used = row.sequences + row.live_prompt
        room = self.model.room(target, base, used, row.past)
        return Slice(max(0, min(int(room), self.policy.chunk_tokens - used)), decode)

    def _slice_target(self, row: Row, now: float) -> float:
        is_idle = self.vetoes.is_idle(now) and row.live_prompt == 0
        return self._target(is_idle=is_idle)

    @property
    def _is_passing(self) -> bool:
        held = isinstance(self.decision, Hold) and self.decision.reason is Reason.LIVE_WAITING
        return held and not self.gate.was_long

    def learn_iteration(self, ms: float, sequences: int, kv_ratio: float, prompt: int, attention: float) -> None:
        """One iteration of our own engine: its time, and what was in it."""
        self.model.learn(ms, sequences, kv_ratio, prompt, attention)
