"""Reads a request body strictly into what the engine will do. Pure: no model, no tokenizer, no I/O."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from workers.engine.answer import Endpoint, RefusedError
from workers.engine.members import check_members
from workers.engine.messages import Message, read_messages, wrong_type

TEXT_MAX_TOKENS: Final = 16
"""OpenAI's documented limit of /v1/completions when the client names none."""
MAX_STOPS: Final = 4


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. Temperature 0 takes the likeliest; without a seed each run differs."""

    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0


@dataclass(frozen=True)
class Request:
    """One request as read. `prompt` is messages, text, or token ids; without `max_tokens`, what fits."""

    endpoint: Endpoint
    model: str
    prompt: tuple[Message, ...] | str | tuple[int, ...]
    max_tokens: int | None
    stops: tuple[str, ...]
    sampling: Sampling
    schema: Mapping[str, Any] | None


def read_request(endpoint: str, body: bytes, *, models: Sequence[str]) -> Request:
    """Raises `RefusedError` (400; 404 for an unknown endpoint or model) naming the fault; clamps nothing."""
    if endpoint not in tuple(Endpoint):
        raise RefusedError(f"No such endpoint here: {endpoint}", param=None, code="unknown_endpoint", status=404)
    route = Endpoint(endpoint)
    members = _object(body)
    model = _model(members, models)
    check_members(route, members)
    return Request(
        endpoint=route,
        model=model,
        prompt=read_messages(members.get("messages")) if route is Endpoint.CHAT else _prompt(members.get("prompt")),
        max_tokens=_max_tokens(members, None if route is Endpoint.CHAT else TEXT_MAX_TOKENS),
        stops=_stops(members.get("stop")),
        sampling=_sampling(members),
        schema=_schema(members.get("response_format")),
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        members = json.loads(body.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
        json.dumps(members, ensure_ascii=False).encode("utf-8")
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise RefusedError(
            f"The body is not valid Unicode: {error.reason}.", param=None, code="invalid_unicode"
        ) from error
    except RecursionError as error:
        raise RefusedError("The body is nested too deeply.", param=None, code="too_deep") from error
    except ValueError as error:
        raise RefusedError(f"The body is not valid JSON: {error}.", param=None, code="invalid_json") from error
    if not isinstance(members, dict):
        raise RefusedError("The body must be a JSON object.", param=None, code="invalid_type")
    return members


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object names a member twice")
    return members


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _model(members: Mapping[str, Any], models: Sequence[str]) -> str:
    model = members.get("model")
    if model is None:
        raise RefusedError("'model' is required.", param="model", code="missing_required_parameter")
    if not isinstance(model, str):
        raise wrong_type("model", "a string")
    if model not in models:
        raise RefusedError(f"The model '{model}' does not exist.", param="model", code="model_not_found", status=404)
    return model


def _prompt(value: object) -> str | tuple[int, ...]:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        value = value[0]
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list) and value and all(type(item) is int for item in value):
        return tuple(value)
    raise wrong_type("prompt", "one non-empty string or one non-empty array of token ids")


def _max_tokens(members: Mapping[str, Any], default: int | None) -> int | None:
    names = [name for name in ("max_tokens", "max_completion_tokens") if members.get(name) is not None]
    limits = {_positive(members[name], name) for name in names}
    if len(limits) > 1:
        message = "'max_tokens' and 'max_completion_tokens' differ: name one, or make them equal."
        raise RefusedError(message, param="max_completion_tokens", code="invalid_value")
    return limits.pop() if limits else default


def _positive(value: object, name: str) -> int:
    if type(value) is not int:
        raise wrong_type(name, "an integer")
    if value < 1:
        raise RefusedError(f"'{name}' must be at least 1, not {value}.", param=name, code="invalid_value")
    return value


def _stops(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise wrong_type("stop", "a string or an array of strings")
    if len(stops) > MAX_STOPS or "" in stops:
        raise RefusedError(f"'stop' takes up to {MAX_STOPS} non-empty strings.", param="stop", code="invalid_value")
    return tuple(stops)


def _sampling(members: Mapping[str, Any]) -> Sampling:
    seed = members.get("seed")
    if seed is not None and type(seed) is not int:
        raise wrong_type("seed", "an integer")
    return Sampling(
        temperature=_number(members, "temperature", default=1.0, low=0.0, high=2.0),
        top_p=_number(members, "top_p", default=1.0, low=0.0, high=1.0),
        seed=seed,
        frequency_penalty=_number(members, "frequency_penalty", default=0.0, low=-2.0, high=2.0),
        presence_penalty=_number(members, "presence_penalty", default=0.0, low=-2.0, high=2.0),
    )


def _number(members: Mapping[str, Any], name: str, *, default: float, low: float, high: float) -> float:
    value = members.get(name)
    if value is None:
        return default
    if type(value) not in (int, float):
        raise wrong_type(name, "a number")
    if not low <= value <= high:
        raise RefusedError(f"'{name}' must be between {low:g} and {high:g}.", param=name, code="invalid_value")
    return float(value)


def _schema(value: object) -> Mapping[str, Any] | None:
    """The JSON schema to hold the answer to; strict or not, it is held."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise wrong_type("response_format", "an object")
    match value.get("type"):
        case "text":
            return None
        case "json_object":
            return {"type": "object"}
        case "json_schema":
            return _named_schema(value.get("json_schema"))
    message = "'response_format.type' must be one of: text, json_object, json_schema."
    raise RefusedError(message, param="response_format.type", code="invalid_value")


def _named_schema(value: object) -> Mapping[str, Any]:
    at = "response_format.json_schema"
    if not isinstance(value, dict):
        raise wrong_type(at, "an object")
    schema = value.get("schema")
    if not isinstance(schema, dict):
        raise wrong_type(f"{at}.schema", "an object")
    return schema
