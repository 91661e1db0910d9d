"""The bodies of the admin routes."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Final

from fastapi import Path
from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

from slackwater.tenancy.instances import Engine, Mode, NewInstance
from slackwater.tenancy.keys import CLIENT_SCOPES
from slackwater.tenancy.tenants import DEFAULT_PROJECT
from slackwater.wire.batch_request import Body, Clean

# A public id or a name in a path. A NUL cannot be asked of the database.
Reference = Annotated[str, Path(pattern=r"^[^\x00]{1,128}$")]
Word = Annotated[Clean, StringConstraints(min_length=1, max_length=256)]
UnixSeconds = Annotated[int, Field(ge=0, le=253_402_300_799)]
DEAREST: Final = Decimal(1_000_000)


def _decimal(value: object) -> Decimal:
    """From decimal text such as `"0.25"`: a JSON number would go through a binary fraction."""
    try:
        number = Decimal(value) if isinstance(value, str) and len(value) <= 24 else None
    except ArithmeticError:
        number = None
    if number is None or not number.is_finite() or not 0 <= number <= DEAREST:
        raise PydanticCustomError("invalid_price", "Dollars a million tokens are expected, as decimal text.")
    return number


def _uuid_like(name: str) -> str:
    if not name.startswith(("GPU-", "MIG-")):
        raise PydanticCustomError("invalid_gpu", "A GPU is named by its UUID.")
    return name


PerMillion = Annotated[Decimal, BeforeValidator(_decimal)]
Gpu = Annotated[Word, AfterValidator(_uuid_like)]


def instant(seconds: int | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


class CreateTenant(Body):
    name: Word
    weight: int = Field(1, ge=1, le=1_000_000)


class CreateProject(Body):
    name: Word


class CreateKey(Body):
    name: Word = "key"
    project: Word = DEFAULT_PROJECT
    scopes: list[Word] = Field(list(CLIENT_SCOPES), min_length=1, max_length=32)
    not_before: UnixSeconds | None = None
    expires_at: UnixSeconds | None = None


class EnsureModel(Body):
    name: Word
    is_open: bool | None = None


class ModelAccess(Body):
    model: Word
    tenant: Word
    allowed: bool = True


class SetPrice(Body):
    model: Word
    input: PerMillion
    output: PerMillion
    cached: PerMillion | None = None


class CreateInstance(Body):
    """`models` maps our model names to the names the server knows."""

    name: Word
    models: dict[Word, Word] = Field(min_length=1, max_length=256)
    engine: Engine = "openai_http"
    url: Annotated[Clean, StringConstraints(max_length=2048)] | None = None
    api_key: Annotated[Clean, StringConstraints(max_length=4096)] | None = None
    gpus: list[Gpu] = Field(default_factory=list, max_length=64)
    max_slots: int = Field(16, ge=1, le=4096)
    mode: Mode = "balanced"
    options: dict[str, Any] = Field(default_factory=dict, max_length=64)

    def new(self) -> NewInstance:
        return NewInstance(**{name: getattr(self, name) for name in type(self).model_fields})
