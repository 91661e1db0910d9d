"""The events of a response in the background, with the real client: the same log for every reader, from any place of it."""

from __future__ import annotations

import itertools

from openai import OpenAI

from slackwater.settings import Settings
from tests.integration.api.conftest import Api, running
from tests.integration.api.responding import LOG, begin, ended
from tests.integration.api.work import add_echo, at_work


def test_a_stream_from_the_create_to_the_end(api: Api, api_settings: Settings) -> None:
    add_echo(api.dsn, latency_seconds=1)
    with at_work(api_settings):
        events = list(begin(api.client(), "echo:text=hello", stream=True))

    assert [event.type for event in events] == LOG
    assert [event.sequence_number for event in events] == list(range(len(LOG)))
    assert events[-1].response.output_text == "hello"
    assert events[-1].response.model_dump() | {"cost": None} == (
        api.client().responses.retrieve(events[0].response.id).model_dump() | {"cost": None}
    )


def test_the_whole_log_is_there_from_any_place(api: Api, api_settings: Settings) -> None:
    add_echo(api.dsn)
    client = api.client()
    begun = begin(client, "echo:text=hello")
    with at_work(api_settings):
        ended(client, begun.id)
    whole = [event.model_dump() for event in client.responses.retrieve(begun.id, stream=True)]
    assert [event["type"] for event in whole] == LOG
    for n in range(len(whole)):
        rest = client.responses.retrieve(begun.id, stream=True, starting_after=n)
        assert [event.model_dump() for event in rest] == whole[n + 1 :]


def test_the_helper_resumes_and_filters_by_itself(api: Api, api_settings: Settings) -> None:
    add_echo(api.dsn)
    client = api.client()
    begun = begin(client, "echo:text=hello")
    with at_work(api_settings), client.responses.stream(response_id=begun.id, starting_after=4) as stream:
        events = list(stream)
        assert stream.get_final_response().output_text == "hello"

    assert [event.type for event in events] == LOG[5:]


def test_a_reader_goes_on_at_another_process(api: Api, api_settings: Settings) -> None:
    add_echo(api.dsn)
    client = api.client()
    with running(api_settings) as second:
        stream = begin(client, "echo:text=hello", stream=True)
        seen = list(itertools.islice(stream, 2))
        stream.close()
        other = OpenAI(base_url=f"{second}/v1", api_key=api.key)
        with other, at_work(api_settings):
            rest = list(other.responses.retrieve(seen[0].response.id, stream=True, starting_after=1))

    assert [event.type for event in (*seen, *rest)] == LOG


def test_a_stream_tells_of_a_cancel(api: Api, api_settings: Settings) -> None:
    client = api.client()
    stream = begin(client, stream=True)
    seen = list(itertools.islice(stream, 2))
    client.responses.cancel(seen[0].response.id)
    (last,) = list(stream)

    assert (last.type, last.code, last.sequence_number) == ("error", "response_cancelled", 3)
    again = list(client.responses.retrieve(seen[0].response.id, stream=True))
    assert [event.model_dump() for event in again] == [event.model_dump() for event in (*seen, last)]


def test_a_stream_that_this_process_breaks_off_says_so(api: Api, api_settings: Settings) -> None:
    with running(api_settings) as second:
        client = OpenAI(base_url=f"{second}/v1", api_key=api.key)
        stream = begin(client, stream=True)
        seen = list(itertools.islice(stream, 2))
    with client:
        (last,) = list(stream)

    assert (last.type, last.code, last.sequence_number) == ("error", "stream_broken_off", seen[-1].sequence_number)
