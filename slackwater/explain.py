"""Why a batch waits, in one word and one sentence. Pure: rows in, words out, and the same words everywhere."""

from __future__ import annotations

from collections.abc import Sequence
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
