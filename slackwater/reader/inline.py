"""Takes the elements of a top-level `requests` array out of a JSON body as it arrives, and makes each a line of a batch file.

Nothing of an element changes but its line breaks, which JSON allows between tokens only: a raw LF becomes a CR, which a reader treats alike
(and refuses alike inside a string). Pure, with memory for what is not an element.
"""

from __future__ import annotations

import json
import re
from typing import Final

_STRUCTURE = re.compile(rb'["{}\[\],]')
_END_OF_STRING = re.compile(rb'["\\]')
_SPACE: Final = b" \t\r\n"
_NAME: Final = "requests"


class InlineSplitter:
    """Feed the pieces in order. `rest` is the body with a `0` in place of each element: it tells whether the whole is JSON.

    `count` is the number of elements begun.
    """

    def __init__(self) -> None:
        self.rest = bytearray()
        self.count = 0
        self._lines: list[bytes] = []
        self._depth = 0
        self._in_string = False
        self._is_escaped = False
        self._in_array = False
        self._has_begun = False
        self._name_starts = 0

    def feed(self, piece: bytes) -> bytes:
        """The bytes of lines that this piece brings; the last line may go on in the next one."""
        taken = at = 0
        while at < len(piece):
            if self._in_string:
                at = self._pass_string(piece, at)
                continue
            found = _STRUCTURE.search(piece, at)
            if found is None:
                break
            at = found.end()
            if self._is_border(found[0]):
                self._take(piece[taken : found.start()])
                self._cross(found[0])
                taken = at
        self._take(piece[taken:])
        lines = b"".join(self._lines)
        self._lines.clear()
        return lines

    def _pass_string(self, piece: bytes, at: int) -> int:
        if self._is_escaped:
            self._is_escaped = False
            return at + 1
        found = _END_OF_STRING.search(piece, at)
        if found is None:
            return len(piece)
        self._is_escaped = found[0] == b"\\"
        self._in_string = self._is_escaped
        return found.end()

    def _is_border(self, token: bytes) -> bool:
        """Follow one token; true where what came before it and what comes after go different ways."""
        if token == b'"':
            self._in_string = True
            return self._depth == 1
        if token in b"{[":
            self._depth += 1
            return token == b"[" and self._depth == 2 and not self._in_array
        if token in b"}]":
            self._depth -= 1
            return self._in_array and self._depth == 1
        return self._in_array and self._depth == 2

    def _cross(self, token: bytes) -> None:
        if token == b'"':
            self._name_starts = len(self.rest)
        elif token == b"[":
            self._in_array = self._is_named()
        else:
            self._end_element(is_last=token != b",")
        self.rest += token

    def _is_named(self) -> bool:
        """Whether the last string before this array, and its colon, name it as ours."""
        name = bytes(self.rest[self._name_starts :]).rstrip(_SPACE + b":")
        try:
            return bool(json.loads(name) == _NAME)
        except ValueError:
            return False

    def _end_element(self, *, is_last: bool) -> None:
        if self._has_begun:
            self._lines.append(b"\n")
        self._has_begun = False
        self._in_array = not is_last

    def _take(self, part: bytes) -> None:
        if not self._in_array:
            self.rest += part
            return
        if not self._has_begun:
            part = part.lstrip(_SPACE)
            if not part:
                return
            self._has_begun = True
            self.count += 1
            self.rest += b"0"
        self._lines.append(part.replace(b"\n", b"\r"))
