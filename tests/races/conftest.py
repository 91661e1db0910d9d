"""A scenario per test on its own database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scenario import MODEL, Scenario


@pytest.fixture
def scenario(dsn: str) -> Iterator[Scenario]:
    """A tenant, a priced model and an instance that serves it."""
    scenario = Scenario.on(dsn)
    scenario.instance()
    scenario.connection.execute(
        "INSERT INTO price (model_id, input_picodollars, cached_picodollars, output_picodollars, valid_from) VALUES (%s, 7, 3, 11, '2025-01-01')",
        (scenario.models[MODEL],),
    )
    yield scenario
    scenario.close()
