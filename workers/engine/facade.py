"""The engine as a worker sees it: bytes of a request in, an answer out."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Literal

from workers.engine.answer import Answer, Completion, Endpoint, RefusedError, failure, success
from workers.engine.batch import Batch, EngineClosedError
from workers.engine.request import Request, read_request
from workers.engine.row import Row
from workers.engine.sample import Load

if TYPE_CHECKING:
    from workers.engine.assembly import Parts

MODEL: Final = "smollm2-135m-instruct"
CONTEXT: Final = 8192
"""What the model was trained for, in tokens of prompt and answer together."""


class LocalEngine:
    """SmolLM2-135M-Instruct on this machine's CPU. Use it from one event loop."""

    models: tuple[str, ...] = (MODEL,)

    def __init__(self, parts: "Parts", *, max_batch: int, context: int) -> None:
        self._parts = parts
        self._max_batch = max_batch
        self._context = context
        self._batch = Batch(parts.decoder(), max_batch=max_batch)
        self._intake = ThreadPoolExecutor(max_workers=1, thread_name_prefix="slackwater-intake")
        self._arriving = 0
        self._closed = False

    @classmethod
    def load(
        cls,
        *,
        threads: int | None = None,
        dtype: Literal["bf16", "fp32"] = "bf16",
        max_batch: int = 8,
        context: int = CONTEXT,
    ) -> "LocalEngine":
        """Reads the bundled weights: seconds of work, so call it off the event loop.

        `threads` are torch's, for the whole process; None leaves them as they are. Raises ValueError for
        limits that the model cannot keep, and FileNotFoundError or ImportError without the engine extra.
        """
        if not 1 <= context <= CONTEXT or max_batch < 1:
            raise ValueError(f"context must be 1 to {CONTEXT} and max_batch at least 1")
        from workers.engine.assembly import assemble

        return cls(assemble(threads=threads, dtype=dtype), max_batch=max_batch, context=context)

    async def complete(self, endpoint: str, body: bytes) -> Answer:
        """Answers one request; refusals are answers too, and nothing is clamped.

        Status 400 or 404 blames the request, 500 this engine, 503 says that it is closed. Cancelling the
        caller drops the request before the next step.
        """
        try:
            request, row = await self._arrive(endpoint, body)
            self._batch.submit(row)
            completion = await self._outcome(row)
        except RefusedError as refusal:
            return refusal.answer()
        except EngineClosedError:
            return failure(503, "The engine is closed.", kind="server_error", param=None, code="engine_closed")
        except Exception as error:
            message = f"The engine failed on this request: {type(error).__name__}."
            return failure(500, message, kind="server_error", param=None, code="engine_failed")
        return success(request.endpoint, completion, model=request.model, fingerprint=self._parts.fingerprint)

    def load_now(self) -> Load:
        """What the engine holds at this moment. A request still being read in counts as waiting."""
        running, waiting, tokens = self._batch.counts()
        return Load(
            running=running,
            waiting=waiting + self._arriving,
            kv_used_ratio=tokens / (self._max_batch * self._context),
            sampled_at=time.monotonic(),
        )

    async def close(self) -> None:
        """Ends every request with 503 and the engine's threads. Safe to call again."""
        self._closed = True
        await asyncio.to_thread(self._batch.close)
        await asyncio.to_thread(self._intake.shutdown)

    async def _arrive(self, endpoint: str, body: bytes) -> tuple[Request, Row]:
        if self._closed:
            raise EngineClosedError
        self._arriving += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._intake, self._read, endpoint, body)
        finally:
            self._arriving -= 1

    async def _outcome(self, row: Row) -> Completion:
        return await asyncio.wrap_future(row.future)

    def _read(self, endpoint: str, body: bytes) -> tuple[Request, Row]:
        request = read_request(endpoint, body, models=self.models)
        prompt = self._parts.tokens.encode(request.prompt)
        param = "messages" if request.endpoint is Endpoint.CHAT else "prompt"
        limit = room(len(prompt), request.max_tokens, self._context, param=param)
        return request, self._parts.row(request, prompt, limit)


def room(prompt: int, wanted: int | None, context: int, *, param: str) -> int:
    """How many tokens an answer may have. Raises `RefusedError` where the context has no room."""
    if prompt + (wanted or 1) <= context:
        return wanted or context - prompt
    parts = f"{prompt} in the prompt" + (f" and {wanted} in the completion" if wanted else "")
    message = f"The context is {context} tokens, but the request takes {prompt + (wanted or 1)} ({parts})."
    raise RefusedError(message, param=param, code="context_length_exceeded")
