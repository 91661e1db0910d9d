"""What pydantic found wrong, in the words and codes of the OpenAI API (contract: WIRE 1.7). Values are never repeated."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from slackwater.errors import InvalidRequest

ENDPOINT_LIKE: Final = re.compile(r"/v[0-9](/[a-z_]{1,24}){1,3}", re.ASCII)
WANTED: Final = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "a boolean",
    "dict_type": "an object",
    "list_type": "an array",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
NAMES: Final = {
    "NoneType": "null",
    "bool": "a boolean",
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "list": "an array",
    "dict": "an object",
}
PATH_PART: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


def invalid_request(errors: Sequence[Mapping[str, Any]], *, skip: int = 0) -> InvalidRequest:
    """The refusal for the first of pydantic's errors; `skip` leaves out leading places such as `query`."""
    first = errors[0]
    param = path_of(first["loc"][skip:])
    code, message = _words(first, param)
    return InvalidRequest(message, code=code, param=param or None)


def path_of(places: Sequence[int | str]) -> str:
    """`metadata.tags` for the place of an error. A key that is no plain word is left out: it is the client's input."""
    return ".".join(str(p) for p in places if PATH_PART.fullmatch(str(p)))


def _words(error: Mapping[str, Any], param: str) -> tuple[str, str]:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "missing":
        return "missing_required_parameter", f"Missing required parameter: '{param}'."
    if kind == "extra_forbidden":
        return "unknown_parameter", f"Unknown parameter: '{param}'."
    if kind in WANTED:
        got = NAMES.get(type(error.get("input")).__name__, "something else")
        return "invalid_type", f"Invalid type for '{param}': expected {WANTED[kind]}, but got {got} instead."
    if kind == "literal_error":
        return "invalid_value", f"Invalid value{_shown(error.get('input'))}. Supported values are: {_listed(context)}."
    if kind == "invalid_window":
        return "invalid_value", f"Invalid value for '{param}'. {error['msg']}"
    return "invalid_value", f"Invalid value for '{param}': {_rule(kind, context)}."


def _shown(value: object) -> str:
    """An endpoint is repeated, as OpenAI does, when it can be nothing but a path of an API."""
    return f": '{value}'" if isinstance(value, str) and ENDPOINT_LIKE.fullmatch(value) else ""


def _listed(context: Mapping[str, Any]) -> str:
    return str(context.get("expected", "")).replace(" or ", ", ")


def _rule(kind: str, context: Mapping[str, Any]) -> str:
    match kind:
        case "greater_than_equal":
            return f"at least {context['ge']} is expected"
        case "less_than_equal":
            return f"at most {context['le']} is expected"
        case "string_too_long":
            return f"at most {context['max_length']} characters are expected"
        case "string_too_short":
            return f"at least {context['min_length']} characters are expected"
        case "too_short":
            return f"at least {context['min_length']} entries are expected"
        case "too_long":
            return f"at most {context['max_length']} entries are expected"
        case _:
            return "it is not accepted here"
