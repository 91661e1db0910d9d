"""A signal during a deferral is handled after it, once, by the handler that was there."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from slackwater.embedded.interrupts import deferred


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell's background job ignores SIGINT, and so would this process."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_comes_after_the_block() -> None:
    done = []

    def be_interrupted() -> None:
        with deferred():
            os.kill(os.getpid(), signal.SIGINT)
            done.append(subprocess.run([sys.executable, "-c", ""], check=True).returncode)

    with pytest.raises(KeyboardInterrupt):
        be_interrupted()
    assert done == [0]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_a_signal_nothing_changes() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with deferred():
        pass
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_it_may_be_used_in_any_thread() -> None:
    passed = threading.Event()

    def use() -> None:
        with deferred():
            passed.set()

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert passed.is_set()
