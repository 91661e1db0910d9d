"""The wheel's top-level names are generic ones: no other installed distribution may bring them too."""

from __future__ import annotations

from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = ("api", "workers", "scheduler", "slackwater", "migrations")


@pytest.mark.parametrize("name", OURS)
def test_no_other_distribution_brings_our_names(name: str) -> None:
    assert set(packages_distributions().get(name, ["slackwater"])) == {"slackwater"}


@pytest.mark.parametrize("name", OURS)
def test_our_names_mean_this_checkout(name: str) -> None:
    spec = find_spec(name)

    assert spec is not None
    assert Path(str(spec.origin)).parents[1] == ROOT
