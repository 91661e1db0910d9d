"""Running checks, several at a time, against one server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from httpx2 import Client, HTTPError, InvalidURL, Limits

from slackwater.conformance.expect import Mismatch, NotOffered
from slackwater.conformance.registry import Check
from slackwater.conformance.session import Session, Shared

CONNECTIONS: Final = 32
CALL_SECONDS: Final = 60.0


class Verdict(StrEnum):
    """What a check came to. Only what is optional can be not offered; that is no failure."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_OFFERED = "not_offered"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a check. `answered` is the mismatch, what showed that it is not offered, or the last reply of a check that passed."""

    name: str
    section: str
    expected: str
    answered: str
    verdict: Verdict

    @property
    def passed(self) -> bool:
        return self.verdict is Verdict.PASSED

    @property
    def failed(self) -> bool:
        return self.verdict is Verdict.FAILED

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"passed": self.passed}


def connect(base_url: str, api_key: str) -> Client:
    """A client of the server at `base_url`, with or without its `/v1`. Redirects are not followed."""
    root = base_url.rstrip("/").removesuffix("/v1")
    limits = Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    return Client(base_url=root, headers=headers, timeout=CALL_SECONDS, limits=limits)


def run(checks: Iterable[Check], shared: Shared, *, at_once: int = 4) -> Iterator[Outcome]:
    """The outcome of every check, in the order of `checks`."""
    with ThreadPoolExecutor(at_once) as pool:
        yield from pool.map(lambda check: judge(check, shared), checks)


def judge(check: Check, shared: Shared) -> Outcome:
    """Run one check. Whatever the server answers, this returns."""
    session = Session(shared)
    try:
        check.test(session)
    except NotOffered as seen:
        return _outcome(check, str(seen), Verdict.NOT_OFFERED if check.is_optional else Verdict.FAILED)
    except Mismatch as mismatch:
        return _outcome(check, str(mismatch), Verdict.FAILED)
    except (HTTPError, InvalidURL) as error:
        return _outcome(check, f"{type(error).__name__}: {error}", Verdict.FAILED)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        last = session.answered[-1] if session.answered else "nothing"
        return _outcome(check, f"{type(error).__name__} ({error}) in {last}", Verdict.FAILED)
    return _outcome(check, session.answered[-1] if session.answered else "nothing", Verdict.PASSED)


def _outcome(check: Check, answered: str, verdict: Verdict) -> Outcome:
    return Outcome(check.name, check.section, check.expected, answered, verdict)
