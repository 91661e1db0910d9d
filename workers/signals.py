"""The readings admission decides on, each with its age."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Final

from scheduler.admission import EngineReading, LiveReading, Readings
from scheduler.queue.status import Surroundings
from slackwater.errors import Unavailable
from slackwater.loop import Loop
from workers.engines.base import Engine, EngineLoad
from workers.gpus.sampler import GpuSampler
from workers.instance import Instance

EVERY_SECONDS: Final = 0.25


@dataclass
class Signals:
    """Samples the engine four times a second, on its own, so that a slow engine does not slow the decision.

    `sampled` is called after every try, so that a decision rests on what was read a moment ago.
    """

    engine: Engine
    instance: Instance
    sampled: Callable[[], None] = lambda: None
    _load: EngineLoad | None = None
    _loaded_at: float = 0.0

    def __post_init__(self) -> None:
        self.gpus = GpuSampler(self.instance.gpus) if self.instance.gpus else None

    async def sample(self, stopping: asyncio.Event) -> None:
        """Sample the engine, and the GPUs where the instance declares some, until `stopping` is set."""
        async with asyncio.TaskGroup() as sampling:
            sampling.create_task(Loop("sample", self._sample_engine, EVERY_SECONDS).run(stopping))
            if self.gpus is not None:
                sampling.create_task(self.gpus.run(stopping))

    async def _sample_engine(self) -> int:
        """An engine that does not answer, or answers nonsense, leaves its last figures to age."""
        begun = time.monotonic()
        try:
            self._load = await self.engine.load()
            self._loaded_at = begun
        except Unavailable:
            pass
        self.sampled()
        return 0

    def read(self, around: Surroundings, *, paused: bool, pressed: bool) -> Readings:
        """Everything known now."""
        engine = None
        if self._load is not None:
            age = time.monotonic() - self._loaded_at
            engine = EngineReading(age, *astuple(self._load))
        live = None
        if around.live_age_seconds is not None:
            live = LiveReading(
                around.live_age_seconds,
                around.live_running,
                around.live_waiting,
                around.ttft_p99_seconds,
                around.inter_token_p99_seconds,
            )
        return Readings(
            engine,
            live,
            gpus=self.gpus.readings() if self.gpus is not None else (),
            needs_live=around.gateways > 0,
            declared_gpus=self.instance.gpus,
            paused=paused,
            pressed=pressed,
        )
