"""Runs the model: prompts in chunks, then all rows of a batch one token at a time."""

from collections.abc import Sequence

import torch
from torch.nn.functional import pad
from transformers import DynamicCache, LlamaForCausalLM

Layer = tuple[torch.Tensor, torch.Tensor]


class Prompt:
    """The keys and values of one prompt, as far as it has been read."""

    def __init__(self) -> None:
        self.past = DynamicCache()

    @property
    def length(self) -> int:
        return int(self.past.get_seq_length())


class Decoder:
    """Keys and values of the rows in step, padded on the left to one width. Used by one thread.

    Padding is masked and every row has its own positions, so what a row computes depends on its own tokens
    alone, as far as the arithmetic of the dtype allows: equal choices are promised in fp32 only.
    """

    def __init__(self, model: LlamaForCausalLM) -> None:
        self._model = model
        self._past = DynamicCache()
        self._lengths: list[int] = []

    def begin(self) -> Prompt:
        """A prompt of which nothing has been read."""
        return Prompt()

    def read(self, prompt: Prompt, tokens: Sequence[int]) -> torch.Tensor:
        """Reads the next tokens of a prompt; returns float32 logits [vocabulary] after the last of them."""
        with torch.inference_mode():
            output = self._model(
                input_ids=torch.tensor([list(tokens)]), cache=prompt.past, use_cache=True, logits_to_keep=1
            )
            logits: torch.Tensor = output.logits[0, -1].float()
        return logits

    def join(self, prompt: Prompt) -> None:
        """Adds a read prompt as the last row."""
        with torch.inference_mode():
            width = max(self._width, prompt.length)
            rows = [_widened(_layers(past), width) for past in (self._past, prompt.past) if past.get_seq_length()]
            self._past = _cache([_stacked(same) for same in zip(*rows, strict=True)])
        self._lengths.append(prompt.length)

    def keep(self, rows: Sequence[int]) -> None:
        """Keeps these rows, in this order, and gives back the memory of the others."""
        lengths = [self._lengths[row] for row in rows]
        width = max(lengths, default=0)
        with torch.inference_mode():
            kept = [(keys[rows, :, -width:], values[rows, :, -width:]) for keys, values in _layers(self._past)]
            self._past = _cache(kept) if rows else DynamicCache()
        self._lengths = lengths

    def step(self, tokens: Sequence[int]) -> torch.Tensor:
        """Feeds each row its token; returns float32 logits [rows, vocabulary]. Raises ValueError."""
        if len(tokens) != len(self._lengths):
            raise ValueError(f"{len(tokens)} tokens for {len(self._lengths)} rows")
        with torch.inference_mode():
            positions = torch.tensor(self._lengths)[:, None]
            output = self._model(
                input_ids=torch.tensor(tokens)[:, None],
                attention_mask=self._mask(),
                position_ids=positions,
                cache=self._past,
                use_cache=True,
            )
            logits: torch.Tensor = output.logits[:, -1].float()
        self._lengths = [length + 1 for length in self._lengths]
        return logits

    def clear(self) -> None:
        """Drops every row."""
        self._past, self._lengths = DynamicCache(), []

    @property
    def _width(self) -> int:
        return max(self._lengths, default=0)

    def _mask(self) -> torch.Tensor:
        width = self._width + 1
        starts = torch.tensor([width - 1 - length for length in self._lengths])[:, None]
        return (torch.arange(width)[None, :] >= starts).long()


def _layers(past: DynamicCache) -> list[Layer]:
    return [(layer.keys, layer.values) for layer in past.layers]


def _widened(layers: Sequence[Layer], width: int) -> list[Layer]:
    return [(_left_padded(keys, width), _left_padded(values, width)) for keys, values in layers]


def _left_padded(states: torch.Tensor, width: int) -> torch.Tensor:
    padded: torch.Tensor = pad(states, (0, 0, width - states.shape[-2], 0))
    return padded


def _stacked(same: Sequence[Layer]) -> Layer:
    return torch.cat([keys for keys, _ in same]), torch.cat([values for _, values in same])


def _cache(layers: Sequence[Layer]) -> DynamicCache:
    past = DynamicCache()
    for index, (keys, values) in enumerate(layers):
        past.update(keys, values, index)
    return past
