"""All duties, and how late each is."""

from __future__ import annotations

from typing import Final

from psycopg import Connection
from psycopg.rows import TupleRow

from scheduler.duties import Duty, finalise, plan, purge, rescue, settle

DUTIES: Final = (
    Duty("validate", plan.step, 1.0),
    Duty("wake", rescue.wake_delayed, 0.5),
    Duty("rescue", rescue.step, 1.0),
    Duty("expire", settle.expire, 1.0),
    Duty("settle", settle.step, 1.0),
    Duty("finalise", finalise.step, 0.5),
    Duty("forget", purge.forget_silent, 5.0),
    Duty("purge", purge.step, 60.0),
)

# Seconds since the oldest thing that each duty should have done became due.
LAG: Final = """
SELECT 'validate', extract(epoch FROM now() - min(created_at))::float8 FROM batch WHERE state = 0
UNION ALL SELECT 'wake', extract(epoch FROM now() - min(run_at))::float8 FROM segment WHERE state = 3 AND run_at < now()
UNION ALL SELECT 'rescue', extract(epoch FROM now() - min(expires_at))::float8 FROM lease WHERE expires_at < now()
UNION ALL SELECT 'expire', extract(epoch FROM now() - min(expires_at))::float8 FROM batch WHERE state = 1 AND expires_at < now()
UNION ALL SELECT 'settle', extract(epoch FROM now() - min(cancelling_at))::float8 FROM batch WHERE state = 6
UNION ALL SELECT 'finalise', extract(epoch FROM now() - min(finalizing_at))::float8 FROM batch WHERE state = 2
"""


def lag(connection: Connection[TupleRow]) -> dict[str, float]:
    """Seconds each duty is behind; 0 where nothing is due."""
    return {name: max(0.0, seconds or 0.0) for name, seconds in connection.execute(LAG).fetchall()}
