"""Instances and their decisions, as a tenant sees them."""

from __future__ import annotations

from psycopg import Connection
from psycopg.rows import TupleRow

from slackwater.tenancy import instances, models
from slackwater.tenancy.instances import NewInstance
from tests.integration.api.conftest import MODEL, Api

DECIDE = """
INSERT INTO decision (worker_id, instance_id, at, admitted, reason, details)
SELECT 1, id, now() - %s * interval '1 second', %s, %s, %s::json FROM instance WHERE name = 'one'
"""


def test_decisions_say_why(api: Api, worker: Connection[TupleRow]) -> None:
    api.admin(
        lambda connection: instances.create(connection, NewInstance(name="one", models={MODEL: MODEL}, engine="echo"))
    )
    worker.execute(DECIDE, (2, True, None, "{}"))
    worker.execute(DECIDE, (1, False, "live_waiting", '{"message": "2 live requests are waiting"}'))
    worker.execute(DECIDE, (0, False, "no_signal", "{}"))

    (instance,) = api.http().get("/v1/instances").json()["data"]
    decisions = api.http().get(f"/v1/instances/{instance['id']}/decisions").json()["data"]

    assert [d["reason"] for d in decisions] == ["no_signal", "live_waiting", None]
    assert decisions[0]["message"].startswith("a required signal is missing")
    assert decisions[1]["message"] == "2 live requests are waiting"
    assert instance["decision"] == decisions[0]
    assert api.http().get(f"/v1/instances/{instance['id']}").json() == instance


def test_what_serves_only_others_is_not_there(api: Api) -> None:
    api.admin(
        lambda connection: instances.create(
            connection, NewInstance(name="one", models={"secret": "secret"}, engine="echo")
        )
    )
    api.admin(lambda connection: models.ensure(connection, "secret", is_open=False))
    hidden = api.admin(lambda connection: instances.find(connection, "one"))["public_id"]

    for path in (hidden, f"{hidden}/decisions"):
        assert api.http().get(f"/v1/instances/{path}").status_code == 404
    assert api.http().get("/v1/instances").json()["data"] == []
