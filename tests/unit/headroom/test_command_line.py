"""`slackwater simulate` prints its tables, the same ones for the same arguments, and names what it does not know."""

from __future__ import annotations

from typer.testing import CliRunner

from slackwater.cli.main import app
from slackwater.errors import Misconfigured

ARGUMENTS = [
    "simulate",
    "--case",
    "poisson:0.3",
    "--policy",
    "upstream",
    "--seconds",
    "60",
    "--seeds",
    "1",
    "--no-faults",
]


def test_the_same_arguments_give_the_same_tables() -> None:
    once, again = (CliRunner().invoke(app, ARGUMENTS) for _ in range(2))

    assert once.exit_code == 0, once.output
    assert "upstream" in once.output
    assert once.output == again.output


def test_an_unknown_policy_is_named() -> None:
    result = CliRunner().invoke(app, ["simulate", "--policy", "hope", "--case", "poisson:0.3", "--seconds", "60"])

    assert isinstance(result.exception, Misconfigured)
    assert "hope" in str(result.exception)
