"""The page of settings is what the code says, and every setting says what it is for."""

from __future__ import annotations

from pathlib import Path

from slackwater.cli.settings import page
from slackwater.settings import Settings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "slackwater settings > docs/settings.md"


def test_every_setting_says_what_it_is_for() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []
