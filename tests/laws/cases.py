"""Small configs of the registered families, and settings of kernels.

A family without a line in SMALL is tried with its first preset. A new kernel needs a line in KERNELS if its own
settings are larger than the examples. Sizes are unequal, and prime where they can be, so that no two axes can be
confused.
"""

import dataclasses
from typing import Any

from torch import nn

import regard.models  # noqa: F401  registers the families
from regard.doctor.case import Case, example
from regard.doctor.families import VOCAB, builder
from regard.hub.checkpoint import load_model, save_model
from regard.registry import kernels, models, positions

__all__ = ["CASES", "KERNELS", "KERNEL_CASES", "PRODUCT", "SMALL", "VOCAB", "case_of", "example", "has", "make"]
SIZES: dict[str, Any] = dict(dim=20, heads=3, head_dim=10, ffn_dim=29, max_len=37, dropout=0.0)
"""Of blocks; heads · head_dim is not dim."""
ENCODER: dict[str, Any] = dict(SIZES, task="mask", pooler=False)
"""The pooled vector takes no part in that task."""
RECURRENT: dict[str, Any] = dict(dim=14, dropout=0.0)
IMAGE: dict[str, Any] = dict(image=(13, 19), channels=2, patch=3, labels=tuple("abcde"))
"""Sizes of image models; the patch divides neither side."""
MASKED: dict[str, Any] = dict(
    IMAGE, dim=24, heads=3, ffn_dim=29, decoder_dim=20, decoder_heads=2, decoder_ffn_dim=31, dropout=0.0
)
del MASKED["labels"]
FINDS: dict[str, Any] = dict(
    image=(37, 53),
    channels=2,
    stem=5,
    labels=tuple("abcde"),
    queries=5,
    contents=True,
    heads=3,
    ffn_dim=29,
    dropout=0.0,
)
"""Sizes of an object detector. Contents that are zeros hide the first self-attention: see tests/models/test_detr.py."""
SEEN: dict[str, Any] = dict(vocab_size=VOCAB, image=(13, 19), channels=2, widths=(5, 6), dropout=0.0)
"""Sizes of an image captioner."""
COMPARED: dict[str, Any] = dict(
    image=(13, 19),
    channels=2,
    patch=3,
    dim=24,
    heads=3,
    ffn_dim=29,
    vocab_size=VOCAB,
    max_len=7,
    text_dim=20,
    text_heads=2,
    text_ffn_dim=31,
    embedding_dim=17,
    dropout=0.0,
)
"""Sizes of an image-text matcher."""
SERIES: dict[str, Any] = dict(SIZES, context=19, horizon=7, patch=5, depth=2)
"""Sizes of a forecaster; the patch does not divide the context."""
CLIP: dict[str, Any] = dict(SIZES, image=(9, 13), channels=2, patch=4, frames=7, labels=tuple("abcde"))
"""Sizes of a model of clips; patch and tubelet divide no side."""
GRAPH: dict[str, Any] = dict(
    dim=20, heads=3, head_dim=10, ffn_dim=29, node_features=5, edge_features=3, labels=tuple("abcd"), steps=3,
    frequencies=3, far=2, dropout=0.0,
)  # fmt: skip
"""Sizes of a model of graphs."""
SMALL: dict[str, list[dict[str, Any]]] = {
    "transformer": [
        dict(SIZES, depth=2),
        dict(SIZES, depth=1, decoder_depth=2, norm_place="post", tie="output", head_bias=True, position="learned"),
        dict(SIZES, depth=1, heads=4, kv_heads=2, norm="rms", activation="swiglu", bias=False, tie="none",
             position="rotary", embedding_scale=False),
        dict(SIZES, depth=1, kv_heads=1, activation="gelu", position="alibi"),
        dict(SIZES, depth=1, norm_place="post", final_norm=True, activation="geglu", position="relative"),
        dict(SIZES, depth=1, norm_place="post", embedding_norm=True, tie="inputs", kernel="normalized"),
        dict(SIZES, depth=2, decoder_depth=1, position="relative", reversible=True),
        dict(SIZES, depth=1, qkv="two", position="fraction"),
    ],
    "t5": [
        dict(SIZES, depth=2, position="relative:buckets=8,far=20"),
        dict(SIZES, depth=1, decoder_depth=2, activation="geglu-tanh", tie="inputs", head_scale=False),
    ],
    "gpt": [
        dict(SIZES, depth=2, position="learned"),
        dict(SIZES, depth=1, position="rotary:base=500000", tie=False),
        dict(SIZES, depth=1, position="alibi", norm_place="post", final_norm=False),
        dict(SIZES, depth=2, heads=4, kv_heads=2, norm="rms", activation="swiglu", bias=False, tie=False),
        dict(SIZES, depth=1, activation="relu2", kernel="normalized"),
        dict(SIZES, depth=3, reversible=True),
        dict(SIZES, depth=2, norm="none", position="index", tie=False),
        dict(SIZES, depth=1, residual=False, norm_place="post"),
        dict(SIZES, depth=2, qkv="one"),
    ],
    "bert": [
        dict(ENCODER, depth=2),
        dict(ENCODER, depth=1, types=0, norm_place="pre", norm="rms", position="rotary"),
        dict(ENCODER, depth=3, types=1, shared=True, embedding_dim=12, activation="gelu-tanh"),
        dict(ENCODER, depth=1, kv_heads=1, activation="relu", position="relative"),
        dict(ENCODER, depth=2, norm_place="pre", shared=True, reversible=True),
    ],
    "rnn": [dict(RECURRENT, depth=1), dict(RECURRENT, depth=2)],
    "gru": [dict(RECURRENT, depth=1), dict(RECURRENT, depth=2)],
    "lstm": [dict(RECURRENT, depth=1), dict(RECURRENT, depth=2)],
    "skipgram": [dict(dim=23)],
    "bilstm": [dict(RECURRENT), dict(RECURRENT, depth=1, hidden_dim=17), dict(RECURRENT, clip=3.0, residual=False)],
    "seq2seq": [
        dict(dim=14, dropout=0.0),
        dict(dim=14, dropout=0.0, score="none", cell="lstm"),
        dict(dim=14, dropout=0.0, score="dot", cell="rnn", depth=2),
        dict(dim=14, dropout=0.0, score="general", cell="lstm", depth=2),
        dict(dim=14, dropout=0.0, score="additive", cell="gru", depth=2),
    ],
    "mvit": [
        dict(IMAGE, dim=6, heads=2, depths=(1, 2, 1), key_stride=2),
        dict(IMAGE, dim=10, depths=(1, 1), key_stride=3, position="learned", residual=False, activation="relu"),
        dict(IMAGE | dict(labels=()), dim=8, depths=(2,), key_stride=4, patch=2),
    ],
    "cnn-attention": [
        dict(IMAGE, dim=6, depths=(1, 2), heads=3),
        dict(IMAGE, dim=10, depths=(1, 1), attention=2, heads=4, activation="relu"),
        dict(IMAGE | dict(labels=()), dim=7, depths=(2,), attention=0, patch=2),
    ],
    "lr-net": [
        dict(IMAGE, dim=10, depths=(1, 2), window=3, share=3, squeeze=2),
        dict(IMAGE, dim=8, depths=(1,), window=5, share=2, activation="relu"),
        dict(IMAGE | dict(labels=()), dim=12, depths=(1, 1), window=3, patch=2),
    ],
    "swin": [
        dict(IMAGE, dim=6, depths=(2, 1), heads=(2, 3), window=2),
        dict(IMAGE, dim=10, depths=(3,), heads=(2,), window=3, activation="relu", attention_dropout=0.0),
        dict(IMAGE, dim=6, depths=(2, 2), heads=(3, 2), window=2, kernel="cosine", offsets="log", norm_place="post"),
        dict(IMAGE | dict(labels=()), dim=6, depths=(1, 2), heads=(2, 1), window=3, offsets="log", norm_place="post",
             trained_windows=(2, 0)),
    ],
    "vit": [
        dict(SIZES, **IMAGE, depth=2),
        dict(SIZES, **IMAGE, depth=1, pooling="mean", norm="rms", activation="swiglu", position="rotary"),
        dict(SIZES, **IMAGE, depth=1, teacher="head", norm_place="post", kv_heads=1),
        dict(SIZES, **IMAGE | dict(labels=()), depth=1, teacher="token", position="relative"),
        dict(SIZES, **IMAGE, depth=2, reversible=True),
    ],
    "video-vit": [
        dict(CLIP, depth=3),
        dict(CLIP, depth=2, attention="divided", tubelet=1, kv_heads=1),
        dict(CLIP, depth=1, attention="divided", tubelet=3, pooling="mean", norm="rms", position="rotary"),
        dict(CLIP, depth=1, attention="factorised", over=2),
        dict(CLIP | dict(labels=()), depth=1, attention="factorised", over=1, pooling="mean", norm_place="post"),
        dict(CLIP, depth=1, times="joint", position="sinusoidal", pooling="mean", norm_mean=True, reversible=True),
        dict(CLIP | dict(labels=()), depth=1, times="joint", activation="relu"),
    ],
    "captioner": [
        dict(SEEN, dim=14, heads=2),
        dict(SEEN, dim=14, heads=2, cell="lstm", layers=2, widths=(5,)),
        dict(SEEN, dim=14, heads=2, cell="rnn", score="dot", widths=(4, 5, 6)),
        dict(SEEN | SIZES, decoder="transformer", depth=2),
        dict(SEEN | SIZES, decoder="transformer", depth=1, norm_place="post", position="learned"),
    ],
    "detr": [
        dict(FINDS, widths=(8, 12), blocks=(1, 2), dim=24, depth=1, decoder_depth=2, norm_place="pre"),
        dict(FINDS, widths=(6, 7, 11), blocks=(1, 1, 1), bottleneck=False, frozen=False, dim=36, depth=1,
             decoder_depth=1, activation="gelu"),
    ],
    "clip": [
        dict(COMPARED, depth=2, text_depth=1),
        dict(COMPARED, depth=1, text_depth=1, stem=(8,), patch=2),
        dict(COMPARED, depth=1, text_depth=2, norm="rms", activation="swiglu", position="rotary", norm_place="post"),
    ],
    "patchtst": [
        dict(SERIES, quantiles=(0.1, 0.5, 0.9), linear=True),
        dict(SERIES, channels=3, attends="both", norm_place="post", stride=3, covariates=2),
        dict(SERIES, channels=5, attends="channels", pooling="max", position="rotary", scaling="none"),
        dict(SERIES, channels=2, batch_norm=True, pooling="mean", covariates=1),
    ],
    "graph-transformer": [
        dict(GRAPH, depth=2, encodings=("degree", "walk", "laplacian", "distance", "path")),
        dict(GRAPH | dict(labels=()), depth=2, encodings=("laplacian",), attention="edges", pooling="sum", numbers=2),
        dict(GRAPH, depth=1, encodings=("walk", "degree"), attention="edges", level="nodes", norm="rms"),
        dict(GRAPH | dict(labels=()), depth=1, encodings=("distance",), numbers=2, norm_place="post"),
        dict(GRAPH | dict(labels=(), edge_features=0), depth=1, encodings=(), attention="edges"),
    ],
    "mae": [
        dict(MASKED, depth=2, decoder_depth=1),
        dict(MASKED, depth=1, decoder_depth=2, position="grid", hidden=0.5, norm_place="post"),
    ],
}  # fmt: skip

CASES = [(family, number) for family in models for number in range(len(SMALL.get(family, [{}])))]


def make(family: str, number: int = 0, **changes: Any) -> nn.Module:
    """A model of a family's small config; of one that has none here, of its first preset."""
    if family not in SMALL:
        return builder(family)(**changes)
    sizes = SMALL[family][number] | changes
    if has(family, "vocab_size"):
        sizes = dict(vocab_size=VOCAB) | sizes
    return models[family](models[family].config_class(**sizes)).eval()


def case_of(family: str, number: int = 0, **changes: Any) -> Case:
    return Case(lambda **more: make(family, number, **changes | more), (save_model, load_model))


def has(family: str, field: str) -> bool:
    return field in {f.name for f in dataclasses.fields(models[family].config_class)}


KERNELS: dict[str, list[str]] = {
    "window": ["window:radius=2,chunk=3", "window:radius=3"],
    "sparse": ["sparse:radius=1,stride=3,far=2,tokens=2,chunk=2", "sparse:radius=2,stride=2,far=3,tokens=0"],
    "topk": ["topk:k=3,chunk=4", "topk:k=2,temperature=0.5,chunk=5"],
    "linear": ["linear:chunk=4"],
    "performer": ["performer:features=256,chunk=3"],
    "linformer": ["linformer:rank=5"],
    "reformer": ["reformer:buckets=4,reach=2,rounds=2,chunk=3", "reformer:buckets=2,reach=3,rounds=3"],
}
"""Names with settings so small that examples of 7 to 31 positions cross windows, chunks and buckets."""

KNOW_ORDER = {"linformer", "reformer"}
"""Kernels that treat positions differently although no rule of theirs says so."""

KERNEL_CASES = [case for name in kernels for case in KERNELS.get(name, [name])]

PRODUCT = [
    (family, kernel, position)
    for family in ("bert", "gpt", "t5", "transformer", "vit")
    for kernel in KERNEL_CASES
    for position in positions
]
