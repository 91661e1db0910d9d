"""Puts the engine's parts together from the bundled weights. The only way in that imports torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from transformers import LlamaForCausalLM

from workers.engine.decoder import Decoder
from workers.engine.grammar import Grammars
from workers.engine.request import Request
from workers.engine.row import Row
from workers.engine.sampler import Sampler
from workers.engine.tokens import Tokens
from workers.engine.weights import Weights, bundled_file

DTYPES: Final = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True)
class Parts:
    """What reads a request in and what decodes it."""

    tokens: Tokens
    grammars: Grammars
    model: LlamaForCausalLM
    fingerprint: str

    def decoder(self) -> Decoder:
        """One with no rows; it belongs to one batch."""
        return Decoder(self.model)

    def row(self, request: Request, prompt: Sequence[int], limit: int) -> Row:
        """Raises `RefusedError` for a schema that cannot be enforced."""
        return Row(
            prompt,
            limit=limit,
            sampler=Sampler(request.sampling),
            grammar=None if request.schema is None else self.grammars.compile(request.schema),
            stops=request.stops,
            tokens=self.tokens,
        )


def assemble(*, threads: int | None, dtype: str) -> Parts:
    """Loads everything: about four seconds of one core for metadata and vocabulary, two for the weights."""
    if threads is not None:
        torch.set_num_threads(threads)
    weights = Weights(bundled_file())
    tokens = Tokens.from_fields(weights.fields)
    return Parts(
        tokens=tokens,
        grammars=Grammars(tokens),
        model=weights.model(DTYPES[dtype]),
        fingerprint=f"slackwater-local-q4_1-{dtype}",
    )
