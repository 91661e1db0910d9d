"""The tokenizer, built from the fields of the GGUF file itself.

transformers' own GGUF conversion knows no `smollm` pre-tokenizer and merges digits that the model was trained
to see apart, so the pipeline is put together here from what `tokenizer.ggml.pre` names.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits
from tokenizers.pre_tokenizers import Sequence as Stages
from transformers import PreTrainedTokenizerFast

from workers.engine.answer import RefusedError
from workers.engine.messages import Message

CONTROL: Final = 3
"""GGUF's token type of control tokens, which are matched whole and never shown."""

_DOCUMENT_END: Final = "<|endoftext|>"
_MARKS: Final = range(0xE000, 0xF900)
"""Unicode's private use: one that no message holds keeps a control token's name in a text from being taken for one."""


class Tokens:
    """Text to token ids and back. Safe to use from several threads."""

    def __init__(self, text: Tokenizer, template: str, *, ends: Sequence[int], controls: Mapping[str, int]) -> None:
        """`text` knows no control tokens: it takes their names for words."""
        self._text = text
        self.tokenizer = tokenizer = _with_controls(text, list(controls))
        self._controls = dict(controls)
        self._control = re.compile("(" + "|".join(map(re.escape, controls)) + ")")
        self.ends = frozenset(ends)
        self.size: int = tokenizer.get_vocab_size()
        self._templates = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template)
        self._pieces = _pieces(tokenizer, frozenset(controls.values()))

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "Tokens":
        """Raises ValueError for a pre-tokenizer other than `smollm`: guessing would tokenise wrongly."""
        if fields["tokenizer.ggml.pre"] != "smollm":
            raise ValueError(f"no pre-tokenizer for {fields['tokenizer.ggml.pre']!r}")
        names: list[str] = fields["tokenizer.ggml.tokens"]
        kinds: list[int] = fields["tokenizer.ggml.token_type"]
        controls = {names[index]: index for index, kind in enumerate(kinds) if kind == CONTROL}
        ends = {fields["tokenizer.ggml.eos_token_id"], names.index(_DOCUMENT_END)}
        text = _tokenizer(names, fields["tokenizer.ggml.merges"])
        return cls(text, fields["tokenizer.chat_template"], ends=sorted(ends), controls=controls)

    def encode(self, prompt: tuple[Message, ...] | str | tuple[int, ...]) -> list[int]:
        """The ids of a chat (rendered, with the assistant's turn opened), a text, or checked ids.

        A control token's name is one in a text and in what the template writes; in a message it is ordinary text.
        """
        if isinstance(prompt, str):
            return self._ids(prompt)
        if all(isinstance(item, dict) for item in prompt):
            return self._chat_ids([item for item in prompt if isinstance(item, dict)])
        ids = [item for item in prompt if isinstance(item, int)]
        if not all(0 <= item < self.size for item in ids):
            message = f"'prompt' holds a token id outside 0 to {self.size - 1}."
            raise RefusedError(message, param="prompt", code="invalid_value")
        return ids

    def render(self, messages: Sequence[Message]) -> str:
        """Raises `RefusedError` where the template fails on these messages."""
        try:
            text: str = self._templates.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        except Exception as error:
            message = f"The chat template cannot render these messages: {error}."
            raise RefusedError(message, param="messages", code="invalid_value") from error
        return text

    def piece(self, token: int) -> bytes:
        """The bytes that a token stands for; none for a control token."""
        return self._pieces[token]

    def _chat_ids(self, messages: Sequence[Message]) -> list[int]:
        said = "".join(message.get("content", "") for message in messages)
        if not self._control.search(said):
            return self._ids(self.render(messages))
        mark = next(chr(number) for number in _MARKS if chr(number) not in said)
        marked = [message | {"content": self._marked(message["content"], mark)} for message in messages]
        return [token for part in self._control.split(self.render(marked)) for token in self._part(part, mark)]

    def _marked(self, content: str, mark: str) -> str:
        return self._control.sub(lambda found: found[0][0] + mark + found[0][1:], content)

    def _part(self, part: str, mark: str) -> Iterator[int]:
        """The token of a control token's name, else those of a text without its marks."""
        if part in self._controls:
            yield self._controls[part]
        else:
            yield from self._text.encode(part.replace(mark, ""), add_special_tokens=False).ids

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def _byte_of() -> dict[str, int]:
    """The printable stand-ins that byte-level BPE uses for bytes, and the bytes they stand for."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + index): byte for index, byte in enumerate(others)}


def _tokenizer(names: Sequence[str], merges: Sequence[str]) -> Tokenizer:
    pairs = [(left, right) for left, right in (merge.split(" ", 1) for merge in merges)]
    tokenizer = Tokenizer(BPE(vocab={name: index for index, name in enumerate(names)}, merges=pairs))
    bytes_of_words = ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = Stages([Digits(individual_digits=True), bytes_of_words])
    tokenizer.decoder = ByteLevelDecoder()
    return tokenizer


def _with_controls(text: Tokenizer, controls: Sequence[str]) -> Tokenizer:
    tokenizer: Tokenizer = Tokenizer.from_str(text.to_str())
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in controls])
    return tokenizer


def _pieces(tokenizer: Tokenizer, controls: frozenset[int]) -> list[bytes]:
    byte_of = _byte_of()
    names = (tokenizer.id_to_token(index) or "" for index in range(tokenizer.get_vocab_size()))
    return [
        b"" if index in controls else bytes(byte_of[character] for character in name)
        for index, name in enumerate(names)
    ]
