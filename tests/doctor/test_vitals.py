"""Figures of activations: of every kernel, of shared blocks, and without a trace in what is trained."""

from dataclasses import replace

import pytest
import torch

from regard.data.sets.batches import Batch
from regard.doctor import vitals
from regard.models import build, preset
from regard.nn.kernels import Full
from regard.registry import kernels
from regard.train.loop import read_metrics
from tests.doctor.faults import chain, examine, writer


def encoder(**changes):
    sizes = dict(dim=16, depth=3, heads=2, ffn_dim=24, vocab_size=48, max_len=16, dropout=0.0)
    return build("bert", preset("bert", "tiny", **sizes, **changes))


def guess(model, batch):
    """An objective for whatever reads ids: its outputs need not mean anything."""
    return model(**batch.inputs).square().mean(), 1


def texts(rows=8):
    ids = torch.from_numpy(chain(0)[: rows * 16]).long().view(rows, 16)
    return Batch({"ids": ids, "lengths": torch.full((rows,), 16)}, ids, ())


@pytest.mark.parametrize("name", list(kernels))
def test_every_kernel_has_entropies_or_none(name):
    found = vitals.activations(encoder(kernel=name, position="sinusoidal"), guess, texts())
    assert found["scale"].keys() >= {f"encoder.blocks.{i}" for i in range(3)}
    assert len(found["entropy"]) == (3 if kernels[name].weighs else 0)
    assert all(-1e-4 <= one < 1.01 for heads in found["entropy"].values() for one in heads)


def test_a_kernel_that_shows_no_weights_is_trained(tmp_path):
    """One's own, that forgets to say so."""

    class Silent(Full):
        def forward(self, *args, **how):
            return super().forward(*args, **how)[0], None

    setup = writer(0)
    for block in setup.model.decoder.blocks:
        block.attention.kernel = Silent(heads=2, head_dim=16)
    setup = replace(setup, config=replace(setup.config, steps=2))
    assert examine(setup, tmp_path) == []
    rows = [row["watch"] for row in read_metrics(tmp_path / "metrics.jsonl") if "watch" in row]
    assert len(rows) == 2 and all(row["entropy"] == {} and row["gradient"] for row in rows)


def test_layers_of_a_shared_block_have_their_own_figures(monkeypatch):
    asked = []
    monkeypatch.setattr(vitals, "weights_of", lambda *a, real=vitals.weights_of, **k: asked.append(1) or real(*a, **k))
    model, apart = encoder(shared=True), encoder()
    apart.load_state_dict(model.state_dict())  # the same weights, three blocks of their own
    found = vitals.activations(model, guess, texts())
    assert len(asked) == 3
    wanted = vitals.activations(apart, guess, texts())
    for kind in ("entropy", "spread"):
        assert found[kind] == {name: pytest.approx(one, rel=1e-4) for name, one in wanted[kind].items()}
    one, two, three = found["spread"].values()
    assert len({one, two, three}) == 3
