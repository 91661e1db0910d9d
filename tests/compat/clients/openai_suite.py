"""What a user of the `openai` package does, in whatever version of it this interpreter has. Imports nothing of the project.

Run as `python openai_suite.py NAME…` with URL, API_KEY and MODEL in the environment, and what else a part asks for. Prints one JSON
object: for each name null, or what went wrong.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
from openai import AsyncOpenAI, OpenAI

MODEL = os.environ["MODEL"]
CHAT: Any = "/v1/chat/completions"
FINAL = ("completed", "failed", "expired", "cancelled")
NEVER = "file-" + "0" * 32
PARTS: dict[str, Callable[[], None]] = {}
CALLS: list[str] = []


def part(run: Callable[[], None]) -> Callable[[], None]:
    PARTS[run.__name__] = run
    return run


def client(**options: Any) -> OpenAI:
    """A client that notes every HTTP request it sends in CALLS."""
    hooks = {"request": [lambda request: CALLS.append(f"{request.method} {request.url.path}")]}
    http = openai.DefaultHttpxClient(event_hooks=hooks, trust_env=False)
    return OpenAI(base_url=os.environ["URL"] + "/v1", api_key=os.environ["API_KEY"], http_client=http, **options)


def line(custom_id: str, **body: Any) -> dict[str, Any]:
    wanted = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]} | body
    return {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": wanted}


def jsonl(*lines: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in lines)


def create(api: OpenAI, file_id: str, **options: Any) -> Any:
    return api.batches.create(input_file_id=file_id, endpoint=CHAT, completion_window="24h", **options)


def finished(api: OpenAI, batch_id: str) -> Any:
    """The hand-written loop that every user has."""
    ends = time.monotonic() + 120
    while True:
        batch = api.batches.retrieve(batch_id)
        if batch.status in FINAL:
            return batch
        assert time.monotonic() < ends, batch.status
        time.sleep(0.1)


def run(api: OpenAI, data: bytes) -> Any:
    return finished(api, create(api, api.files.create(file=("in.jsonl", data), purpose="batch").id).id)


def _uploads(api: OpenAI, folder: Path) -> dict[str, Any]:
    data = jsonl(*(line(f"r{n}") for n in range(3)))
    path = folder / "from a path.jsonl"
    path.write_bytes(data)
    return {
        "in.jsonl": ("in.jsonl", data),
        "typed.jsonl": ("typed.jsonl", data, "application/jsonl"),
        "upload": data,
        "from a path.jsonl": path,
        "memory": ("memory", io.BytesIO(data)),
    }


@part
def every_way_to_upload() -> None:
    with client() as api, tempfile.TemporaryDirectory() as name:
        for filename, file in _uploads(api, Path(name)).items():
            made = api.files.create(file=file, purpose="batch")
            assert (made.filename, made.status, made.object) == (filename, "processed", "file"), made
        with (Path(name) / "from a path.jsonl").open("rb") as opened:
            made = api.files.create(
                file=opened, purpose="batch", expires_after={"anchor": "created_at", "seconds": 7200}
            )
        assert made.expires_at == made.created_at + 7200, made
        assert api.files.wait_for_processing(made.id, max_wait_seconds=5).id == made.id
        assert api.files.content(made.id).read() == (Path(name) / "from a path.jsonl").read_bytes()
        assert api.files.delete(made.id).deleted is True
        try:
            api.files.retrieve(made.id)
        except openai.NotFoundError as error:
            assert error.request_id, "no request id"
        else:
            raise AssertionError("a deleted file is still there")


@part
def a_batch_from_upload_to_results() -> None:
    with client() as api:
        data = jsonl(
            *(line(f"r{n}") for n in range(5)), line("bad", messages=[{"role": "user", "content": "echo: status=400"}])
        )
        file = api.files.create(file=("in.jsonl", data), purpose="batch")
        begun = create(api, file.id, metadata={"nightly": "yes"}, extra_body={"priority": 3})
        assert (begun.status, begun.input_file_id, begun.metadata) == ("validating", file.id, {"nightly": "yes"})
        assert begun._request_id
        batch = finished(api, begun.id)
        assert batch.status == "completed", batch
        assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (6, 5, 1)
        assert batch.model_extra["priority"] == 3
        with api.files.with_streaming_response.content(batch.output_file_id) as reply:
            found = [json.loads(text) for text in reply.iter_lines()]
        assert sorted(one["custom_id"] for one in found) == [f"r{n}" for n in range(5)]
        assert all(one["response"]["body"]["choices"][0]["message"]["content"] == "echo" for one in found)
        (bad,) = [json.loads(text) for text in api.files.content(batch.error_file_id).text.splitlines()]
        assert (bad["custom_id"], bad["error"], bad["response"]["status_code"]) == ("bad", None, 400), bad
        assert bad["response"]["body"]["error"]["code"] == "status_400", bad


@part
def lists_page_by_themselves() -> None:
    with client() as api:
        made = [create(api, NEVER).id for _ in range(23)]
        del CALLS[:]
        found = [batch.id for batch, _ in zip(api.batches.list(limit=10), range(23))]
        assert found == made[::-1], "not each batch once, the newest first"
        assert len(CALLS) == 3, CALLS
        files = [api.files.create(file=b"{}", purpose="user_data").id for _ in range(5)]
        listed = [file.id for file in api.files.list(limit=2, order="asc", purpose="user_data")]
        assert [one for one in listed if one in files] == files


@part
def cancelling_twice_is_the_same() -> None:
    with client() as api:
        file = api.files.create(file=jsonl(*(line(f"r{n}") for n in range(3000))), purpose="batch")
        batch = create(api, file.id)
        first, second = api.batches.cancel(batch.id), api.batches.cancel(batch.id)
        assert {first.status, second.status} <= {"cancelling", "cancelled"}
        assert first.cancelling_at == second.cancelling_at
        assert finished(api, batch.id).status == "cancelled"
        assert api.batches.cancel(batch.id).status == "cancelled"


@part
def cancelling_a_completed_one_is_one_call() -> None:
    with client() as api:
        batch = run(api, jsonl(line("a")))
        del CALLS[:]
        try:
            api.batches.cancel(batch.id)
        except openai.ConflictError as error:
            assert error.type == "invalid_request_error", error.body
            assert "Cannot cancel a batch with status 'completed'." in str(error), str(error)
        else:
            raise AssertionError("a completed batch was cancelled")
        assert [f"POST /v1/batches/{batch.id}/cancel"] == CALLS, CALLS


def _without(name: str) -> dict[str, Any]:
    return {key: value for key, value in line("b").items() if key != name}


MOST_LINES = 50_000
TOO_MANY = b"".join(jsonl(line("r%d"))[:-1].replace(b"%d", b"%d" % n) + b"\n" for n in range(MOST_LINES + 1))
ROWS: tuple[tuple[bytes, str, int | None, str | None], ...] = (
    (b"not JSON\n", "invalid_json_line", 1, None),
    (jsonl(_without("custom_id")), "missing_required_parameter", 1, "custom_id"),
    (jsonl(_without("method")), "missing_required_parameter", 1, "method"),
    (jsonl(_without("url")), "missing_required_parameter", 1, "url"),
    (jsonl(_without("body")), "missing_required_parameter", 1, "body"),
    (jsonl(line("a") | {"url": "/v1/embeddings"}), "invalid_url", 1, "url"),
    (jsonl(line("a", stream=True)), "streaming_unsupported", 1, "body.stream"),
    (jsonl(line("a", model="no-such-model")), "model_not_found", 1, "body.model"),
    (jsonl(line("a", model=None)), "invalid_request", 1, "body.model"),
    (jsonl(line("a", messages=None)), "invalid_request", 1, "body.messages"),
    (jsonl(line("a"), line("a")), "duplicate_custom_id", 2, "custom_id"),
    (b"", "empty_file", None, None),
    (TOO_MANY, "too_many_requests_in_batch", MOST_LINES + 1, None),
)


@part
def every_fault_of_a_file_is_told() -> None:
    with client() as api:
        begun = []
        for data, *_ in ROWS:
            begun.append(create(api, api.files.create(file=("in.jsonl", data), purpose="batch").id).id)
        gone = api.files.create(file=("in.jsonl", jsonl(line("a"))), purpose="batch").id
        api.files.delete(gone)
        begun += [create(api, NEVER).id, create(api, gone).id]
        for batch_id, (code, at, param) in zip(
            begun, [row[1:] for row in ROWS] + [("invalid_request", None, "file_id")] * 2
        ):
            batch = finished(api, batch_id)
            assert batch.status == "failed", (code, batch)
            error = batch.errors.data[0]
            assert (error.code, error.line, error.param) == (code, at, param), error
            assert error.message


@part
def a_refused_call_says_where() -> None:
    with client() as api:
        for options, param, code in (
            ({"endpoint": "/v1/invalid/endpoint"}, "endpoint", "invalid_value"),
            ({"completion_window": "soon"}, "completion_window", "invalid_value"),
            ({"metadata": {"tags": ["a"]}}, "metadata.tags", "invalid_type"),
        ):
            asked: dict[str, Any] = {"input_file_id": NEVER, "endpoint": CHAT, "completion_window": "24h"} | options
            try:
                api.batches.create(**asked)
            except openai.BadRequestError as error:
                assert (error.param, error.code, error.type) == (param, code, "invalid_request_error"), error.body
                assert error.request_id
            else:
                raise AssertionError(param)
        for act, kind in (
            (lambda: api.batches.retrieve("batch_none"), openai.NotFoundError),
            (_wrong_key, openai.AuthenticationError),
        ):
            try:
                act()
            except kind:
                continue
            raise AssertionError(kind)


@part
def a_refused_query_says_where() -> None:
    """What the framework refuses by itself looks like every other refusal: the query, the path, the method."""
    with client() as api:
        for act, param in (
            (lambda: api.batches.list(limit=0), "limit"),
            (lambda: api.batches.list(limit="many"), "limit"),  # type: ignore[arg-type]
            (lambda: api.files.list(order="size"), "order"),  # type: ignore[arg-type]
        ):
            try:
                act()
            except openai.BadRequestError as error:
                assert (error.param, error.type) == (param, "invalid_request_error"), error.body
                assert error.code, error.body
                assert "Invalid" in str(error), str(error)
            else:
                raise AssertionError(param)
        for call, status in ((api.post, 404), (api.delete, 405)):
            path = "/no/such/path" if status == 404 else "/batches"
            del CALLS[:]
            try:
                call(path, cast_to=object)
            except openai.APIStatusError as error:
                assert (error.status_code, error.type) == (status, "invalid_request_error"), error.body
                assert error.request_id
                assert len(CALLS) == 1, CALLS
            else:
                raise AssertionError(path)


LOG = (
    "created", "queued", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.done",
    "content_part.done", "output_item.done", "completed",
)  # fmt: skip


def begin(api: OpenAI, text: str = "echo:text=hello", **options: Any) -> Any:
    return api.responses.create(model=MODEL, input=text, background=True, **options)


def ended(api: OpenAI, response_id: str) -> Any:
    """The loop of OpenAI's guide."""
    ends = time.monotonic() + 120
    response = api.responses.retrieve(response_id)
    while response.status in ("queued", "in_progress"):
        assert time.monotonic() < ends, response
        time.sleep(0.1)
        response = api.responses.retrieve(response_id)
    return response


@part
def a_background_response_is_polled() -> None:
    with client() as api:
        begun = begin(api, instructions="Be short.", metadata={"a": "b"})
        assert (begun.status, begun.background, begun.output, begun.error) == ("queued", True, [], None), begun
        assert begun._request_id
        done = ended(api, begun.id)
        assert (done.id, done.status, done.output_text, done.metadata) == (
            begun.id,
            "completed",
            "hello",
            {"a": "b"},
        ), done
        assert done.usage.total_tokens == done.usage.input_tokens + done.usage.output_tokens, done.usage
        assert [item.role for item in api.responses.input_items.list(begun.id)] == ["user"]  # type: ignore[union-attr]
        failed = ended(api, begin(api, "echo:status=400").id)
        assert (failed.status, failed.error.code, failed.error.message) == ("failed", "invalid_prompt", "scripted"), (
            failed
        )


@part
def cancelling_a_response_twice_is_the_same() -> None:
    with client() as api:
        begun = begin(api, "echo:sleep=60")
        first, second = api.responses.cancel(begun.id), api.responses.cancel(begun.id)
        assert first.status == second.status == api.responses.retrieve(begun.id).status == "cancelled"
        done = ended(api, begin(api).id)
        del CALLS[:]
        assert api.responses.cancel(done.id).status == "completed"
        assert len(CALLS) == 1, CALLS
        assert api.responses.delete(done.id) is None  # type: ignore[func-returns-value]
        for act in (api.responses.retrieve, api.responses.cancel, api.responses.delete):
            del CALLS[:]
            try:
                act(done.id)
            except openai.NotFoundError as error:
                assert (error.type, bool(error.request_id), len(CALLS)) == ("invalid_request_error", True, 1), (
                    error.body
                )
            else:
                raise AssertionError("a deleted response is still there")


def _numbered(events: list[Any]) -> list[tuple[int, str]]:
    return [(event.sequence_number, event.type.replace("response.", "", 1)) for event in events]


@part
def a_background_stream_resumes() -> None:
    """From the create; then at any place by `starting_after`, and by the helper, which asks for all and filters by itself."""
    whole = list(enumerate(LOG))
    with client() as api:
        events = list(begin(api, stream=True))
        assert _numbered(events) == whole, events
        assert events[-1].response.output_text == "hello"
        response_id = events[0].response.id
        for n in range(len(LOG)):
            rest = list(api.responses.retrieve(response_id, stream=True, starting_after=n))
            assert _numbered(rest) == whole[n + 1 :], (n, rest)
            with api.responses.stream(response_id=response_id, starting_after=n) as stream:
                assert _numbered(list(stream)) == whole[n + 1 :], n
                assert stream.get_final_response().output_text == "hello"
        left = begin(api, stream=True)
        first: Any = next(iter(left))
        left.close()
        rest = list(api.responses.retrieve(first.response.id, stream=True, starting_after=first.sequence_number))
        assert _numbered([first, *rest]) == whole
        cancelled = begin(api, "echo:sleep=60")
        api.responses.cancel(cancelled.id)
        last: Any = list(api.responses.retrieve(cancelled.id, stream=True))[-1]
        assert (last.type, last.code) == ("error", "response_cancelled"), last


@part
def a_background_stream_resumes_where_it_is_awaited() -> None:
    async def run() -> None:
        async with AsyncOpenAI(base_url=os.environ["URL"] + "/v1", api_key=os.environ["API_KEY"]) as api:
            begun: Any = await api.responses.create(model=MODEL, input="echo:text=hello", background=True, stream=True)
            events = [event async for event in begun]
            assert _numbered(events) == list(enumerate(LOG)), events
            async with api.responses.stream(response_id=events[0].response.id, starting_after=4) as stream:
                rest = [event async for event in stream]
                assert (await stream.get_final_response()).output_text == "hello"
            assert _numbered(rest) == list(enumerate(LOG))[5:], rest

    asyncio.run(run())


@part
def a_lost_reply_makes_one_response() -> None:
    """The test kills the server between the commit and the reply of this create."""
    mark = {"mark": os.environ["MARK"]}
    with client(max_retries=12, timeout=30) as api:
        reply = api.responses.with_raw_response.create(model=MODEL, input="hi", background=True, metadata=mark)
        assert reply.retries_taken >= 1, "the reply was not lost"
        assert reply.headers["idempotent-replayed"] == "true"
        assert reply.parse().metadata == mark


def _wrong_key() -> None:
    with client() as api:
        api.with_options(api_key="sk-wrong").batches.list()


@part
def big_files_go_in_parts() -> None:
    data = jsonl(*(line(f"r{n}") for n in range(40)))
    with client() as api:
        upload = api.uploads.upload_file_chunked(
            file=data,
            filename="big.jsonl",
            bytes=len(data),
            mime_type="application/jsonl",
            purpose="batch",
            part_size=1000,
        )
        assert upload.status == "completed", upload
        assert upload.file
        assert api.files.content(upload.file.id).read() == data
        assert finished(api, create(api, upload.file.id).id).status == "completed"


@part
def an_outage_is_waited_out() -> None:
    """The test cuts the server's database off before this starts, and heals it once it was asked."""
    with client(max_retries=6) as api:
        began = time.monotonic()
        reply = api.batches.with_raw_response.list(limit=1)
        assert reply.retries_taken >= 1, "it was not refused"
        assert time.monotonic() - began >= float(os.environ["SECONDS"]), "the client came back sooner than it was told"


@part
def a_lost_reply_makes_one_batch() -> None:
    """The test kills the server between the commit and the reply of this create."""
    _lost_reply({})


@part
def a_lost_reply_with_a_key_makes_one_batch() -> None:
    _lost_reply({"Idempotency-Key": f"key-{os.getpid()}"})


def _lost_reply(headers: dict[str, str]) -> None:
    mark = {"mark": os.environ["MARK"]}
    with client(max_retries=12, timeout=30) as api:
        reply = api.batches.with_raw_response.create(
            input_file_id=NEVER, endpoint=CHAT, completion_window="24h", metadata=mark, extra_headers=headers
        )
        assert reply.retries_taken >= 1, "the reply was not lost"
        batch = reply.parse()
        made = [one.id for one in api.batches.list(limit=100) if one.metadata == mark]
        assert made == [batch.id], made


HI: Any = [{"role": "user", "content": "hi"}]
ENDS = (
    ("stream-whole", None),
    ("stream-torn-between-events", "bad_upstream"),
    ("stream-torn-inside-of-an-event", "bad_upstream"),
    ("stream-ending-early", "bad_upstream"),
    ("stream-ending-inside-of-an-event", "bad_upstream"),
    ("stream-with-an-error", "engine_died"),
)


@part
def an_error_inside_of_a_stream_raises() -> None:
    """The test registers models whose streams end so."""
    with client() as api:
        for model, code in ENDS:
            said, raised = [], None
            del CALLS[:]
            try:
                for chunk in api.chat.completions.create(model=model, messages=HI, stream=True):
                    said.append(chunk.choices[0].delta.content)
            except openai.APIError as error:
                raised = error.code
            assert (said, raised) == (["a", "b"], code), (model, said, raised)
            assert len(CALLS) == 1, (model, CALLS)


@part
def an_error_inside_of_a_stream_raises_where_it_is_awaited() -> None:
    async def run() -> None:
        async with AsyncOpenAI(base_url=os.environ["URL"] + "/v1", api_key=os.environ["API_KEY"]) as api:
            for model, code in ENDS:
                said, raised = [], None
                try:
                    async for chunk in await api.chat.completions.create(model=model, messages=HI, stream=True):
                        said.append(chunk.choices[0].delta.content)
                except openai.APIError as error:
                    raised = error.code
                assert (said, raised) == (["a", "b"], code), (model, said, raised)

    asyncio.run(run())


def _said(events: list[Any]) -> tuple[list[str], Any, int]:
    """The deltas, how it ended, and the number of the last event."""
    last = events[-1]
    ended = last.code if last.type == "error" else last.type
    return [one.delta for one in events if one.type == "response.output_text.delta"], ended, last.sequence_number


@part
def a_stream_of_a_response_that_breaks_says_so() -> None:
    """In an event of its own kind, which no version raises for; it counts on from the last one."""
    with client() as api:
        for model, code in ENDS:
            del CALLS[:]
            events = list(api.responses.create(model=model, input="hi", stream=True))
            assert _said(events) == (["a", "b"], code or "response.completed", 3), (model, events)
            assert len(CALLS) == 1, (model, CALLS)


@part
def a_stream_of_a_response_that_breaks_says_so_where_it_is_awaited() -> None:
    async def run() -> None:
        async with AsyncOpenAI(base_url=os.environ["URL"] + "/v1", api_key=os.environ["API_KEY"]) as api:
            for model, code in ENDS:
                events = [one async for one in await api.responses.create(model=model, input="hi", stream=True)]
                assert _said(events) == (["a", "b"], code or "response.completed", 3), (model, events)

    asyncio.run(run())


@part
def deliveries_are_verified() -> None:
    """DELIVERIES: what a receiver got, and secrets, as the test recorded them."""
    told = json.loads(os.environ["DELIVERIES"])
    with client() as api:
        for case in told:
            body, headers = case["body"], case["headers"]
            real, time.time = time.time, lambda shift=case["later"], now=time.time: now() + shift  # type: ignore[misc]
            try:
                event: Any = api.webhooks.unwrap(body, headers, secret=case["secret"])
            except (openai.InvalidWebhookSignatureError, ValueError) as error:
                assert not case["is_good"], (case["name"], error)
            else:
                assert case["is_good"], case["name"]
                assert (event.type, event.data.id) == ("batch.completed", case["batch"]), case["name"]
            finally:
                time.time = real


def main(names: list[str]) -> None:
    outcomes: dict[str, str | None] = {}
    for name in names:
        began = time.monotonic()
        try:
            PARTS[name]()
            outcomes[name] = None
        except Exception:
            outcomes[name] = traceback.format_exc()
        print(f"{name}: {time.monotonic() - began:.1f} s", file=sys.stderr)
    print(json.dumps({"version": openai.__version__, "outcomes": outcomes}))


if __name__ == "__main__":
    main(sys.argv[1:])
