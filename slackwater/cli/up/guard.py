"""A process beside an embedded PostgreSQL that stops it when `up` is killed and cannot.

Run by path with the standard library only: `guard.py FD`, where FD is a pidfd of the server, which no other process can come to
mean. Standard input is a pipe from `up`; its end says that `up` is gone.
"""

from __future__ import annotations

import contextlib
import select
import signal
import sys

# Wait for its clients, who end by themselves; then disconnect them; then exit at once and recover at the next start.
STEPS = ((signal.SIGTERM, 4.0), (signal.SIGINT, 5.0), (signal.SIGQUIT, 0.0))


def main(server: int) -> None:
    """Wait for the end of standard input, then stop the server."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    for number, patience in STEPS:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(server, number)
        # A pidfd is readable once its process has ended.
        if select.select([server], [], [], patience)[0]:
            return


if __name__ == "__main__":
    main(int(sys.argv[1]))
