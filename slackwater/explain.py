"""Why a batch waits, in one word and one sentence. Pure: rows in, words out, and the same words everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from slackwater.lifecycle import BatchState


class Reason(StrEnum):
    """Why work waits: the metric label, the console text and the API's `waiting_reason.code`."""

    VALIDATING = "validating"
    NO_WORKER = "no_worker"
    NO_SIGNAL = "no_signal"
    LIVE_WAITING = "live_waiting"
    LIVE_RUNNING = "live_running"
    FOREIGN_LOAD = "foreign_load"
    INSTANCE_BUSY = "instance_busy"
    INSTANCE_DOWN = "instance_down"
    MODEL_PAUSED = "model_paused"
    FULL = "full"
    IN_LINE = "in_line"
    RETRY_DELAYED = "retry_delayed"
    STOPPING = "stopping"


SENTENCES: dict[Reason, str] = {
    Reason.VALIDATING: "the input file is being checked",
    Reason.NO_WORKER: "no worker serves its models right now",
    Reason.NO_SIGNAL: "a required signal is missing or stale, so nothing is assumed idle",
    Reason.LIVE_WAITING: "live requests are waiting",
    Reason.LIVE_RUNNING: "live requests are running and this instance gives batch work only idle time",
    Reason.FOREIGN_LOAD: "something that is not ours is using the GPU",
    Reason.INSTANCE_BUSY: "the instance asked to be left alone for a while",
    Reason.INSTANCE_DOWN: "the instance does not answer",
    Reason.MODEL_PAUSED: "the instance is paused for this model",
    Reason.FULL: "every slot for batch work is in use",
    Reason.IN_LINE: "other batches are ahead in line",
    Reason.RETRY_DELAYED: "its requests wait for their next attempt",
    Reason.STOPPING: "the worker is stopping",
}
DECISION_MAX_AGE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Decision:
    """The newest decision of one worker for a model of the batch. `age_seconds` is by the database's clock."""

    instance: str
    admitted: bool
    reason: str | None
    age_seconds: float
    details: str | None = None


def waiting(
    state: BatchState, *, ready: int, delayed: int, running: int, decisions: Sequence[Decision]
) -> dict[str, Any] | None:
    """What keeps a batch from running; None when something of it runs, or it has nothing left to run.

    `ready`, `delayed` and `running` are segments and leases of the batch. A decision older than 5 s says nothing.
    """
    if state is BatchState.VALIDATING:
        return _say(Reason.VALIDATING)
    if state is not BatchState.IN_PROGRESS or running or not (ready or delayed):
        return None
    fresh = [d for d in decisions if d.age_seconds <= DECISION_MAX_AGE_SECONDS]
    if not fresh:
        return _say(Reason.NO_WORKER)
    if not ready:
        return _say(Reason.RETRY_DELAYED)
    holds = [d for d in fresh if not d.admitted]
    if holds and len(holds) == len(fresh):
        return _say(Reason(holds[0].reason or Reason.NO_SIGNAL), holds[0])
    return _say(Reason.IN_LINE)


def _say(reason: Reason, decision: Decision | None = None) -> dict[str, Any]:
    message = SENTENCES[reason]
    if decision is not None:
        message = f"{decision.instance}: {decision.details or message}"
    return {"code": reason.value, "message": message}


PRESSED_RATIO = 0.2


@dataclass(frozen=True, slots=True)
class Standing:
    """An unfinished batch among those of its tenant. `remaining` are requests without a result; times are seconds."""

    batch_id: int
    models: frozenset[int]
    priority: int
    seconds_left: float
    window_seconds: float
    remaining: int

    @property
    def turn(self) -> tuple[bool, float, int, int]:
        """What `scheduler.fairness` ranks by inside a tenant, less what an instance has just run."""
        is_pressed = self.seconds_left < PRESSED_RATIO * self.window_seconds
        return (not is_pressed, self.seconds_left if is_pressed else 0.0, -self.priority, self.batch_id)


def ahead(mine: Standing, line: Sequence[Standing]) -> list[Standing]:
    """The batches that come before `mine` on one of its models. Other tenants have their own share and are not counted."""
    return [s for s in line if s.remaining and s.models & mine.models and s.turn < mine.turn]


def seconds_to_completion(mine: Standing, line: Sequence[Standing], rates: Mapping[int, float]) -> float | None:
    """How long until `mine` is done, if its models go on as they did; None where that is not known.

    `rates` are requests of this tenant that ended per second and model. What is ahead is done first.
    """
    rate = sum(rates.get(model, 0.0) for model in mine.models)
    if rate <= 0:
        return None
    return (mine.remaining + sum(s.remaining for s in ahead(mine, line))) / rate
