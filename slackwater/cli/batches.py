"""`slackwater batches`: a small client of the REST API (SLACKWATER_URL, SLACKWATER_API_KEY)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackwater.cli.output import AsJson, show

if TYPE_CHECKING:
    from httpx2 import Client, Response

app = typer.Typer(name="batches", help="Submit batches and read their results.", no_args_is_help=True)
COLUMNS = ("id", "status", "completed", "failed", "total", "created_at", "waiting_reason")
FINAL = ("completed", "failed", "expired", "cancelled")
POLL_SECONDS = 1.0
Id = Annotated[str, typer.Argument(metavar="BATCH", help="The id of the batch.")]


@app.command()
def submit(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Requests, one JSON object a line.")],
    endpoint: Annotated[str, typer.Option(help="Where every line goes.")] = "/v1/chat/completions",
    window: Annotated[str, typer.Option(help="The completion window.")] = "24h",
    wait: Annotated[bool, typer.Option(help="Stay until the batch is final; exit 1 unless it completed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Upload a file and create a batch over it."""
    with _client() as client, file.open("rb") as data:
        upload = client.post("/v1/files", data={"purpose": "batch"}, files={"file": (file.name, data)})
        body = {"input_file_id": _read(upload)["id"], "endpoint": endpoint, "completion_window": window}
        batch = _read(client.post("/v1/batches", json=body))
        if wait:
            batch = _await_end(client, batch)
    _show([batch], as_json=as_json)
    if wait and batch["status"] != "completed":
        raise typer.Exit(1)


@app.command("list")
def list_(limit: Annotated[int, typer.Option(min=1, max=100)] = 20, as_json: AsJson = False) -> None:
    """List the newest batches."""
    with _client() as client:
        _show(_read(client.get("/v1/batches", params={"limit": limit}))["data"], as_json=as_json)


@app.command("show")
def show_(batch: Id, as_json: AsJson = False) -> None:
    """Show one batch, and why it waits."""
    with _client() as client:
        _show([_read(client.get(f"/v1/batches/{batch}"))], as_json=as_json)


@app.command()
def cancel(batch: Id, as_json: AsJson = False) -> None:
    """Cancel a batch: what is done stays, the rest is not run."""
    with _client() as client:
        _show([_read(client.post(f"/v1/batches/{batch}/cancel"))], as_json=as_json)


@app.command()
def output(
    batch: Id, errors: Annotated[bool, typer.Option("--errors", help="The lines that failed instead.")] = False
) -> None:
    """Print the lines of a batch's output file as they are stored."""
    with _client() as client:
        file = _read(client.get(f"/v1/batches/{batch}"))["error_file_id" if errors else "output_file_id"]
        if file is None:
            return
        with client.stream("GET", f"/v1/files/{file}/content") as reply:
            if reply.is_error:
                reply.read()
                _read(reply)
            for piece in reply.iter_bytes():
                typer.get_binary_stream("stdout").write(piece)


@contextmanager
def _client() -> Iterator[Client]:
    import httpx2

    from slackwater.errors import Unavailable

    url, key = _address()
    try:
        with httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60) as client:
            yield client
    except httpx2.TransportError as error:
        raise Unavailable(f"{url} does not answer ({type(error).__name__})") from error


def _address() -> tuple[str, str]:
    """URL and key from the environment, else those of the `slackwater up` of this data directory."""
    from slackwater.cli.place import Place, read
    from slackwater.errors import Misconfigured
    from slackwater.settings import settings

    place = Place.of(settings())
    running = place.whereabouts()
    url = os.environ.get("SLACKWATER_URL") or (running and running.url)
    key = os.environ.get("SLACKWATER_API_KEY") or (running and read(place.api_key))
    if not url or not key:
        raise Misconfigured("set SLACKWATER_URL and SLACKWATER_API_KEY (`slackwater up --print-env` prints both)")
    return url.rstrip("/"), key


def _read(reply: Response) -> dict[str, Any]:
    """The JSON object of a reply.

    Raises:
        SlackwaterError: the API refuses; with its message.
    """
    from slackwater.errors import SlackwaterError

    if reply.is_error:
        try:
            message = reply.json()["error"]["message"]
        except (ValueError, KeyError, TypeError):
            message = f"the server answers {reply.status_code}"
        raise SlackwaterError(message)
    value: dict[str, Any] = reply.json()
    return value


def _await_end(client: Client, batch: dict[str, Any]) -> dict[str, Any]:
    while batch["status"] not in FINAL:
        time.sleep(POLL_SECONDS)
        batch = _read(client.get(f"/v1/batches/{batch['id']}"))
    return batch


def _show(batches: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        for batch in batches:
            show([batch], tuple(batch), as_json=True)
        return
    show([_row(batch) for batch in batches], COLUMNS, as_json=False)


def _row(batch: dict[str, Any]) -> dict[str, Any]:
    counts: dict[str, int] = batch.get("request_counts") or {}
    return batch | counts | {"created_at": datetime.fromtimestamp(batch["created_at"], UTC)}
