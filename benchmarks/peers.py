"""Speed beside PyTorch's own Transformer and Hugging Face's Marian, in one interleaved run.

    python benchmarks/peers.py [train] [translate] [--repeats 7] [--json]

Every contestant takes its turn in every round, so a noisy machine disturbs all alike; what counts is the ratio.
Training: the `tiny` shape, a vocabulary of 10,000, AdamW, batches of 4,096 tokens with sentence lengths as in
everyday captions. All contestants get the same length-sorted batches; the peers also once in random order, as a
loader without buckets would hand them out. Translation: 64 sources of 20 tokens, 20 tokens out, float32.
"""

import argparse
import json
import logging
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from regard.data.sets.batches import IGNORE, Batch, IdPair, Stream, pair_collate
from regard.decode import beam_search, generate
from regard.models import build, preset
from regard.objectives.next_token import next_token
from regard.train.optim import build_optimizers

VOCAB = 10_000
SHAPES = {"tiny": (128, 4, 4, 256), "base": (512, 6, 8, 2048)}  # dim, depth, heads, ffn_dim


def regard_model(shape: str) -> nn.Module:
    return build("transformer", preset("transformer", shape, vocab_size=VOCAB, dropout=0.1))


class TorchTransformer(nn.Module):
    """`torch.nn.Transformer` with the embeddings and the tied output that it leaves to its user."""

    def __init__(self, shape: str) -> None:
        super().__init__()
        dim, depth, heads, ffn = SHAPES[shape]
        self.embedding = nn.Embedding(VOCAB, dim)
        nn.init.normal_(self.embedding.weight, std=dim**-0.5)
        self.positions = nn.Parameter(torch.zeros(512, dim), requires_grad=False)
        self.inner = nn.Transformer(dim, heads, depth, depth, ffn, 0.1, batch_first=True, norm_first=True)
        for layer in [*self.inner.encoder.layers, *self.inner.decoder.layers]:
            layer.dropout.p = 0.0  # as the others: no dropout on hidden units and on weights, where it would cost
            for name in ("self_attn", "multihead_attn"):
                if hasattr(layer, name):
                    getattr(layer, name).dropout = 0.0

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids) * self.embedding.embedding_dim**0.5 + self.positions[: ids.shape[1]]
        return F.dropout(x, 0.1, self.training)

    def loss(self, batch: Batch) -> torch.Tensor:
        source, lengths, target = (batch.inputs[name] for name in ("source", "lengths", "target"))
        padded = torch.arange(source.shape[1]) >= lengths[:, None]
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1], dtype=torch.bool)
        x = self.inner(
            self.embed(source), self.embed(target), tgt_mask=causal, tgt_is_causal=True,
            src_key_padding_mask=padded, memory_key_padding_mask=padded,
        )  # fmt: skip
        scores = F.linear(x, self.embedding.weight)
        return F.cross_entropy(scores.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORE, label_smoothing=0.1)


def marian(shape: str) -> nn.Module:
    from transformers import MarianConfig, MarianMTModel
    from transformers.utils import logging as quiet

    quiet.set_verbosity_error()
    dim, depth, heads, ffn = SHAPES[shape]
    config = MarianConfig(
        vocab_size=VOCAB, d_model=dim, encoder_layers=depth, decoder_layers=depth, encoder_attention_heads=heads,
        decoder_attention_heads=heads, encoder_ffn_dim=ffn, decoder_ffn_dim=ffn, scale_embedding=True, dropout=0.1,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=0, forced_eos_token_id=None,
        activation_function="relu",
    )  # fmt: skip
    return MarianMTModel(config)


def marian_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    source, lengths, target = (batch.inputs[name] for name in ("source", "lengths", "target"))
    mask = (torch.arange(source.shape[1]) < lengths[:, None]).long()
    scores = model(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
    return F.cross_entropy(scores.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORE, label_smoothing=0.1)


def make_batches(count: int, *, sort: bool) -> list[Batch]:
    """Sentences of 5 to 40 tokens, 14 on average, in batches of 4,096 tokens, padding included."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.gamma(9, 1.55, size=24_000).astype(int), 5, 40)
    other = np.clip((lengths * rng.normal(1.03, 0.12, size=len(lengths))).astype(int), 5, 44)
    sources = [rng.integers(3, VOCAB, n).tolist() for n in lengths]
    targets = [rng.integers(3, VOCAB, n).tolist() for n in other]
    pairs = [IdPair(source, target) for source, target in zip(sources, targets, strict=True)]
    stream = Stream(lambda _: pairs, pair_collate(bos=1, eos=2, pad_id=0), 4096)
    if sort:
        return [batch for (_, _, batch), _ in zip(stream.batches(), range(count), strict=False)]
    groups, start = [], 0
    for _ in range(count):  # as many sentences as fit when the longest of them decides
        size = 1
        while (max(lengths[start : start + size + 1].max(), other[start : start + size + 1].max()) + 1) * size < 4096:
            size += 1
        groups.append(np.arange(start, start + size))
        start += size
    return [stream.collate([pairs[i] for i in group]) for group in groups]


def train_step(name: str, model: nn.Module) -> Callable[[Batch], int]:
    optimizers = build_optimizers(model, name="adamw", lr=1e-4, betas=(0.9, 0.98), weight_decay=0.01)

    def step(batch: Batch) -> int:
        count = int((batch.targets != IGNORE).sum())
        if name == "regard":
            loss = next_token(model, batch, smoothing=0.1)[0] / count
        else:
            loss = model.loss(batch) if isinstance(model, TorchTransformer) else marian_loss(model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return count

    return step


def measure(contestants: dict[str, Callable[[], int]], repeats: int) -> dict[str, list[float]]:
    """Tokens a second of each contestant in each round; one round before that to warm up."""
    speeds: dict[str, list[float]] = {name: [] for name in contestants}
    for round_ in range(repeats + 1):
        for name, run in contestants.items():
            started = time.perf_counter()
            tokens = run()
            if round_:
                speeds[name].append(tokens / (time.perf_counter() - started))
    return speeds


def bench_train(repeats: int) -> dict[str, list[float]]:
    sorted_, mixed = make_batches(3, sort=True), make_batches(3, sort=False)
    steps = {
        "regard": train_step("regard", regard_model("tiny").train()),
        "torch.nn.Transformer": train_step("torch", TorchTransformer("tiny").train()),
        "Hugging Face Marian": train_step("marian", marian("tiny").train()),
    }
    contestants = {name: (lambda s=step: sum(map(s, sorted_))) for name, step in steps.items()}
    for name in list(steps)[1:]:
        contestants[f"{name}, not sorted"] = lambda s=steps[name]: sum(map(s, mixed))
    return measure(contestants, repeats)


def bench_translate(shape: str, beams: int, repeats: int) -> dict[str, list[float]]:
    """Both are made to write exactly 20 tokens: <eos> (id 2) is forbidden until the end."""
    ours, theirs = regard_model(shape).eval(), marian(shape).eval()
    source = torch.randint(3, VOCAB, (64, 20), generator=torch.Generator().manual_seed(0))
    lengths = torch.full((64,), 20)
    tokens, start = 64 * 20, torch.ones(64, 1, dtype=torch.long)
    ends = dict(eos=2, source=source, lengths=lengths, max_len=20, forbidden=[0, 2], force_end=False)

    def run_ours() -> int:
        if beams == 1:
            found = [[hypothesis] for hypothesis in generate(ours, start, **ends)]
        else:
            found = beam_search(ours, start, beams=beams, **ends)
        assert all(len(best[0].ids) == 20 for best in found)
        return tokens

    @torch.inference_mode()
    def run_theirs() -> int:
        found = theirs.generate(
            source, attention_mask=torch.ones_like(source), num_beams=beams, do_sample=False, max_new_tokens=20,
            suppress_tokens=[0, 2],
        )  # fmt: skip
        assert found.shape[1] == 21
        return tokens

    return measure({"regard": run_ours, "Hugging Face Marian": run_theirs}, repeats)


def show(title: str, speeds: dict[str, list[float]], unit: str) -> dict[str, object]:
    """A table of medians with their spread, and the ratio to each contestant, round by round."""
    print(f"\n{title} ({unit}; median, spread of {len(speeds['regard'])} rounds)", file=sys.stderr)
    rows = {}
    for name, values in speeds.items():
        ratios = [own / other for own, other in zip(speeds["regard"], values, strict=True)]
        rows[name] = {"median": statistics.median(values), "low": min(values), "high": max(values),
                      "regard_is": statistics.median(ratios)}  # fmt: skip
        print(
            f"  {name:36} {rows[name]['median']:9,.0f}  ({min(values):,.0f}–{max(values):,.0f})"
            f"   regard is {rows[name]['regard_is']:.2f}× ({min(ratios):.2f}–{max(ratios):.2f})",
            file=sys.stderr,
        )
    return {"title": title, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=[], help="train, translate; both without")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    tables = []
    if not options.what or "train" in options.what:
        tables.append(show("Training, tiny", bench_train(options.repeats), "target tokens/s"))
    if not options.what or "translate" in options.what:
        for shape in ("tiny", "base"):
            for beams in (1, 4):
                how = "greedy" if beams == 1 else f"beam {beams}"
                speeds = bench_translate(
                    shape, beams, options.repeats if shape == "tiny" else max(3, options.repeats // 2)
                )
                tables.append(show(f"Translation, {shape}, {how}", speeds, "tokens/s"))
    if options.json:
        print(json.dumps(tables))


if __name__ == "__main__":
    main()
