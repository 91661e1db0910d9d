"""What of an instance's row and of the settings becomes its policy."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.admission import Objectives
from slackwater.errors import Misconfigured
from tests.scenario import settings_for
from workers.instance import Instance, policy_of


def an_instance(**options: Any) -> Instance:
    return Instance(1, "gpu-box", "openai_http", "http://localhost", None, "inst_1", (), 16, "balanced", options, 1)


def test_options_become_objectives_and_limits() -> None:
    options = {"ttft_seconds": 1.5, "inter_token_seconds": 0.05, "chunk_tokens": 512.0, "prefill_cap_tokens": 128}

    policy = policy_of(settings_for("postgresql://x/x", max_slots=8), an_instance(**options))

    assert policy.objectives == Objectives(1.5, 0.05)
    assert (policy.max_slots, policy.chunk_tokens, policy.prefill_cap_tokens) == (8, 512, 128)


@pytest.mark.parametrize("wrong", [0, -1, True, "fast", float("nan")])
def test_an_option_that_is_no_number_is_named(wrong: Any) -> None:
    with pytest.raises(Misconfigured, match="ttft_seconds"):
        policy_of(settings_for("postgresql://x/x"), an_instance(ttft_seconds=wrong))
