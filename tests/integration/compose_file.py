"""docker-compose.yml as Compose reads it: variables put in, services in the order in which they start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from graphlib import TopologicalSorter
from typing import Any

import yaml

from tests.processes import ROOT

VARIABLE = re.compile(r"\$\$|\$\{(\w+)(?:(:-|:\?)([^}]*))?\}")


def services(variables: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Each service, those it depends on before it.

    Raises:
        KeyError: a variable is needed and not given.
    """
    read = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    found: dict[str, dict[str, Any]] = _filled(read["services"], variables)
    graph = {name: set(service.get("depends_on", {})) for name, service in found.items()}
    return {name: found[name] for name in TopologicalSorter(graph).static_order()}


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return VARIABLE.sub(lambda found: _value(found, variables), value)
    if isinstance(value, dict):
        return {name: _filled(inner, variables) for name, inner in value.items()}
    return [_filled(inner, variables) for inner in value] if isinstance(value, list) else value


def _value(found: re.Match[str], variables: Mapping[str, str]) -> str:
    if found[0] == "$$":
        return "$"
    if variables.get(found[1]):
        return variables[found[1]]
    if found[2] != ":-":
        raise KeyError(f"{found[1]}: {found[3]}")
    return found[3]
