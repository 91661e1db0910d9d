"""The bundled weights as a directory that vLLM loads: configuration, bfloat16 tensors, tokenizer and chat template."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Final

import torch
from transformers import PreTrainedTokenizerFast

from workers.engine.tokens import Tokens
from workers.engine.weights import Weights, bundled_file

WRITTEN: Final = "written"


def model_directory(build: Path) -> Path:
    """The directory, written once.

    Raises:
        FileNotFoundError: the engine extra, which brings the weights, is not installed.
    """
    folder = build / "smollm2-135m-instruct"
    if not (folder / WRITTEN).exists():
        shutil.rmtree(folder, ignore_errors=True)
        weights = Weights(bundled_file())
        weights.model(torch.bfloat16).save_pretrained(folder)
        save_tokenizer(weights, folder)
        (folder / WRITTEN).touch()
    return folder


def save_tokenizer(weights: Weights, folder: Path) -> None:
    """The very pipeline that our own engine uses: transformers' own conversion merges digits that the model saw apart."""
    fields = weights.fields
    names = fields["tokenizer.ggml.tokens"]
    end = names[fields["tokenizer.ggml.eos_token_id"]]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokens.from_fields(fields).tokenizer,
        eos_token=end,
        pad_token=names[fields["tokenizer.ggml.padding_token_id"]],
        bos_token=names[fields["tokenizer.ggml.bos_token_id"]],
        chat_template=fields["tokenizer.chat_template"],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.save_pretrained(folder)
    told = folder / "tokenizer_config.json"
    config = json.loads(told.read_text())
    told.write_text(json.dumps(config | {"tokenizer_class": "PreTrainedTokenizerFast"}, indent=1))
