"""The directory that vLLM loads says the same as the bundled file: its tokens, and its chat template."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.engine


def test_the_saved_tokenizer_is_our_own(tmp_path: Path) -> None:
    """Digits apart, control tokens whole, the assistant's turn opened: what transformers' own conversion gets wrong."""
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from benchmarks.beside_live.weights import save_tokenizer
    from workers.engine.tokens import Tokens
    from workers.engine.weights import Weights, bundled_file

    weights = Weights(bundled_file())
    save_tokenizer(weights, tmp_path)
    saved, ours = transformers.AutoTokenizer.from_pretrained(tmp_path), Tokens.from_fields(weights.fields)

    for text in ("a  12 + 345", "def f(x):\n    return x", "<|im_start|>user\nhé<|im_end|>"):
        assert saved.encode(text, add_special_tokens=False) == ours.encode(text)
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    assert saved.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == ours.render(chat)
    assert saved.eos_token_id == weights.fields["tokenizer.ggml.eos_token_id"]
