"""Logs (facts, not sentences) and metrics: their names stand here and nowhere else."""

from __future__ import annotations

import logging
import sys

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry(auto_describe=True)

REQUESTS_STORED = Counter("slackwater_requests_stored", "Results stored.", ["outcome"], registry=REGISTRY)
REQUESTS_HANDED_BACK = Counter(
    "slackwater_requests_handed_back", "Requests handed back without a result.", registry=REGISTRY
)
DECISIONS = Counter("slackwater_decisions", "Admission decisions.", ["reason"], registry=REGISTRY)
DUTY_SECONDS = Histogram("slackwater_duty_seconds", "One step of a duty.", ["duty"], registry=REGISTRY)
DUTY_LAG_SECONDS = Gauge(
    "slackwater_duty_lag_seconds", "Age of the oldest thing a duty has not done.", ["duty"], registry=REGISTRY
)
DELIVERIES = Counter("slackwater_deliveries", "Webhook delivery attempts.", ["result"], registry=REGISTRY)
HTTP_SECONDS = Histogram("slackwater_http_seconds", "API calls.", ["method", "route", "status"], registry=REGISTRY)

# These fill in their messages themselves: with pieces of the body that is read, with the arguments of a callback.
TALKATIVE = frozenset({"python_multipart.multipart", "asyncio"})


def configure_logs(format_: str = "json", level: int = logging.INFO) -> None:
    """Log to stderr, one line an event. Exceptions say their type and place, never a value: values may be prompts."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if format_ == "json"
        else structlog.dev.ConsoleRenderer(exception_formatter=_bare)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _strip_exception,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    if not any(isinstance(handler, Libraries) for handler in root.handlers):
        root.addHandler(Libraries(logging.WARNING))


class Libraries(logging.Handler):
    """What libraries say, as a fact of ours: whose word it is, and an exception's type and place.

    Their texts may hold what a client sent, or an exception's text: only the fixed part is kept, up to the first line's end.
    """

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger()
        said = record.msg.partition("\n")[0] if isinstance(record.msg, str) and record.name not in TALKATIVE else None
        write = log.error if record.levelno >= logging.ERROR else log.warning
        write("library.said", logger=record.name, said=said, exc_info=record.exc_info)


def _bare(_file: object, _info: object) -> None:
    return None


def _strip_exception(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Replace a traceback by its frames: an exception's text may hold a prompt, a key or a value of a row."""
    info = event.pop("exc_info", None)
    if info:
        error = info[1] if isinstance(info, tuple) else info if isinstance(info, BaseException) else sys.exc_info()[1]
        if error is not None:
            event["exception"] = type(error).__name__
            event["frames"] = _frames(error)
    return event


def _frames(error: BaseException, most: int = 6) -> list[str]:
    frames, trace = [], error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{code.co_filename.rsplit('/', 2)[-1]}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return frames[-most:]
