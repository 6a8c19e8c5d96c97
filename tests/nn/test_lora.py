"""Low-rank detours: they start as nothing, learn alone, and merge into what they stand beside."""

import pytest
import torch
from torch import nn

from regard.models import build, preset
from regard.nn.lora import LowRank, add_low_rank, merge_low_rank

BERT = dict(
    dim=24, heads=3, ffn_dim=20, depth=2, vocab_size=41, max_len=16, task="tag", labels=("a", "b", "c"), dropout=0.0
)
SIZES = {
    "bert": BERT,
    "gpt": dict(dim=24, heads=3, kv_heads=1, ffn_dim=20, depth=2, vocab_size=41, max_len=16, dropout=0.0, bias=False),
}


def made(family="bert"):
    model = build(family, preset(family, "tiny", **SIZES[family])).eval()
    inputs = {"ids": torch.randint(41, (3, 7))}
    return model, inputs | ({"lengths": torch.tensor([7, 4, 2])} if family == "bert" else {})


def stir(model):
    """Detours as they are after some training."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, LowRank):
                module.wide.normal_(0, 0.3)


def detours(model):
    return [module for module in model.modules() if isinstance(module, LowRank)]


@pytest.mark.parametrize("family", SIZES)
def test_nothing_changes_before_training_something_after(family):
    model, inputs = made(family)
    before = model(**inputs)
    add_low_rank(model, 3)
    assert len(detours(model)) == 4, "queries, and keys with values, of two blocks"
    assert torch.equal(model(**inputs), before)
    stir(model)
    assert (model(**inputs) - before).abs().max() > 1e-3


@pytest.mark.parametrize("family", SIZES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_merged_is_unmerged(family, dtype):
    model, inputs = made(family)
    model.to(dtype)
    names = list(model.state_dict())
    add_low_rank(model, 3)
    stir(model)
    apart = model(**inputs)
    merge_low_rank(model)
    assert not detours(model) and list(model.state_dict()) == names
    assert {p.dtype for p in model.parameters()} == {dtype}
    torch.testing.assert_close(model(**inputs), apart)


def test_a_layer_by_hand():
    frozen = nn.Linear(5, 4)
    layer = LowRank(frozen, 2, scale=3.0)
    x = torch.randn(7, 5)
    with torch.no_grad():
        layer.wide.normal_()
        wanted = frozen(x) + 3.0 * (x @ layer.narrow.T @ layer.wide.T)
    torch.testing.assert_close(layer(x), wanted)
    torch.testing.assert_close(layer.merged()(x), wanted)


def test_only_detours_learn():
    model, inputs = made()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    add_low_rank(model, 3)
    stir(model)
    model(**inputs).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == name.endswith((".narrow", ".wide")) == parameter.requires_grad, name
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= parameter.grad
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before), "what is frozen stays where it was"


def test_a_second_time_adds_nothing_and_rank_must_be_positive():
    model, _ = made()
    add_low_rank(model, 3)
    add_low_rank(model, 3)
    assert len(detours(model)) == 4 and not any(isinstance(d.weight, LowRank) for d in detours(model))
    with pytest.raises(ValueError, match="rank=0 must be at least 1"):
        add_low_rank(model, 0)
