"""A replica that fills its iterations as vLLM's V1 scheduler does.

What runs comes before what waits, and both in the order in which they came; live or batch makes no difference. A request takes what it
still needs, at most `cap` tokens (`--long-prefill-token-threshold`, which meets every prompt), until the tokens of the iteration are
spent.
"""

from __future__ import annotations

from scheduler.simulator.costs import Costs
from scheduler.simulator.engine import Replica, drop_read
from scheduler.simulator.iteration import Iteration, Limits, Sequence


class FirstComeReplica(Replica):
    """`own_tokens` of a step means nothing here: whole prompts were handed over."""

    def __init__(self, costs: Costs, limits: Limits) -> None:
        super().__init__(costs, limits)
        self._turns = 0

    def _fill(self, it: Iteration, own_tokens: int, *, decode_own: bool) -> None:
        """Every answer gets its token: only who came last can find the tokens spent, and nobody is let in behind it until it is read."""
        cap = self.limits.cap
        it.live_decoding, it.decoding = self.live_decoding, self.live_decoding + self.own_decoding
        left = max(0, self.limits.chunk - it.decoding)
        reading = sorted([*self.prefills, *self.own_prefills], key=_turn) if self.own_prefills else list(self.prefills)
        for s in reading:
            left -= self._read(it, s, min(cap, left))
        while left > 0 and (new := self._next()) is not None:
            left -= self._read(it, new, min(cap, left))
        drop_read(self.prefills, it.first_live)
        drop_read(self.own_prefills, it.first_own)

    def _read(self, it: Iteration, s: Sequence, most: int) -> int:
        take = min(s.prompt - s.past, most)
        it.attention += take * (s.past + take / 2)
        s.past += take
        if s.is_live:
            it.live_prompt += take
        else:
            it.own_prompt += take
        if s.past >= s.prompt:
            (it.first_live if s.is_live else it.first_own).append(s)
        return take

    def _next(self) -> Sequence | None:
        """Let in whoever came first, if there is a place and cache for it."""
        heads = [queue[0] for queue in (self.waiting, self.own_waiting) if queue]
        if not heads:
            return None
        s = min(heads, key=lambda s: s.arrived_at)
        queue, into = (self.waiting, self.prefills) if s.is_live else (self.own_waiting, self.own_prefills)
        if not self._enter_one(queue, into, live=s.is_live):
            return None
        self._turns += 1
        s.turn = self._turns
        return s


def _turn(s: Sequence) -> int:
    return s.turn
