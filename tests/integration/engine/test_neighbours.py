"""What one request does never harms another: long, cancelled, broken, closed."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import pytest

from tests.integration.engine.asking import CAPITAL, CHAT, ask, chat, refused, text_of
from tests.waiting import until_async
from workers.engine import LocalEngine

pytest.importorskip("torch")

from workers.engine.batch import Batch
from workers.engine.decoder import Decoder, Prompt
from workers.engine.request import Sampling
from workers.engine.row import Row
from workers.engine.sampler import Sampler

if TYPE_CHECKING:
    import torch

    from workers.engine.assembly import Parts

pytestmark = pytest.mark.engine

STORY = "Write a very long story about a dragon and a lighthouse."
ENDLESS = {"frequency_penalty": 0, "max_tokens": 4000}


@pytest.fixture
async def one_slot(parts: "Parts") -> AsyncIterator[LocalEngine]:
    """Room for one request at a time, which may then be long."""
    engine = LocalEngine(parts, max_batch=1, context=8192)
    yield engine
    await engine.close()


async def test_a_short_answer_is_not_held_back_by_a_long_one(engine: LocalEngine) -> None:
    long = asyncio.create_task(engine.complete(CHAT, chat(STORY, max_tokens=900)))
    await until_async(lambda: engine.load_now().running == 1)
    await ask(engine, "hi", max_tokens=2)

    assert not long.done()
    long.cancel()
    await until_async(lambda: engine.load_now().running == 0)


async def test_cancelling_frees_the_slot_for_who_waits(one_slot: LocalEngine) -> None:
    endless = asyncio.create_task(one_slot.complete(CHAT, chat(STORY, **ENDLESS)))
    await until_async(lambda: one_slot.load_now().running == 1)
    waiting = asyncio.create_task(ask(one_slot, CAPITAL))
    await until_async(lambda: one_slot.load_now().waiting == 1)
    endless.cancel()

    assert text_of(await waiting) == "The capital of France is Paris."
    with pytest.raises(asyncio.CancelledError):
        await endless
    assert (one_slot.load_now().running, one_slot.load_now().kv_used_ratio) == (0, 0.0)


async def test_cancelling_while_waiting_takes_it_out_of_the_line(one_slot: LocalEngine) -> None:
    endless = asyncio.create_task(one_slot.complete(CHAT, chat(STORY, **ENDLESS)))
    await until_async(lambda: one_slot.load_now().running == 1)
    waiting = asyncio.create_task(one_slot.complete(CHAT, chat("hi")))
    await until_async(lambda: one_slot.load_now().waiting == 1)
    waiting.cancel()
    await until_async(lambda: one_slot.load_now().waiting == 0)

    assert one_slot.load_now().running == 1
    endless.cancel()
    await until_async(lambda: one_slot.load_now().running == 0)


async def test_cancelling_ends_the_reading_of_a_long_prompt(one_slot: LocalEngine) -> None:
    long = asyncio.create_task(one_slot.complete(CHAT, chat("word " * 6000, max_tokens=1)))
    await until_async(lambda: one_slot.load_now().running == 1)
    assert 0 < one_slot.load_now().kv_used_ratio < 1
    long.cancel()

    assert text_of(await ask(one_slot, CAPITAL, max_tokens=2)) == "The capital"


async def test_closing_answers_what_is_under_way_and_what_comes_later(parts: "Parts") -> None:
    engine = LocalEngine(parts, max_batch=1, context=8192)
    running = asyncio.create_task(engine.complete(CHAT, chat(STORY, **ENDLESS)))
    waiting = asyncio.create_task(engine.complete(CHAT, chat("hi")))
    await until_async(lambda: engine.load_now().running == 1 and engine.load_now().waiting == 1)
    await engine.close()

    for answer in (await running, await waiting, await engine.complete(CHAT, chat("hi"))):
        assert refused(answer, 503)["code"] == "engine_closed"
    assert (engine.load_now().running, engine.load_now().waiting) == (0, 0)
    await engine.close()


class FailingOnce(Decoder):
    """The real decoder, with one step that fails as an exhausted machine would."""

    has_failed = False

    def step(self, tokens: Sequence[int]) -> "torch.Tensor":
        if len(tokens) == 2 and not self.has_failed:
            self.has_failed = True
            raise MemoryError("no room for this step")
        return super().step(tokens)


class Unreadable(Decoder):
    """The real decoder, for which prompts of one length cannot be read."""

    def read(self, prompt: Prompt, tokens: Sequence[int]) -> "torch.Tensor":
        if len(tokens) == 3:
            raise RuntimeError("this prompt")
        return super().read(prompt, tokens)


def a_row(parts: "Parts", prompt: Sequence[int], *, limit: int = 6) -> Row:
    sampler = Sampler(Sampling(temperature=0))
    return Row(prompt, limit=limit, sampler=sampler, grammar=None, stops=(), tokens=parts.tokens)


def test_a_failing_step_fails_its_rows_and_the_engine_lives_on(parts: "Parts") -> None:
    batch = Batch(FailingOnce(parts.model), max_batch=2)
    rows = [a_row(parts, parts.tokens.encode("Once upon a time"), limit=40) for _ in range(3)]
    for row in rows:
        batch.submit(row)

    assert [type(row.future.exception(60)) for row in rows[:2]] == [MemoryError, MemoryError]
    assert rows[2].future.result(60).completion_tokens == 40
    batch.close()


def test_a_prompt_that_cannot_be_read_fails_alone(parts: "Parts") -> None:
    batch = Batch(Unreadable(parts.model), max_batch=2)
    before, broken, after = (a_row(parts, [81, 256, 33, 34][:size]) for size in (4, 3, 2))
    for row in (before, broken, after):
        batch.submit(row)

    assert isinstance(broken.future.exception(60), RuntimeError)
    assert before.future.result(60).prompt_tokens == 4
    assert after.future.result(60).prompt_tokens == 2
    batch.close()
