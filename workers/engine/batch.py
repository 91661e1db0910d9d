"""The loop that reads prompts and decodes running rows, in a thread of its own.

One step reads one chunk of one prompt and then makes one token for every running row, so that a long prompt,
a long answer or a cancelled request holds its neighbours up for one chunk at most. Requests join and leave
between steps.
"""

import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import structlog

from workers.engine.answer import Completion
from workers.engine.row import Row

if TYPE_CHECKING:
    import torch

    from workers.engine.decoder import Decoder, Prompt

CHUNK: Final = 256
"""Prompt tokens read per step."""

log = structlog.get_logger(__name__)


class EngineClosedError(Exception):
    """The engine was closed before the request was done."""


class Batch:
    """Waiting rows in order of arrival, at most one whose prompt is being read, and the running ones.

    Only the loop's thread changes the last two and the decoder; others read them under the lock.
    """

    def __init__(self, decoder: "Decoder", *, max_batch: int) -> None:
        self._decoder = decoder
        self._max_batch = max_batch
        self._changed = threading.Condition()
        self._waiting: deque[Row] = deque()
        self._reading: tuple[Row, Prompt] | None = None
        self._running: list[Row] = []
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="slackwater-engine", daemon=True)
        self._thread.start()

    def submit(self, row: Row) -> None:
        """Raises `EngineClosedError` once closing."""
        with self._changed:
            if self._closing:
                raise EngineClosedError
            self._waiting.append(row)
            self._changed.notify()

    def counts(self) -> tuple[int, int, int]:
        """Rows held, rows waiting (cancelled ones not counted), tokens held."""
        with self._changed:
            held = self._held()
            waiting = sum(not row.future.cancelled() for row in self._waiting)
            return len(held), waiting, sum(row.held for row in held)

    def close(self) -> None:
        """Ends what runs and waits with `EngineClosedError`, and waits for the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while self._has_work():
            try:
                self._drop_cancelled()
                self._read_chunk()
                self._decode()
            except Exception as error:
                self._fail_running(error)
        self._end()

    def _has_work(self) -> bool:
        """Waits until there is something to do; False once closing."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._waiting or self._reading or self._running)
            return not self._closing

    def _drop_cancelled(self) -> None:
        if self._reading and self._reading[0].future.cancelled():
            self._stop_reading()
        self._keep([index for index, row in enumerate(self._running) if not row.future.cancelled()])

    def _read_chunk(self) -> None:
        self._begin_reading()
        if self._reading is None:
            return
        row, prompt = self._reading
        try:
            logits = self._decoder.read(prompt, row.prompt[prompt.length : prompt.length + CHUNK])
            if prompt.length < len(row.prompt):
                return
            completion = row.take(logits)
            if completion is None:
                self._decoder.join(prompt)
        except Exception as error:
            log.error("prompt.failed", error=repr(error))
            self._stop_reading()
            row.resolve(error)
            return
        self._stop_reading(joins=completion is None)
        if completion:
            row.resolve(completion)

    def _begin_reading(self) -> None:
        with self._changed:
            while self._waiting and self._reading is None and len(self._running) < self._max_batch:
                row = self._waiting.popleft()
                if not row.future.cancelled():
                    self._reading = (row, self._decoder.begin())

    def _stop_reading(self, *, joins: bool = False) -> None:
        with self._changed:
            if joins and self._reading:
                self._running.append(self._reading[0])
            self._reading = None

    def _decode(self) -> None:
        """Answers each row as soon as it is done; a row that fails by itself leaves alone."""
        if not self._running:
            return
        logits = self._decoder.step([row.last for row in self._running])
        outcomes = [_taken(*pair) for pair in zip(self._running, logits, strict=True)]
        finished = [(row, done) for row, done in zip(self._running, outcomes, strict=True) if done]
        self._keep([index for index, done in enumerate(outcomes) if done is None])
        for row, outcome in finished:
            row.resolve(outcome)

    def _keep(self, indices: Sequence[int]) -> None:
        if len(indices) == len(self._running):
            return
        self._decoder.keep(indices)
        with self._changed:
            self._running = [self._running[index] for index in indices]

    def _fail_running(self, error: Exception) -> None:
        log.error("step.failed", requests=len(self._running), error=repr(error))
        with self._changed:
            rows, self._running = self._running, []
        self._decoder.clear()
        for row in rows:
            row.resolve(error)

    def _end(self) -> None:
        with self._changed:
            rows = [*self._held(), *self._waiting]
            self._running, self._reading = [], None
            self._waiting.clear()
        self._decoder.clear()
        for row in rows:
            row.resolve(EngineClosedError())

    def _held(self) -> list[Row]:
        return [*self._running, *([self._reading[0]] if self._reading else [])]


def _taken(row: Row, logits: "torch.Tensor") -> Completion | Exception | None:
    try:
        return row.take(logits)
    except Exception as error:
        log.warning("request.failed", error=repr(error))
        return error
