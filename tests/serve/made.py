"""Tiny models of every kind with random weights, as directories."""

import json
from functools import cache
from pathlib import Path

import torch

from regard.hub import export_model, save_generation, save_model
from regard.models import build, preset
from regard.tokens import Tokenizer

TEXTS = [
    "The cat sat on the mat – a naïve café for €5.",
    "Die Katze saß auf der Matte; größer, schöner, 日本 und 😀.",
    "a red bird sees the black horse in May, and 123 more.",
] * 3
SIZES = dict(dim=24, heads=3, depth=2, ffn_dim=29, dropout=0.0)
CONTEXT = 64
LONG = 2048
"""The context of the model that never generates EOS, for streams that a client leaves."""
LABELS = ["bad", "good", "so-so"]
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<user>' if message.role == 'user' else '<other>' }}"
    "{{ message.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<answer>{% endif %}"
)


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.train(texts=TEXTS, vocab_size=330, specials=["<user>", "<other>", "<answer>"])


def model_of(family: str, seed: int, **fields):
    """A random model with weights so large that every earlier token matters."""
    torch.manual_seed(seed)
    model = build(family, preset(family, "tiny", **SIZES | {"vocab_size": len(tokenizer())} | fields))
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(2 * noise / parameter.shape[1] ** 0.5 if parameter.dim() > 1 else parameter + 0.2 * noise)
    return model


def save(folder: Path, model, **generation) -> Path:
    save_model(model, folder)
    tokenizer().save(folder)
    if generation:
        save_generation(folder, pad=0, **generation)
    return folder


def make_models(folder: Path) -> dict[str, Path]:
    """Directories by name: language models (one without EOS, one that chats), encoder–decoders, and encoders."""
    readers = dict(max_len=CONTEXT, position="learned")
    models = {
        "gpt": (model_of("gpt", 1, max_len=CONTEXT), dict(bos=1, eos=2)),
        "endless": (model_of("gpt", 2, max_len=LONG), dict(bos=None, eos=None, forbidden=[0, 1, 2])),
        "translate": (model_of("transformer", 3, max_len=CONTEXT), dict(bos=1, eos=2)),
        "t5": (model_of("t5", 7, max_len=CONTEXT), dict(bos=0, eos=2)),
        "embed": (model_of("bert", 4, task="none", **readers), {}),
        "classify": (model_of("bert", 5, task="classify", labels=LABELS, **readers), {}),
        "qa": (model_of("bert", 8, task="answer", **readers), {}),
    }
    made = {name: save(folder / name, model, **generation) for name, (model, generation) in models.items()}
    return made | {"chat": make_chat(folder / "chat")}


def make_chat(folder: Path) -> Path:
    """A Llama in the Hugging Face layout, with a chat template in the settings of its tokenizer."""
    llama = dict(norm="rms", activation="swiglu", bias=False, tie=False, kv_heads=1, max_len=CONTEXT)
    export_model(model_of("gpt", 6, **llama), folder, kind="llama", bos=1, eos=2, pad=0)
    tokenizer().save(folder)
    names = dict(bos_token="<bos>", eos_token="<eos>", pad_token="<pad>")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE} | names
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder
