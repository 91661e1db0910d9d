"""How a part notices that the `up` that started it is gone, killed or not: its standard input ends.

The kernel closes the other end of that pipe with the supervisor, whatever ended it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from typing import Final

VARIABLE: Final = "SLACKWATER_LIFELINE"
PATIENCE_SECONDS: Final = 5.0


def given(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a part whose standard input is a lifeline."""
    return dict(environment) | {VARIABLE: "stdin"}


def hold_if_given() -> None:
    """End this process in good order once its lifeline ends, and by force after some patience."""
    if os.environ.pop(VARIABLE, None) == "stdin":
        threading.Thread(target=_hold, name="lifeline", daemon=True).start()


def _hold() -> None:
    while os.read(0, 64):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE_SECONDS)
    os._exit(1)
