"""In which order the requests of a file run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler.duties.plan import Reading
from slackwater.reader.request_line import RequestLine
from slackwater.reader.validate import FileValidator

URL = "/v1/chat/completions"


@given(groups=st.lists(st.tuples(st.integers(1, 3), st.integers(-2, 2)), max_size=40))
def test_models_then_prefixes_then_lines_in_order_of_appearance(groups: list[tuple[int, int]]) -> None:
    lines = [RequestLine(n, f"r{n}", URL, "m", model, 0, 1, 1, prefix) for n, (model, prefix) in enumerate(groups, 1)]
    models = [model for model, _ in groups]

    ordered = Reading(FileValidator(URL, {}), [], lines).in_running_order()

    expected = sorted(lines, key=lambda r: (models.index(r.model_id), groups.index((r.model_id, r.prefix_key)), r.line))
    assert ordered == expected
