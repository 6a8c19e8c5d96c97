"""`regard cheaper`: models really get smaller, and what is said about them is measured on other examples."""

import json
from dataclasses import replace

import pytest
import torch

from regard.data.sets.batches import Batch
from regard.decide import cheaper
from regard.decide.cheaper import mark_frontier, measure_cheaper, widened
from regard.decide.options import Option, Source, combinations
from regard.eval.cut import cut, cut_blocks, cut_heads, cut_units, heads_to_remove
from regard.hub.checkpoint import load_model, save_model
from regard.inside.capture.ablation import without
from regard.objectives.distill import distillation
from regard.recipes import fit, recipe
from regard.tasks import EvalSet, load
from regard.why.statistics import Interval
from tests.cli.calling import call, fails
from tests.recipes.tiny import SIZES, shared


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return shared(tmp_path_factory)


@pytest.fixture(scope="module")
def run(tiny, tmp_path_factory):
    out = tmp_path_factory.mktemp("cheaper") / "run"
    fit(recipe("translate", SIZES | tiny.files["t5"]), out, quiet=True)
    return out


@pytest.fixture(scope="module")
def source(run):
    return Source.read(run, run)


@torch.no_grad()
def test_heads_that_are_cut_out_are_those_that_are_switched_off(source, tmp_path):
    model = source.model()
    smaller = cut_heads(model, 1, source.loss)
    inputs = source.batches[0].inputs
    with without(model, heads_to_remove(model, 1, source.loss)):
        torch.testing.assert_close(smaller(**inputs), model(**inputs), atol=1e-5, rtol=1e-5)
    assert smaller.config.heads == 1 and smaller.config.head_dim == 8
    assert sum(p.numel() for p in smaller.parameters()) < sum(p.numel() for p in model.parameters())
    save_model(smaller, tmp_path)
    assert torch.equal(load_model(tmp_path)(**inputs), smaller(**inputs))


def test_heads_whose_slopes_depend_on_their_number_stay(tiny, source):
    model = source.model()
    slopes = type(model)(replace(model.config, position="alibi")).eval()
    with pytest.raises(ValueError, match="depends on how many there are"):
        cut_heads(slopes, 1, source.loss)
    with pytest.raises(ValueError, match=r"position.table cannot be cut from \(32, 2\)"):
        cut_heads(load(tiny.run("t5")).model, 1, source.loss)


@torch.no_grad()
def test_hidden_units_and_blocks(source):
    model, inputs = source.model(), source.batches[0].inputs
    torch.testing.assert_close(cut_units(model, model.config.ffn_dim, source.batches)(**inputs), model(**inputs))
    narrow = cut_units(model, 5, source.batches)
    assert narrow.config.ffn_dim == 5 and narrow(**inputs).shape == model(**inputs).shape
    for layer in (block.feedforward for block in model.encoder.blocks):
        layer.down.weight[:, 5:] = 0  # units that add nothing
    kept = cut_units(model, 5, source.batches).encoder.blocks[0].feedforward.down.weight
    assert torch.equal(kept, model.encoder.blocks[0].feedforward.down.weight[:, :5])
    deep = type(model)(replace(model.config, depth=5))
    short = cut_blocks(deep, 0.5)
    assert [len(short.encoder.blocks), len(short.decoder.blocks)] == [2, 2]
    first, last = (block.feedforward.up.weight for block in short.encoder.blocks)
    assert torch.equal(first, deep.encoder.blocks[0].feedforward.up.weight)
    assert torch.equal(last, deep.encoder.blocks[4].feedforward.up.weight)
    with pytest.raises(ValueError, match="no stack of blocks that could be shorter"):
        cut_blocks(model, 0.5)
    with pytest.raises(ValueError, match="weights of its own"):
        cut(model, {"kernel": "performer"})


def test_a_student_learns_from_its_teacher():
    teacher, student = torch.nn.Linear(3, 4), torch.nn.Linear(3, 4)

    class Model(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x)

    batch = Batch({"x": torch.randn(2, 5, 3)}, torch.tensor([[1, 2, 3, -100, -100], [0, 1, 2, 3, -100]]), ())
    objective = distillation(Model(teacher))
    loss, count = objective(Model(student), batch)
    least, _ = objective(Model(teacher), batch)
    assert count == 7 and loss > least
    loss.backward()
    assert student.weight.grad is not None and teacher.weight.grad is None
    probabilities = teacher(batch.inputs["x"]).softmax(-1)[batch.targets != -100]
    assert least.item() == pytest.approx(-(probabilities * probabilities.log()).sum().item(), rel=1e-5)


def test_parts_are_all_of_the_examples():
    test = EvalSet(data=None, own=None)
    for items in (list(range(23)), "a text of some length"):
        parts = [replace(test, part=(i, 4)).share(items) for i in range(4)]
        assert sorted("".join(parts) if isinstance(items, str) else sum(parts, [])) == sorted(items)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    calls = []
    for i in range(3):
        replace(test, part=(i, 3)).read("examples", lambda: calls.append("read") or [1, 2, 3])
    assert calls == ["read"], "they are read once"


def test_the_frontier_and_combinations():
    rows = [{"seconds_ratio": r, "loss": loss} for r, loss in ((1.0, 0.0), (0.5, 0.0), (0.4, 2.0), (0.6, 3.0))]
    mark_frontier(rows, "seconds")
    assert [row["frontier"] for row in rows] == [False, True, True, False]
    options = [Option(axis=axis, name=name) for axis, name in (("a", "x"), ("a", "y"), ("b", "z"), ("b", "w"))]
    found = combinations(options, {"x": 0.5, "y": 0.9, "z": 0.8, "w": 1.2}, 10)
    assert [[option.name for option in chosen] for chosen in found] == [["x", "z"], ["y", "z"]]
    assert widened(Interval(0.0, 0.0, 0.0, 10), 300.0) == Interval(0.0, -1.0, 1.0, 10), "none of 300 changed"


@pytest.fixture
def brief(monkeypatch):
    """Few blocks and short timings."""
    for name, value in dict(BLOCKS=2, LEAST=2, TURN=0.0, ROUNDS=1, CHECKS=1, DEARER=1e9).items():
        monkeypatch.setattr(cheaper, name, value)


def test_a_cheaper_run_is_saved_and_works(run, tiny, brief, tmp_path, capsys):
    data = ("--data.pairs", tiny.files["t5"]["data.pairs"])
    words = ("cheaper", run, *data, "--by", "1.1", "--cost", "bytes", "--minutes", "0.001", "--quiet", "--json")
    call(*words, "--out", tmp_path / "out", "--save", tmp_path / "half")
    result = json.loads(capsys.readouterr().out)
    names = [row["name"] for row in result["rows"]]
    assert names[0] == "as it is" and {"int8", "int4", "1 of 2 heads"} <= set(names)
    assert any("distilled" in name for name in names)
    assert all("kernel" in reason or "weights" in reason or "blocks" in reason or "memory" in reason
               for reason in result["left_out"].values()), result["left_out"]  # fmt: skip
    chosen = result["chosen"]
    assert chosen["low"] <= chosen["loss"] <= chosen["high"] and chosen["ratio"] <= 1 / 1.1
    assert {"frontier.png", "report.html", "report.md", "result.json"} <= {p.name for p in (tmp_path / "out").iterdir()}
    assert "int8" in chosen["name"] or "int4" in chosen["name"]
    assert load(tmp_path / "half").quantization in ("int8", "int4")
    assert load(tmp_path / "half", "none").quantization == "none"
    call("eval", tmp_path / "half", *data, "--limit", "3")
    call("translate", tmp_path / "half", "colour: red cat")
    capsys.readouterr()


def test_nothing_is_so_cheap(run, tiny, brief, tmp_path):
    changes = {"data.pairs": tiny.files["t5"]["data.pairs"]}
    result = measure_cheaper(run, by=1e6, cost="bytes", minutes=0.0, changes=changes, save=tmp_path / "half")
    assert result["chosen"] is None and not (tmp_path / "half").exists()


def test_mistakes_are_one_line(run, tmp_path, capsys):
    assert "--by 0 makes nothing cheaper" in fails(capsys, "cheaper", run, "--by", "0")
    assert "held-out sentences are too few: at least 120" in fails(capsys, "cheaper", run)
    assert "no such" in fails(capsys, "cheaper", tmp_path / "none")
    (tmp_path / "empty").mkdir()
    assert "no recipe.toml" in fails(capsys, "cheaper", tmp_path / "empty")
    assert "--minutes -1 is no time" in fails(capsys, "cheaper", run, "--minutes", "-1")
    assert "is not empty; choose another --save" in fails(capsys, "cheaper", run, "--save", run)


def test_a_quantisation_that_there_is_not(run, tmp_path):
    save_model(load_model(run), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantize": "int3"}))
    with pytest.raises(ValueError, match="quantize='int3' is none of none, bfloat16, int8, int4"):
        load(tmp_path)
