"""Ctrl-C must not fall between the birth of a server and the note that it is ours: nobody would stop it then."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_DEFERRED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def deferred() -> Iterator[None]:
    """Run the block to its end before a Python handler of these signals runs. Other threads are never interrupted by one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    handlers = {number: handler for number in _DEFERRED if callable(handler := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, lambda *what: came.append(what))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for arrived, frame in came:
            handlers[signal.Signals(arrived)](arrived, frame)
