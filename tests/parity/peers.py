"""Tiny models made by `transformers` itself, with random weights, and how they are compared with ours."""

import json
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard.hub import load_model

transformers = pytest.importorskip("transformers")

CLOSE = 1e-5
VOCAB, PAD, EOS = 97, 1, 2
MARKS: dict[str, Any] = dict(vocab_size=VOCAB, pad_token_id=PAD, bos_token_id=0, eos_token_id=EOS)


def random_model(cls: Any, config: Any, seed: int = 3) -> Any:
    """Biases start at 0 and norms at 1, where a swapped pair would not show: every weight is moved."""
    torch.manual_seed(seed)
    model = cls(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model


def gpt2(**changes: Any) -> Any:
    sizes = dict(n_embd=21, n_head=3, n_layer=2, n_inner=37, n_positions=41)
    config = transformers.GPT2Config(**(MARKS | sizes | changes))
    return random_model(transformers.GPT2LMHeadModel, config)


def llama(**changes: Any) -> Any:
    sizes = dict(
        hidden_size=28, num_attention_heads=4, num_key_value_heads=2, head_dim=10, num_hidden_layers=2,
        intermediate_size=37, max_position_embeddings=41,
    )  # fmt: skip
    config = transformers.LlamaConfig(**(MARKS | sizes | changes))
    return random_model(transformers.LlamaForCausalLM, config)


ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", dict(hidden_size=21, num_attention_heads=3, num_hidden_layers=2, intermediate_size=37,
                          max_position_embeddings=23, type_vocab_size=3)),
    "roberta": ("Roberta", dict(hidden_size=21, num_attention_heads=3, num_hidden_layers=2, intermediate_size=37,
                                max_position_embeddings=23, type_vocab_size=1, layer_norm_eps=1e-5)),
    "distilbert": ("DistilBert", dict(dim=21, n_heads=3, n_layers=2, hidden_dim=37, max_position_embeddings=23)),
    "albert": ("Albert", dict(embedding_size=11, hidden_size=21, num_attention_heads=3, num_hidden_layers=3,
                              intermediate_size=37, max_position_embeddings=23)),
}  # fmt: skip


def encoder(kind: str, head: str = "Model", **changes: Any) -> Any:
    name, sizes = ENCODERS[kind]
    config = getattr(transformers, f"{name}Config")(**(MARKS | sizes | changes))
    return random_model(getattr(transformers, name + head), config)


def t5(**changes: Any) -> Any:
    sizes = dict(
        d_model=22, num_heads=3, d_kv=5, d_ff=37, num_layers=3, num_decoder_layers=2,
        relative_attention_num_buckets=8, relative_attention_max_distance=11, decoder_start_token_id=PAD,
        initializer_factor=0.6,  # scores that are not scaled magnify what float32 rounds away
    )  # fmt: skip
    config = transformers.T5Config(**(MARKS | sizes | changes))
    return random_model(transformers.T5ForConditionalGeneration, config)


def bart(**changes: Any) -> Any:
    sizes = dict(
        d_model=21, encoder_layers=2, decoder_layers=3, encoder_attention_heads=3, decoder_attention_heads=3,
        encoder_ffn_dim=37, decoder_ffn_dim=37, max_position_embeddings=23, decoder_start_token_id=EOS,
        forced_eos_token_id=EOS,
    )  # fmt: skip
    config = transformers.BartConfig(**(MARKS | sizes | changes))
    model = random_model(transformers.BartForConditionalGeneration, config)
    model.final_logits_bias += 0.3 * torch.randn_like(model.final_logits_bias)
    return model


def saved(model: Any, directory: Any) -> Any:
    """Our model, from what theirs saved."""
    model.save_pretrained(directory)
    return load_model(directory)


def batch(rows: int = 5, width: int = 13, seed: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    """Ids padded on the right, their lengths, and the mask that says the same."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, width, (rows,), generator=generator)
    lengths[rows // 2] = width
    attention = (torch.arange(width) < lengths[:, None]).long()
    ids = torch.randint(PAD + 2, VOCAB, (rows, width), generator=generator)
    return ids.masked_fill(attention == 0, PAD), lengths, attention


def far(one: Tensor, other: Tensor, attention: Tensor | None = None) -> float:
    """The largest difference, where `attention` is 1."""
    assert one.shape == other.shape and other.std() > 0.1
    gap = (one - other).abs()
    return float(gap.max() if attention is None else gap[attention.bool()].max())


def learn(model: Any, loss: Any, steps: int, rate: float = 1e-2) -> Any:
    """A few steps: random weights alone repeat one token for ever."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for step in range(steps):
        loss(model, step).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def change_config(directory: Any, **changes: Any) -> None:
    path = directory / "config.json"
    fields = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in fields.items() if value is not ...}))


def change_tensors(directory: Any, change: Any) -> None:
    path = directory / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


def whisper(**changes: Any) -> Any:
    sizes = dict(
        d_model=20, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=37, decoder_ffn_dim=37, num_mel_bins=8, max_source_positions=15, max_target_positions=31,
        decoder_start_token_id=EOS + 1, suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    config = transformers.WhisperConfig(**(MARKS | sizes | changes))
    return random_model(transformers.WhisperForConditionalGeneration, config)
