"""Serving: uvicorn on uvloop, a known port, and a prompt end."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI

from api.app import create_app
from api.heads import HeadsInTime
from slackwater.settings import Settings
from slackwater.telemetry import configure_logs

GRACE_SECONDS: Final = 2
BACKLOG: Final = 2048


class Server(uvicorn.Server):
    """Tells its address once it accepts connections, and its app when it is about to stop."""

    def __init__(self, app: FastAPI, config: uvicorn.Config, ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self._app = app
        self._ready = ready

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End in order and exit 0: uvicorn's own way raises the signal again once it is done."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            self._ready(address_of(sockets[0]))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Streams without an end of their own end now, in order."""
        self._app.state.stopping.set()
        await super().shutdown(sockets)


def address_of(listener: socket.socket) -> str:
    """The URL of a bound socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def announce(url: str) -> None:
    """The line by which a parent process learns the port: `ready http://…` on standard output."""
    sys.stdout.write(f"ready {url}\n")
    sys.stdout.flush()


def listener_of(settings: Settings) -> socket.socket:
    """A listening socket at the configured address; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG, reuse_port=False)
    listener.set_inheritable(True)
    return listener


def server_of(settings: Settings, ready: Callable[[str], None] = announce) -> Server:
    """A server that is not running yet: `await server.serve(sockets=[listener])` in a loop of the caller's."""
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=HeadsInTime,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    return Server(app, config, ready)


def serve(settings: Settings, ready: Callable[[str], None] = announce) -> None:
    """Serve until SIGTERM or SIGINT. Streams that are open then are cut off after two seconds."""
    configure_logs(settings.log_format)
    listener = listener_of(settings)
    server_of(settings, ready).run(sockets=[listener])
