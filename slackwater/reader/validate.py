"""A whole batch file, fed in pieces: the requests that may run, and every reason why others may not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b

from slackwater.reader.limits import LIMITS, Limits
from slackwater.reader.lines import BOM, Line, LineSplitter, LongLine
from slackwater.reader.request_line import LineError, LineReader, RequestLine
from slackwater.reader.strict_json import InvalidJson, foreign_encoding, parse

_SHORT = 32


class FileValidator:
    """Feed the pieces in order, exhausting each iterator, then `finish`; memory grows with the lines only.

    A bad line has exactly one error and does not stop the lines after it. `errors` keeps the first
    `max_kept_errors` in line order, `error_count` counts all, and `on_error` is told each one. `total`
    counts the lines that hold something. `fatal`: the file as a whole is refused and was not read further
    (empty, too many requests, one JSON array, not UTF-8).
    """

    def __init__(
        self,
        endpoint: str,
        known_models: Mapping[str, int] | Callable[[str], int | None],
        limits: Limits = LIMITS,
        on_error: Callable[[LineError], None] | None = None,
    ) -> None:
        model_id = known_models.get if isinstance(known_models, Mapping) else known_models
        self.errors: list[LineError] = []
        self.error_count = 0
        self.total = 0
        self.fatal = False
        self._limits = limits
        self._on_error = on_error
        self._splitter = LineSplitter(limits.max_line_bytes)
        self._reader = LineReader(endpoint, model_id, limits)
        self._line_of: dict[str | bytes, int] = {}

    def feed(self, piece: bytes) -> Iterator[RequestLine]:
        """The requests of the lines that end in this piece."""
        return iter(()) if self.fatal else self._read(self._splitter.feed(piece))

    def finish(self) -> Iterator[RequestLine]:
        """The request of a last line without newline; afterwards `errors` is complete."""
        if not self.fatal:
            yield from self._read(self._splitter.finish())
        if not self.total:
            self._refuse_file(LineError("empty_file", None, None, "The file holds no requests."))

    def errors_data(self) -> list[dict[str, str | int | None]]:
        """What `errors.data` of the batch holds: the kept errors, and how many more there are."""
        data = [error.as_data() for error in self.errors]
        if more := self.error_count - len(self.errors):
            data.append(LineError("more_errors", None, None, f"… and {more:,} more.").as_data())
        return data

    def _read(self, lines: Iterable[Line | LongLine]) -> Iterator[RequestLine]:
        most, read, line_of = self._limits.max_requests, self._reader.read, self._line_of
        for line in lines:
            self.total += 1
            if (self.total == 1 or self.total > most) and (refusal := self._check_file(line)):
                return self._refuse_file(refusal)
            found = read(line) if type(line) is Line else self._too_long(line.number)
            if (custom_id := found.custom_id) is not None:
                key = custom_id if len(custom_id) <= _SHORT else _hashed(custom_id)
                if (first := line_of.setdefault(key, line.number)) != line.number:
                    found = _duplicate(line.number, first, custom_id)
            if isinstance(found, LineError):
                self._refuse(found)
            else:
                yield found

    def _too_long(self, number: int) -> LineError:
        most = self._limits.max_line_bytes
        return LineError("line_too_long", number, None, f"This line is longer than {most:,} bytes.")

    def _check_file(self, line: Line | LongLine) -> LineError | None:
        if self.total > self._limits.max_requests:
            message = f"The file holds more than {self._limits.max_requests:,} requests."
            return LineError("too_many_requests_in_batch", line.number, None, message)
        return _check_first(line) if isinstance(line, Line) else None

    def _refuse_file(self, error: LineError) -> None:
        self.fatal = True
        self._refuse(error)

    def _refuse(self, error: LineError) -> None:
        self.error_count += 1
        if len(self.errors) < self._limits.max_kept_errors:
            self.errors.append(error)
        if self._on_error is not None:
            self._on_error(error)


def _hashed(custom_id: str) -> bytes:
    """What stands for a long custom_id in memory."""
    return blake2b(custom_id.encode(), digest_size=16).digest()


def _duplicate(number: int, first: int, custom_id: str) -> LineError:
    message = f"Line {number} has the same custom_id as line {first}."
    return LineError("duplicate_custom_id", number, "custom_id", message, custom_id)


def _check_first(line: Line) -> LineError | None:
    """The first line shows two mistakes that would otherwise be reported once for every line."""
    encoding = foreign_encoding(line.data)
    if encoding is not None and not line.data.startswith(BOM):
        return LineError("invalid_unicode", line.number, None, f"The file is {encoding}; only UTF-8 is read.")
    if line.data.lstrip(b" \t").startswith(b"[") and not _is_json(line.data):
        message = "This looks like a JSON array; send one object per line."
        return LineError("invalid_json_line", line.number, None, message)
    return None


def _is_json(data: bytes) -> bool:
    try:
        parse(data)
    except InvalidJson as error:
        return error.code != "invalid_json"
    return True
