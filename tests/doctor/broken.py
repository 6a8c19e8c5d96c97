"""Models as users write them, in plain torch, each with one fault; and the same without it.

`FAULTS` has (name, cause, make_broken, make_healthy); both makers take a seed and give what make_model may return.
"""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

VOCAB = 61


class Writer(nn.Module):
    """A causal language model with its attention written by hand."""

    def __init__(self, dim=32, heads=2, depth=2, diagonal=0, positions=True, scaled=True):
        super().__init__()
        self.heads, self.diagonal, self.scaled = heads, diagonal, scaled
        self.tokens = nn.Embedding(VOCAB, dim)
        self.places = nn.Embedding(64, dim) if positions else None
        self.blocks = nn.ModuleList(
            nn.ModuleDict({
                "norm": nn.LayerNorm(dim), "qkv": nn.Linear(dim, 3 * dim), "out": nn.Linear(dim, dim),
                "ffn": nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)),
            })
            for _ in range(depth)
        )  # fmt: skip
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, VOCAB)

    def attend(self, x, qkv):
        B, T, D = x.shape
        q, k, v = (each.view(B, T, self.heads, -1).transpose(1, 2) for each in qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-2, -1)
        if self.scaled:
            scores = scores / math.sqrt(q.shape[-1])
        allowed = torch.ones(T, T, dtype=torch.bool, device=x.device).tril(self.diagonal)
        weights = scores.masked_fill(~allowed, float("-inf")).softmax(-1)
        return (weights @ v).transpose(1, 2).reshape(B, T, D)

    def forward(self, idx):
        x = self.tokens(idx)
        if self.places is not None:
            x = x + self.places(torch.arange(idx.shape[1], device=idx.device))
        for block in self.blocks:
            x = x + block["out"](self.attend(block["norm"](x), block["qkv"]))
            x = x + block["ffn"](x)
        return self.head(self.norm(x))


class Encoder(nn.Module):
    """Reads both sides, with PyTorch's own layers; padding is told as in Hugging Face's models."""

    def __init__(self, dim=32, inverted=False, depth=2):
        super().__init__()
        self.inverted = inverted
        self.tokens, self.places = nn.Embedding(VOCAB, dim), nn.Embedding(64, dim)
        layer = nn.TransformerEncoderLayer(dim, 2, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(dim, 5)

    def forward(self, input_ids, attention_mask=None):
        x = self.tokens(input_ids) + self.places(torch.arange(input_ids.shape[1]))
        hidden = None if attention_mask is None else attention_mask.bool() if self.inverted else ~attention_mask.bool()
        return self.head(self.encoder(x, src_key_padding_mask=hidden))


class Reader(nn.Module):
    """Finds the padding by itself, and says one thing about a text."""

    def __init__(self, dim=32, inverted=False):
        super().__init__()
        self.inverted = inverted
        self.tokens, self.places = nn.Embedding(VOCAB, dim, padding_idx=0), nn.Embedding(64, dim)
        self.attention = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 3)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        hidden = tokens != 0 if self.inverted else tokens == 0
        if self.inverted:
            hidden = hidden & ~hidden.all(1, keepdim=True)  # "the loss was NaN without this line"
        x = self.norm(x + self.attention(x, x, x, key_padding_mask=hidden, need_weights=False)[0])
        return self.head(x[:, 0])


class Mixer(nn.Module):
    """nn.MultiheadAttention takes T × B unless it is told otherwise."""

    def __init__(self, dim=32, batch_first=True):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, dim), nn.Parameter(torch.randn(64, dim) * 0.02)
        self.attention = nn.MultiheadAttention(dim, 2, batch_first=batch_first)
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, VOCAB)

    def forward(self, x):
        x = self.tokens(x) + self.places[: x.shape[1]]
        return self.head(self.norm(x + self.attention(x, x, x, need_weights=False)[0]))


class Reshaped(Writer):
    """Puts heads beside rows, and takes them apart again, in the wrong order."""

    def __init__(self, right=False, **sizes):
        super().__init__(**sizes)
        self.right = right

    def attend(self, x, qkv):
        B, T, D = x.shape
        q, k, v = (each.view(B, T, self.heads, -1).transpose(1, 2).flatten(0, 1) for each in qkv(x).chunk(3, -1))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        if self.right:
            return out.view(B, self.heads, T, -1).transpose(1, 2).reshape(B, T, D)
        return out.view(self.heads, B, T, -1).permute(1, 2, 0, 3).reshape(B, T, D)


class Dropping(Writer):
    def __init__(self, always=False, **sizes):
        super().__init__(**sizes)
        self.always = always

    def attend(self, x, qkv):
        out = super().attend(x, qkv)
        return F.dropout(out, 0.1) if self.always else F.dropout(out, 0.1, training=self.training)


def frozen():
    model = Writer()
    model.blocks[1]["ffn"].requires_grad_(False)
    return model


def unused(used=False):
    """A layer that is built and never called."""
    model = Writer()
    if not used:
        model.extra = nn.Linear(32, 32)
    return model


def detached(cut=False):
    class Detached(Writer):
        def attend(self, x, qkv):
            return super().attend(x.detach() if cut else x, qkv).detach() if cut else super().attend(x, qkv)

    return Detached()


def loud(std=1.0):
    """Every matrix from a normal distribution of that width."""
    model = Writer(dim=64)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=std)
    return model


def seeded(make, seed):
    torch.manual_seed(seed)
    return make()


FAULTS = [
    (name, cause, partial(seeded, broken), partial(seeded, healthy))
    for name, cause, broken, healthy in [
        ("causal mask off by one", "future leak", partial(Writer, diagonal=1), Writer),
        ("padding mask inverted", "padding mask inverted", partial(Encoder, inverted=True), Encoder),
        ("padding mask inverted, told by a token", "padding mask inverted", partial(Reader, inverted=True), Reader),
        ("positions missing", "positions missing", partial(Writer, positions=False), Writer),
        ("missing √d_k at width 512", "scores not divided by √d_k",
         partial(Writer, dim=512, heads=1, depth=1, scaled=False), partial(Writer, dim=512, heads=1, depth=1)),
        ("exploding initialisation", "exploding initialisation", loud, partial(loud, 0.02)),
        ("a frozen layer", "a frozen layer", frozen, Writer),
        ("an unused layer", "unused parameters", unused, partial(unused, used=True)),
        ("a gradient cut off", "unused parameters", partial(detached, cut=True), detached),
        ("rows mixed by a reshape", "batch dependence", Reshaped, partial(Reshaped, right=True)),
        ("batch_first forgotten", "batch dependence", partial(Mixer, batch_first=False), Mixer),
        ("dropout left on", "dropout left on", partial(Dropping, always=True), Dropping),
    ]
]  # fmt: skip
