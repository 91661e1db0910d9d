"""Running requests: one task each, from the claim to a result or back to the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final
from uuid import UUID

import structlog

from scheduler.queue.status import Failed, Served, Status
from scheduler.queue.work import Finished, Request, Returned
from scheduler.retry import Again, Answered, Ended, Ending, Unanswered, Why, judge
from slackwater import ids
from slackwater.lifecycle import Outcome
from slackwater.pricing import cost
from slackwater.reader.output_line import answer_line, error_line, read_answer
from slackwater.reader.usage import UNKNOWN
from slackwater.wire.lines import line_id
from workers.engines.base import Call, Engine
from workers.held import Held, joined
from workers.outgoing import Outgoing
from workers.prepare import prepare

log = structlog.get_logger()
PAUSE_SECONDS: Final = 30.0
LESSONS: Final = 50
DROPPED: Final = Unanswered(Why.DROPPED)


@dataclass
class Runs:
    """The requests in flight. `ended` is called whenever one is over, however it ended.

    `prompt_ratio` is how many tokens a prompt has for each that was estimated, as the engine's answers of late tell.
    """

    engine: Engine
    held: Held
    outgoing: Outgoing
    status: Status
    max_attempts: int
    ended: Callable[[], None]
    models: dict[int, Served] = field(default_factory=dict)
    tasks: dict[asyncio.Task[None], Request] = field(default_factory=dict)
    failed: list[Failed] = field(default_factory=list)
    done: int = 0
    random: Random = field(default_factory=Random)
    busy_until: float = 0.0
    prompt_ratio: float = 1.0
    _lessons: int = 0

    @property
    def in_flight(self) -> int:
        return len(self.tasks)

    def start(self, request: Request) -> asyncio.Task[None]:
        task = asyncio.create_task(self._run(request))
        self.tasks[task] = request
        task.add_done_callback(self._over)
        return task

    def prompt_tokens(self, request: Request) -> int:
        """The best that is known before the engine has read it."""
        return max(1, round(request.est_tokens * self.prompt_ratio))

    def abort(self, token: UUID) -> None:
        """Stop everything under a lease that is lost or not wanted any more."""
        for task, request in self.tasks.items():
            if request.token == token:
                task.cancel()

    def cancel_newest(self, most: int) -> None:
        """Stop the requests that started last: they have cost the least. They go back and start over, burning nothing."""
        for task in list(self.tasks)[::-1][:most]:
            task.cancel()

    def hand_back(
        self, request: Request, *, delay_seconds: float = 0.0, burns: bool = False, defers: bool = False
    ) -> None:
        """A request goes back unfinished."""
        attempts, deferrals = request.attempts + burns, min(request.deferrals + defers, 30_000)
        self._end(request, Returned(request.token, request.position, 1, delay_seconds, attempts, deferrals))

    def _over(self, task: asyncio.Task[None]) -> None:
        request = self.tasks.pop(task)
        if task.cancelled():
            self._note(request, "aborted", None, wasted=True)
            self.hand_back(request)
        elif task.exception() is not None:
            log.error("request.lost", exc_info=task.exception())
            self._lost(request)
        self.ended()

    def _lost(self, request: Request) -> None:
        """A fault of ours: tried again as a broken answer is, and the line's error in the end, so that none runs for ever."""
        if request.attempts + 1 < self.max_attempts:
            self.hand_back(request, delay_seconds=1.0, burns=True)
        else:
            message = f"This request could not be run, {self.max_attempts} times."
            self._finish(request, "", Ended(False, None, "server_error", message))

    async def _run(self, request: Request) -> None:
        served = self.models[request.model_id]
        call = Call(
            ids.new("req_"),
            request.endpoint,
            served.upstream_name,
            prepare(request.body, name=served.name, upstream_name=served.upstream_name),
        )
        ending = await self.engine.run(call)
        if ending == DROPPED and not await self.engine.serves(served.upstream_name):
            self._leave_to_rescue(request)
            return
        verdict = self._judge(request, ending)
        if isinstance(verdict, Again) and verdict.blames and isinstance(ending, Answered):
            verdict = await self._probe(served, ending, verdict)
        if isinstance(verdict, Ended):
            self._finish(request, call.id, verdict)
        else:
            self._again(request, verdict)

    def _judge(self, request: Request, ending: Ending) -> Ended | Again:
        return judge(
            ending,
            attempts=request.attempts,
            deferrals=request.deferrals,
            max_attempts=self.max_attempts,
            random=self.random,
        )

    async def _probe(self, served: Served, answer: Answered, verdict: Again) -> Ended | Again:
        """401 or 404: when the instance passes a probe the line is at fault; else it is paused for this model, burning nothing."""
        if await self.engine.serves(served.upstream_name):
            return Ended(False, answer)
        log.warning("instance.paused", model=served.name, why=verdict.why.value, seconds=PAUSE_SECONDS)
        await self.status.pause(served.id, PAUSE_SECONDS, verdict.why.value)
        return verdict

    def _finish(self, request: Request, run_id: str, ended: Ended) -> None:
        where = line_id(request.batch_id, request.line)
        outcome = Outcome.SUCCEEDED if ended.succeeded else Outcome.FAILED
        if ended.answer is None:
            line = error_line(where, request.custom_id, ended.code or "server_error", ended.message or "")
            finished = Finished(request, outcome, None, UNKNOWN, 0, line)
        else:
            answer = read_answer(ended.answer.status, ended.answer.body)
            line = answer_line(where, request.custom_id, ended.answer.request_id or run_id, answer)
            self._compare(request, answer.usage.prompt_tokens)
            charge = cost(answer.usage, request.price)
            finished = Finished(request, outcome, answer.status, answer.usage, charge, line)
        self.done += 1
        self.outgoing.finish(finished)
        self._end(request, None)

    def _compare(self, request: Request, prompt_tokens: int | None) -> None:
        if prompt_tokens and request.est_tokens > 0:
            self._lessons = min(LESSONS, self._lessons + 1)
            self.prompt_ratio += (prompt_tokens / request.est_tokens - self.prompt_ratio) / self._lessons

    def _again(self, request: Request, again: Again) -> None:
        self._note(request, again.why.value, again.status, wasted=again.burns)
        if not again.burns:
            self.busy_until = max(self.busy_until, asyncio.get_running_loop().time() + min(again.delay_seconds, 5.0))
        self.hand_back(request, delay_seconds=again.delay_seconds, burns=again.burns, defers=not again.burns)

    def _leave_to_rescue(self, request: Request) -> None:
        """The engine died with it. Its lease runs out as if we had died too, so that one rule finds out who kills engines."""
        self._note(request, Why.ENGINE_DIED.value, None, wasted=True)
        self.held.lose(request.token)

    def _note(self, request: Request, why: str, http: int | None, *, wasted: bool) -> None:
        tokens = request.est_tokens if wasted else 0
        self.failed.append(Failed(request.tenant_id, request.batch_id, request.line, why, http, tokens))

    def _end(self, request: Request, returned: Returned | None) -> None:
        holding = self.held.end(request, returned)
        if holding is not None:
            self.outgoing.close(request.token, list(joined(holding.returned)))
