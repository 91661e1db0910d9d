"""`multipart/form-data` as it arrives: parts and their bytes, never a whole file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from slackwater.errors import InvalidRequest

MOST_PARTS: Final = 32
LONGEST_PREAMBLE: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class PartBegin:
    """A part starts; `filename` is None where the client gave none."""

    name: str
    filename: str | None


@dataclass(frozen=True, slots=True)
class PartData:
    data: bytes


@dataclass(frozen=True, slots=True)
class PartEnd:
    pass


Event = PartBegin | PartData | PartEnd


def malformed() -> InvalidRequest:
    return InvalidRequest("The body is not well-formed multipart/form-data.", code="invalid_multipart")


def boundary_of(content_type: str) -> bytes:
    """The boundary that a content type names.

    Raises:
        InvalidRequest: it is not multipart/form-data with a boundary.
    """
    kind, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise InvalidRequest("A multipart/form-data body is expected.", code="invalid_multipart")
    return boundary


@dataclass
class Form:
    """Turns pieces of a body into events. `feed` in order, then `close`."""

    boundary: bytes
    _events: list[Event] = field(default_factory=list)
    _headers: dict[bytes, bytes] = field(default_factory=dict)
    _name: bytes = b""
    _value: bytes = b""
    _parts: int = 0
    _fed: int = 0
    _is_over: bool = False

    def __post_init__(self) -> None:
        try:
            self._parser = MultipartParser(
                self.boundary,
                {
                    "on_header_field": self._on_header_field,
                    "on_header_value": self._on_header_value,
                    "on_header_end": self._on_header_end,
                    "on_headers_finished": self._on_headers_finished,
                    "on_part_data": self._on_part_data,
                    "on_part_end": self._on_part_end,
                    "on_end": self._on_end,
                },
            )
        except FormParserError:
            raise malformed() from None

    def feed(self, data: bytes) -> list[Event]:
        """What `data` completes.

        Raises:
            InvalidRequest: it is malformed, or has too many parts.
        """
        try:
            self._parser.write(data)
        except FormParserError:
            raise malformed() from None
        self._fed += len(data)
        if not self._parts and self._fed > LONGEST_PREAMBLE + len(data):
            raise malformed()
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """The body has ended.

        Raises:
            InvalidRequest: the last boundary is missing.
        """
        if not self._is_over:
            raise malformed()

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._name, self._value = b"", b""

    def _on_headers_finished(self) -> None:
        self._parts += 1
        _, options = parse_options_header(self._headers.get(b"content-disposition"))
        if self._parts > MOST_PARTS or b"name" not in options:
            raise malformed()
        filename = options.get(b"filename")
        self._events.append(PartBegin(_text(options[b"name"]), None if filename is None else _text(filename)))
        self._headers = {}

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._events.append(PartData(data[start:end]))

    def _on_part_end(self) -> None:
        self._events.append(PartEnd())

    def _on_end(self) -> None:
        self._is_over = True


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
