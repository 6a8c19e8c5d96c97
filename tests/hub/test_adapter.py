"""Runs that keep only what they trained: little, exactly that, and never on top of other weights."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.hub import load_model, save_model
from regard.hub.adapter import ADAPTER, begin_from, fingerprint, save_adapter, tune
from regard.models import Bert, BertConfig, build, preset

SMALL = dict(dim=24, heads=3, ffn_dim=20, depth=2, vocab_size=41, max_len=16)
IDS, LENGTHS = torch.randint(41, (3, 7), generator=torch.Generator().manual_seed(3)), torch.tensor([7, 4, 2])


@pytest.fixture
def base(tmp_path):
    model = Bert(BertConfig(**SMALL, task="pretrain"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    save_model(model, tmp_path / "base")
    return tmp_path / "base"


def classifier(base, how, labels=("a", "b", "c")):
    """A model with a new head on the base's weights, its trained part moved as training would."""
    model = begin_from(load_model(base), BertConfig(**SMALL, task="classify", labels=labels)).eval()
    tune(model, how, 2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.1 * torch.randn_like(parameter)
    return model


def run_of(base, how="lora"):
    model, out = classifier(base, how), base.parent / how
    save_adapter(model, out, base=base, mode=how, rank=2)
    return model, out


def test_a_new_head_on_old_weights(base):
    old = load_model(base)
    new = begin_from(old, BertConfig(**SMALL, task="tag", labels=("a", "b")))
    assert torch.equal(old.features(IDS, LENGTHS), new.eval().features(IDS, LENGTHS))
    assert new(IDS, LENGTHS).shape == (3, 7, 2)
    assert torch.equal(new.pooler.dense.weight, old.pooler.dense.weight)


def test_a_head_stays_for_its_own_labels_only(base, tmp_path):
    first = classifier(base, "all")
    labels = {"same": ("a", "b", "c"), "other": ("x", "y", "z")}
    heads = {
        name: begin_from(first, BertConfig(**SMALL, task="classify", labels=own)).head.out.weight
        for name, own in labels.items()
    }
    assert torch.equal(heads["same"], first.head.out.weight)
    assert not torch.equal(heads["other"], first.head.out.weight)


@pytest.mark.parametrize("how", ["lora", "head"])
def test_saved_is_what_learned_and_loaded_is_the_same(base, how):
    model, out = run_of(base, how)
    stored = load_file(out / ADAPTER)
    assert set(stored) == {name for name, p in model.named_parameters() if p.requires_grad}
    kinds = {name.split(".")[0] if not name.endswith((".narrow", ".wide")) else "detour" for name in stored}
    assert kinds == {"head", "pooler"} | ({"detour"} if how == "lora" else set())
    again = load_model(out)
    torch.testing.assert_close(again(IDS, LENGTHS), model(IDS, LENGTHS))
    assert again.config == model.config and not again.training
    assert not any(name.endswith((".narrow", ".wide")) for name in again.state_dict()), "detours are merged"


def test_loading_leaves_the_dice_alone(base):
    _, out = run_of(base)
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    load_model(out)
    assert torch.equal(torch.rand(3), wanted)


@pytest.mark.parametrize("task", ["classify", "tag", "answer", "none"])
def test_at_most_two_percent_of_minilm(task):
    with torch.device("meta"):
        config = preset("bert", "minilm-l6", task=task, labels=["no", "yes"])
        model = build("bert", config)
        tune(model, "lora", 8)
        total = sum(p.numel() for p in model.parameters())
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    detours = 6 * 8 * ((384 + 384) + (384 + 768))  # queries, and keys with values, of six blocks
    head = 2 * 384 + 2 if task != "none" else 0
    pooler = 384 * 384 + 384 if task == "classify" else 0
    assert trained == detours + head + pooler and trained / total < 0.02


def test_what_the_head_does_not_read_is_not_tuned(base):
    """A model of vectors has no head, although its base left a pooler."""
    model = begin_from(load_model(base), BertConfig(**SMALL, task="none"))
    with pytest.raises(ValueError, match="no head to tune by itself; use --data.tune all or lora"):
        tune(model, "head", 2)


def test_a_tied_output_is_no_head_of_its_own():
    sizes = dict(dim=24, heads=3, depth=2, vocab_size=41)
    with pytest.raises(ValueError, match="no head to tune by itself"):
        tune(build("gpt", preset("gpt", "tiny", **sizes, tie=True)), "head", 2)
    model = build("gpt", preset("gpt", "tiny", **sizes, tie=False))
    tune(model, "head", 2)
    assert [name for name, p in model.named_parameters() if p.requires_grad] == ["head.weight"]


def test_a_base_that_is_gone_or_changed(base):
    _, out = run_of(base)
    away = base.rename(base.with_name("away"))
    with pytest.raises(
        ValueError, match=f"{out} holds only what was trained on top of {base}, which is missing; restore it"
    ):
        load_model(out)
    away.rename(base)
    tensors = load_file(base / "model.safetensors")
    tensors["embedding.weight"] += 1
    save_file(tensors, base / "model.safetensors")
    with pytest.raises(ValueError, match=f"{base} has changed since {out} was trained on top of it; put the old"):
        load_model(out)


def test_an_adapter_that_is_damaged_or_of_another_base(base):
    _, out = run_of(base)
    whole = (out / ADAPTER).read_bytes()
    (out / ADAPTER).write_bytes(whole[:100])
    with pytest.raises(ValueError, match=f"{ADAPTER} is cut short or damaged"):
        load_model(out)
    (out / ADAPTER).write_bytes(whole)
    tensors = load_file(out / ADAPTER)
    save_file(tensors | {"head.out.weight": torch.zeros(2, 24)}, out / ADAPTER)
    with pytest.raises(ValueError, match=r"head.out.weight has shape .*, not .* as config.json asks"):
        load_model(out)
    save_file({name: value for name, value in tensors.items() if name != "head.out.bias"}, out / ADAPTER)
    with pytest.raises(ValueError, match="tensor 'head.out.bias' does not match; this is the adapter of another base"):
        load_model(out)


def test_the_fingerprint_is_of_the_weights(base, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(base, copy)
    (copy / "readme.txt").write_text("more")
    assert fingerprint(copy) == fingerprint(base)
    _, out = run_of(base)
    assert json.loads((out / "config.json").read_text())["adapter"]["base_sha256"] == fingerprint(base)


def test_an_adapter_that_is_not_finite_is_refused(base):
    out = run_of(base)[1]
    stored = load_file(out / ADAPTER)
    name = sorted(stored)[0]
    stored[name].view(-1)[0] = float("nan")
    save_file(stored, out / ADAPTER)
    with pytest.raises(ValueError, match=f"{ADAPTER}: tensor {name} has 1 of .* values that are NaN or infinite"):
        load_model(out)
