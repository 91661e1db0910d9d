"""Holds an answer to a JSON schema: llguidance says at each step which tokens may follow."""

import json
from collections.abc import Mapping
from typing import Any, Final

import torch
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from workers.engine.answer import RefusedError
from workers.engine.tokens import Tokens

MAX_SCHEMA_BYTES: Final = 262_144
_PARAM: Final = "response_format"

# `lenient` is said here because a schema could otherwise switch it on itself and have keywords ignored.
# Free whitespace is off: a small model may fill its whole answer with it.
_OPTIONS: Final = {
    "lenient": False,
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}


class GrammarError(Exception):
    """The grammar could not go on: it ran into its own limits, or allows no token."""


class Grammars:
    """Compiles schemas for one vocabulary."""

    def __init__(self, tokens: Tokens) -> None:
        self._size = tokens.size
        self._tokenizer = LLTokenizer(tokens.tokenizer.to_str(), n_vocab=tokens.size, eos_token=sorted(tokens.ends))

    def compile(self, schema: Mapping[str, Any]) -> "Grammar":
        """Raises `RefusedError` with llguidance's own words for a schema it cannot enforce, or a huge one."""
        text = json.dumps(schema, ensure_ascii=False)
        if len(text) > MAX_SCHEMA_BYTES:
            raise _refused(f"it is longer than {MAX_SCHEMA_BYTES} characters")
        try:
            source = LLMatcher.grammar_from_json_schema(text, overrides=_OPTIONS)
        except ValueError as error:
            raise _refused(str(error)) from error
        matcher = LLMatcher(self._tokenizer, source, log_level=0, limits=LLParserLimits(verbose_errors=False))
        if matcher.is_error():
            raise _refused(matcher.get_error())
        matcher.compute_bitmask()
        if matcher.is_error():
            raise _refused("no answer satisfies it")
        return Grammar(matcher, self._size)


class Grammar:
    """Where one answer stands in its schema."""

    def __init__(self, matcher: LLMatcher, size: int) -> None:
        self._matcher = matcher
        self._size = size

    @property
    def is_complete(self) -> bool:
        """True where nothing may follow."""
        return bool(self._matcher.is_stopped())

    def allowed(self) -> torch.Tensor:
        """A mask of the vocabulary, true for tokens that may follow. Raises `GrammarError`."""
        mask = self._matcher.compute_bitmask()
        self._check()
        return unpack(mask, self._size)

    def accept(self, token: int) -> None:
        """Raises `GrammarError` for a token that `allowed` did not name."""
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise GrammarError(self._matcher.get_error())


def unpack(mask: bytes, size: int) -> torch.Tensor:
    """One bit per token, lowest bit first, to `size` booleans."""
    packed = torch.frombuffer(bytearray(mask), dtype=torch.uint8)
    bits = (packed[:, None] >> torch.arange(8, dtype=torch.uint8)) & 1
    return bits.reshape(-1)[:size].bool()


def _refused(reason: str) -> RefusedError:
    return RefusedError(f"This schema cannot be enforced: {reason}.", param=_PARAM, code="unsupported_schema")
