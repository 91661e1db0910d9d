"""Which port the API of an `up` gets."""

from __future__ import annotations

import socket

from slackwater.errors import Misconfigured
from slackwater.settings import Settings


def port_for(settings: Settings, asked: int | None) -> int:
    """The port that was asked for or set; else the default one or, where that is taken, 0 for a free one.

    Raises:
        Misconfigured: the port that was asked for cannot be had.
    """
    port = settings.port if asked is None else asked
    refusal = why_not(settings.host, port)
    if refusal is None:
        return port
    if asked is None and "port" not in settings.model_fields_set:
        return 0
    raise Misconfigured(
        f"cannot listen on {settings.host}:{port}: {refusal}; choose another --port, or 0 for a free one"
    )


def why_not(host: str, port: int) -> str | None:
    """Why no server could listen there now; None where one could."""
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return None
