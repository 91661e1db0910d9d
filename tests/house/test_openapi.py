"""The OpenAPI document is the one that the code describes."""

from __future__ import annotations

import json
from pathlib import Path

from api import openapi

DOCUMENT = Path(__file__).parents[2] / "docs" / "openapi.json"


def test_the_document_is_current() -> None:
    assert DOCUMENT.read_text() == openapi.text(), "make openapi"


def test_every_operation_says_how_it_refuses() -> None:
    paths = json.loads(openapi.text())["paths"]
    described = dict(openapi.operations(paths))

    assert len(described) >= 30
    assert all({"4XX", "503"} <= set(operation["responses"]) for operation in described.values())
    assert not any("422" in operation["responses"] for operation in described.values())


def test_no_table_names_an_operation_that_is_gone() -> None:
    described = dict(openapi.operations(json.loads(openapi.text())["paths"]))

    assert set(described) >= {*openapi.JSON_BODIES, *openapi.FORMS, *openapi.PASSED_ON, *openapi.BODILESS}
