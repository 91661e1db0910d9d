"""A relay of TCP between a client and a server, at which a test cuts the line where it wants to."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

Address = tuple[str, int]
Cut = Callable[[bytes], bool]


@dataclass
class Relay:
    """Listens on a free port. `target` may change; while it is None a connection is closed at once."""

    target: Address | None
    is_last_word: Cut | None = None
    """Told all that a connection sent so far. Once it is true the answer is held back, and `held` is set."""
    answers: list[bytes] = field(default_factory=list)
    """How each piece that the server sent began."""
    held: threading.Event = field(default_factory=threading.Event)
    _open: set[socket.socket] = field(default_factory=set)
    _threads: list[threading.Thread] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._start(self._accept)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def break_all(self) -> None:
        """End every connection there is; those to come are not touched."""
        with self._lock:
            taken, self._open = self._open, set()
        for one in taken:
            _shut(one)

    def close(self) -> None:
        _shut(self._listener)
        self._listener.close()
        self.break_all()
        for thread in self._threads:
            thread.join(60)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.target is None:
                client.close()
            else:
                self._join(client, self.target)

    def _join(self, client: socket.socket, target: Address) -> None:
        try:
            server = socket.create_connection(target, timeout=60)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        line = Line(self, client, server)
        with self._lock:
            self._open |= {client, server}
        self._start(line.upward)
        self._start(line.downward)

    def _start(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()


@dataclass
class Line:
    """One connection through the relay."""

    relay: Relay
    client: socket.socket
    server: socket.socket
    sent: bytes = b""
    is_held: bool = False

    def upward(self) -> None:
        """From the client to the server."""
        with contextlib.suppress(OSError):
            while data := self.client.recv(1 << 16):
                if self.relay.is_last_word is not None:
                    self.sent += data
                    self.is_held = self.is_held or self.relay.is_last_word(self.sent)
                self.server.sendall(data)
        _shut(self.server)

    def downward(self) -> None:
        """From the server to the client."""
        with contextlib.suppress(OSError):
            while data := self.server.recv(1 << 16):
                self.relay.answers.append(data[:64])
                if self.is_held:
                    self.relay.held.set()
                    continue
                self.client.sendall(data)
        _shut(self.client)
        self.client.close()
        self.server.close()


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
