"""The real weights, loaded once in fp32 on one thread: there, choices do not depend on the batch."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from workers.engine import LocalEngine

if TYPE_CHECKING:
    from workers.engine.assembly import Parts


@pytest.fixture(scope="session")
def parts() -> "Parts":
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from workers.engine.assembly import assemble

    return assemble(threads=1, dtype="fp32")


@pytest.fixture(scope="session")
def engine(parts: "Parts") -> Iterator[LocalEngine]:
    engine = LocalEngine(parts, max_batch=4, context=1024)
    yield engine
    asyncio.run(engine.close())
