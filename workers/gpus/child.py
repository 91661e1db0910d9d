"""The process that talks to the driver: one line on its standard output for every look at the GPUs, until its parent is gone.

Run as `python -m workers.gpus.child`. It says an outage and ends when only a new process can help.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Final

from slackwater.errors import Misconfigured
from workers.gpus.binding import check_binding
from workers.gpus.faults import Down
from workers.gpus.sample import GpuSample, Outage, encode

PR_SET_PDEATHSIG: Final = 1
OUTAGE_STATUS: Final = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Sample until the parent is gone (0) or NVML is down (3)."""
    options = _options().parse_args(arguments)
    die_with_parent(options.parent)
    try:
        _sample(options)
    except Down as down:
        return _end(Outage(down.why, down.signal))
    except Misconfigured as error:
        return _end(Outage(error.message))
    except BrokenPipeError:
        _forget_output()
    return 0


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, also while a call into the driver hangs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(0)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("workers.gpus.child")
    parser.add_argument("--parent", type=int, required=True, help="process id of the worker")
    parser.add_argument("--gpu", action="append", required=True, help="a GPU as the instance declares it")
    parser.add_argument("--every-seconds", type=float, default=0.2)
    parser.add_argument("--tolerate", action="append", default=[], help="a signal whose failure is not NVML's")
    return parser


def _sample(options: argparse.Namespace) -> None:
    check_binding()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from workers.gpus.reader import Reader
    reader = Reader(options.gpu, os.environ.get("CUDA_VISIBLE_DEVICES"), frozenset(options.tolerate))
    reader.open()
    while True:
        begun = time.monotonic()
        _say(reader.read())
        time.sleep(max(0.0, begun + options.every_seconds - time.monotonic()))


def _say(said: Sequence[GpuSample] | Outage) -> None:
    sys.stdout.buffer.write(encode(said))
    sys.stdout.buffer.flush()


def _end(outage: Outage) -> int:
    try:
        _say(outage)
    except BrokenPipeError:
        _forget_output()
    return OUTAGE_STATUS


def _forget_output() -> None:
    """Nobody reads any more: keep the interpreter from complaining about it while it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    raise SystemExit(main())
