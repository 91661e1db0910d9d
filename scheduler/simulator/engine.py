"""One replica of a model server, iteration by iteration. Each costs O(1): a heap of endings and sums of the cache, no walk of the sequences.

Live prompts go before batch prompts, both share the tokens of an iteration with what decodes, and `cap` bounds how much of one batch
prompt an iteration takes. The whole of a sequence is reserved in the cache before it starts, so nothing is evicted.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush

from scheduler.simulator.costs import Costs
from scheduler.simulator.iteration import Iteration, Limits, Sequence


class Replica:
    """The engine. `step` runs one iteration with at most `own_tokens` batch prompt tokens."""

    def __init__(self, costs: Costs, limits: Limits) -> None:
        self.costs, self.limits = costs, limits
        self.index = 0
        self.waiting: deque[Sequence] = deque()
        self.own_waiting: deque[Sequence] = deque()
        self.prefills: deque[Sequence] = deque()
        self.own_prefills: deque[Sequence] = deque()
        self.endings: list[tuple[int, int, Sequence]] = []
        self.own_index = 0
        self.own_endings: list[tuple[int, int, Sequence]] = []
        self.kv = self.own_kv = self.reserved = self.live_decoding = self.own_decoding = self.own_reserved = 0
        self.last = Iteration()

    @property
    def live_running(self) -> int:
        return self.live_decoding + len(self.prefills)

    @property
    def own_running(self) -> int:
        return self.own_decoding + len(self.own_prefills)

    @property
    def live_unbegun(self) -> int:
        """Live requests of which nothing was computed."""
        return len(self.waiting) + sum(1 for s in self.prefills if s.past == 0)

    @property
    def own_unbegun(self) -> int:
        return len(self.own_waiting) + sum(1 for s in self.own_prefills if s.past == 0)

    @property
    def is_idle(self) -> bool:
        return not (
            self.endings or self.own_endings or self.prefills or self.own_prefills or self.waiting or self.own_waiting
        )

    @property
    def live_prefill_tokens(self) -> int:
        """Prompt tokens that live requests still wait for."""
        return sum(s.prompt - s.past for s in self.prefills) + sum(s.prompt for s in self.waiting)

    def next_live(self, room: int) -> tuple[int, float, int]:
        """What live prompts will take of `room` tokens in the next iteration: tokens, attention, and requests left without any."""
        used, attention, waiting = 0, 0.0, 0
        for queue in (self.prefills, self.waiting):
            for s in queue:
                take = min(s.prompt - s.past, room - used)
                if take <= 0:
                    waiting += s.past == 0
                    continue
                used += take
                attention += take * (s.past + take / 2)
        return used, attention, waiting

    def arrive(self, sequence: Sequence) -> None:
        (self.waiting if sequence.is_live else self.own_waiting).append(sequence)

    def cancel_unprefilled(self, newest: int | None = None) -> tuple[list[Sequence], int]:
        """Batch requests whose prompt is not done leave: all, or the newest so many. Returns them and the prompt tokens that were for nothing."""
        every = sorted([*self.own_prefills, *self.own_waiting], key=lambda s: s.arrived_at, reverse=True)
        gone = every[:newest]
        for s in gone:
            if s in self.own_prefills:
                self._free(s, s.past)
        self.own_prefills = deque(s for s in self.own_prefills if s not in gone)
        self.own_waiting = deque(s for s in self.own_waiting if s not in gone)
        return gone, sum(s.past for s in gone)

    def cancel_decoding(self, most: int) -> tuple[list[Sequence], int]:
        """At most `most` decoding batch requests leave, the least computed first. Returns them and the tokens that were for nothing."""
        own = sorted(self.own_endings, key=lambda e: e[2].prompt + e[2].output - (e[0] - self.own_index))
        gone, wasted = own[:most], 0
        for end, _, s in gone:
            held = s.prompt + s.output - max(0, end - self.own_index)
            self._free(s, held)
            wasted += held
        self.own_decoding -= len(gone)
        self.own_endings = own[most:]
        heapify(self.own_endings)
        return [s for _, _, s in gone], wasted

    def _free(self, s: Sequence, held: int) -> None:
        self.kv -= held
        self.reserved -= s.prompt + s.output
        if not s.is_live:
            self.own_reserved -= s.prompt + s.output
            self.own_kv -= held

    def _enter(self, queue: deque[Sequence], into: deque[Sequence], *, live: bool) -> None:
        while queue and self._enter_one(queue, into, live=live):
            pass

    def _enter_one(self, queue: deque[Sequence], into: deque[Sequence], *, live: bool) -> bool:
        limits = self.limits
        size = queue[0].prompt + queue[0].output
        if self.reserved + size > limits.kv or self.live_running + self.own_running >= limits.sequences:
            return False
        self.reserved += size
        self.own_reserved += 0 if live else size
        into.append(queue.popleft())
        return True

    def step(self, own_tokens: int, now: float, *, decode_own: bool = True) -> Iteration:
        """Run one iteration that begins at `now`. Own prompts get at most `own_tokens` of what live prompts leave.

        Without `decode_own` the batch requests that decode pause for this iteration and keep what they have.
        """
        it = self.last = Iteration()
        self._fill(it, own_tokens, decode_own=decode_own)
        prompt = it.live_prompt + it.own_prompt
        it.kv = self.kv if decode_own else self.kv - self.own_kv
        ended = len(it.first_live) + len(it.first_own)
        it.ms = self.costs.iteration_ms(it.decoding, it.kv, prompt, it.attention, ended)
        self.index += 1
        self.own_index += decode_own
        self.kv += it.decoding + prompt + ended
        self.own_kv += it.decoding - it.live_decoding + it.own_prompt + len(it.first_own)
        self._end(it, now + it.ms / 1000)
        return it

    def _fill(self, it: Iteration, own_tokens: int, *, decode_own: bool) -> None:
        """Decide what is in an iteration: what decodes, then live prompts, then batch prompts."""
        if self.waiting:
            self._enter(self.waiting, self.prefills, live=True)
        if self.own_waiting and own_tokens > 0 and not self.waiting:
            self._enter(self.own_waiting, self.own_prefills, live=False)
        it.live_decoding = self.live_decoding
        it.decoding = self.live_decoding + (self.own_decoding if decode_own else 0)
        room = max(0, self.limits.chunk - it.decoding)
        if self.prefills:
            it.live_prompt, it.attention = self._prefill(self.prefills, room, self.limits.chunk, it.first_live)
        if self.own_prefills and own_tokens > 0:
            left = min(own_tokens, room - it.live_prompt)
            it.own_prompt, more = self._prefill(self.own_prefills, left, self.limits.cap, it.first_own)
            it.attention += more

    def _prefill(self, queue: deque[Sequence], room: int, cap: int, first: list[Sequence]) -> tuple[int, float]:
        """(tokens, work) given to prompts in order."""
        used, work = 0, 0.0
        for s in queue:
            if used >= room:
                break
            take = min(s.prompt - s.past, cap, room - used)
            work += take * (s.past + take / 2)
            s.past += take
            used += take
            if s.past >= s.prompt:
                first.append(s)
        drop_read(queue, first)
        return used, work

    def _end(self, it: Iteration, at: float) -> None:
        while self.endings and self.endings[0][0] <= self.index:
            s = heappop(self.endings)[2]
            self._free(s, s.prompt + s.output)
            self.live_decoding -= 1
            it.ended_live.append(s)
        while self.own_endings and self.own_endings[0][0] <= self.own_index:
            s = heappop(self.own_endings)[2]
            self._free(s, s.prompt + s.output)
            self.own_decoding -= 1
            it.ended_own.append(s)
        for s in it.first_live:
            s.first_at = at
            if s.output > 1:
                heappush(self.endings, (self.index + s.output - 1, s.id, s))
                self.live_decoding += 1
            else:
                self._free(s, s.prompt + 1)
                it.ended_live.append(s)
        for s in it.first_own:
            s.first_at = at
            if s.output > 1:
                heappush(self.own_endings, (self.own_index + s.output - 1, s.id, s))
                self.own_decoding += 1
            else:
                self._free(s, s.prompt + 1)
                it.ended_own.append(s)


def drop_read(queue: deque[Sequence], done: list[Sequence]) -> None:
    """Take the prompts that are done out of those being read."""
    if done:
        kept = [s for s in queue if s.past < s.prompt]
        queue.clear()
        queue.extend(kept)
