"""Our own engine, in this process: an adapter from its answers to the worker's words."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.retry import Answered, Ending
from slackwater.errors import Misconfigured, Unavailable
from workers.engines.base import Call, EngineLoad
from workers.instance import Instance

if TYPE_CHECKING:
    from workers.engine import LocalEngine

SILENT_SECONDS = 5.0


@dataclass
class Local:
    """`workers.engine` behind the engines' interface. An engine thread that makes no step for 5 s does not answer."""

    engine: LocalEngine

    async def run(self, call: Call) -> Ending:
        answer = await self.engine.complete(call.endpoint, call.body)
        return Answered(answer.status, answer.body)

    async def load(self) -> EngineLoad:
        load = self.engine.load_now()
        if time.monotonic() - load.sampled_at > SILENT_SECONDS:
            raise Unavailable("the local engine does not step")
        return EngineLoad(load.running, load.waiting, load.kv_used_ratio)

    async def serves(self, model: str) -> bool:
        return model in self.engine.models

    async def close(self) -> None:
        await self.engine.close()


async def open_local(instance: Instance) -> Local:
    """Load the weights, off the event loop.

    Raises:
        Misconfigured: the engine extra is not installed.
    """
    try:
        from workers.engine import LocalEngine
    except ImportError as error:
        raise Misconfigured("the local engine needs the extra: pip install 'slackwater[engine]'") from error
    threads = instance.options.get("threads")
    return Local(await asyncio.to_thread(LocalEngine.load, threads=threads, max_batch=instance.max_slots))
