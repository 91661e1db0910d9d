"""What `slackwater up` tells to type next is right where its data is kept elsewhere than usual."""

from __future__ import annotations

from pathlib import Path

import pytest

from slackwater.cli.place import Place
from slackwater.cli.up.command import _welcome
from slackwater.settings import settings


def said(place: Place) -> str:
    return _welcome(place, "http://127.0.0.1:1", "sk-key", ["tiny-chat"])


def test_a_place_of_its_own_is_named() -> None:
    assert "`SLACKWATER_DATA_DIR='/some where' slackwater keys create`" in said(Place(Path("/some where")))


def test_the_usual_place_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLACKWATER_DATA_DIR", raising=False)
    settings.cache_clear()

    assert "`slackwater keys create`" in said(Place.of(settings()))
    settings.cache_clear()
