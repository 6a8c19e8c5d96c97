"""Many processes train as one does: the same losses, from the same checkpoints, or one line that says why not."""

import itertools
import re
from functools import cache

import pytest
import torch

from regard.models import build, preset
from regard.nn.cut import cut
from regard.train.layout import Layout, describe, parse
from tests.laws.cases import CASES
from tests.train.spread import run, train

LAYOUTS = ["data", "shard", "tensor", "pipeline"]
FEW = [
    ("gpt", 0, "muon", "data"), ("gpt", 3, "adamw", "shard"), ("transformer", 0, "muon", "shard"),
    ("transformer", 2, "muon", "tensor"), ("gpt", 2, "adamw", "tensor"), ("transformer", 4, "adamw", "pipeline"),
    ("clip", 0, "adamw", "data"), ("detr", 0, "adamw", "data"), ("seq2seq", 4, "adamw", "data"),
    ("vit", 3, "adamw", "data"), ("bert", 3, "adamw", "tensor"),
]  # fmt: skip
"""One case for each way in which something could go wrong."""
BOUNDS = {("mvit", 0, "muon", "tensor"): 1e-11}
"""Of a case that enlarges the rounding of sums: 1.9e-12, and 6e-14 with AdamW. One process alone differs from itself by
5e-13 (AdamW: 5e-14) where each sum of a feed-forward layer is taken in two halves."""
REFUSED = "can be divided|no stack of at least|does not divide"


def differs(one: dict[str, list[float]], many: dict[str, list[float]]) -> float:
    """The largest difference of two runs, relative to numbers above 1."""
    assert one.keys() == many.keys() and all(len(one[name]) == len(many[name]) for name in one), (one, many)
    pairs = [pair for name in one for pair in zip(one[name], many[name], strict=True)]
    return max(abs(a - b) / max(1.0, abs(a)) for a, b in pairs)


def test_two_processes_train_as_one_does_and_go_on_in_any_layout(tmp_path):
    again = [
        ["gpt", 0, "muon", layout, dict(out="again", steps=2 * n, resume=n > 1)] for n, layout in enumerate(LAYOUTS, 1)
    ]
    bad = [["gpt", 0, "adamw", "shard=3"], ["lstm", 1, "adamw", "tensor"], ["lstm", 1, "adamw", "pipeline"]]
    results = iter(run(2, [*map(list, FEW), *again, *bad], tmp_path))
    for number, (task, many) in enumerate(zip(FEW, results, strict=False)):
        one = train(*task[:3], "data", tmp_path / f"one-{number}")
        assert differs(one, many) < 1e-12, task
    *_, last = itertools.islice(results, len(again))
    whole = train("gpt", 0, "muon", "data", tmp_path / "whole", steps=10)
    alone = train("gpt", 0, "muon", "data", tmp_path / "again", steps=10, resume=True)
    assert differs({n: v[: len(last[n])] for n, v in whole.items()}, last) < 1e-12
    assert differs(whole, alone) < 1e-12, "one process goes on from a checkpoint of two"
    assert [result["error"] for result in results] == [
        "parallel=shard=3 is for 3 processes, this run has 2; start it with torchrun --nproc-per-node 3, or choose "
        "numbers whose product is 2",
        "tensor=2: no layer of LSTM can be divided; use data or shard",
        "pipeline=2: LSTM has no stack of at least 2 blocks of their own; use data or shard",
    ]
    files = {path.suffix for path in tmp_path.glob("*/checkpoints/*/*")}
    assert files == {".safetensors", ".json"}, "no pickle"


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The losses of one process, which are computed once for all layouts."""

    @cache
    def losses(family, number, optimizer):
        return train(family, number, optimizer, "data", tmp_path_factory.mktemp("alone"))

    return losses


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize(
    ("count", "layout"),
    [*((2, layout) for layout in LAYOUTS), (3, "shard"), *((4, f"{a}=2,{b}=2") for a, b in
     [("data", "shard"), ("data", "tensor"), ("shard", "tensor"), ("data", "pipeline")])],
)  # fmt: skip
def test_every_family_trains_as_in_one_process(count, layout, optimizer, alone, tmp_path):
    """pytest --slow -s tests/train/test_parallel.py prints the largest difference of each layout."""
    tasks = [[family, number, optimizer, layout] for family, number in CASES]
    apart: dict[str, float] = {}
    wrong: list[tuple[list[str], str]] = []
    for task, many in zip(tasks, run(count, tasks, tmp_path), strict=True):
        if "error" in many:
            if not re.search(REFUSED, many["error"]):
                wrong.append((task, many["error"]))
            continue
        apart[f"{task[0]} {task[1]}"] = differs(alone(*task[:3]), many)
    largest = sorted(apart, key=apart.__getitem__, reverse=True)[:3]
    print(f"{layout}, {count} processes, {optimizer}: {len(apart)} of {len(tasks)} cases, the largest differences:",
          *(f"{case} {apart[case]:.1e}" for case in largest))  # fmt: skip
    bounds = {case: BOUNDS.get((*case, optimizer, layout), 1e-12) for case in CASES}
    assert not wrong
    assert not {case: apart[case] for case in apart if apart[case] >= bounds[case.split()[0], int(case.split()[1])]}


def test_a_layout_is_read_and_checked():
    assert parse("shard=4,tensor=2", 8) == Layout(shard=4, tensor=2) and describe(Layout(shard=4)) == "shard=4"
    assert parse("pipeline", 3) == Layout(pipeline=3)
    for text, says in {
        "shrad": "there is no 'shrad'; did you mean 'shard'", "data,data=2": "how many processes of each",
        "data=2,data=2": "names data twice", "shard=x": "'x' is no number", "tensor=2,pipeline=2": "goes with data",
        "shard=4,tensor=2": "is for 8 processes, this run has 4",
    }.items():  # fmt: skip
        with pytest.raises(ValueError, match=says):
            parse(text, 4)


def test_more_processes_than_heads_are_refused_with_the_cure():
    model = build("gpt", preset("gpt", "tiny", vocab_size=17))
    with pytest.raises(
        ValueError, match="tensor=8 does not divide heads=4 of decoder.blocks.0.attention; use tensor=4"
    ):
        cut(model, 0, 8, None)


def test_a_layer_with_parameters_of_its_own_is_not_cut():
    model = build("bert", preset("bert", "tiny", vocab_size=17, kernel="linformer:rank=5"))
    before = {name: p.shape for name, p in model.named_parameters()}
    pieces, whole = cut(model, 1, 2, None)
    assert whole == [f"encoder.blocks.{n}.attention" for n in range(4)]
    assert {name.rpartition(".feedforward.")[2] for name in pieces} == {"up.weight", "up.bias", "down.weight"}
    assert all((p.shape == before[name]) == (name not in pieces) for name, p in model.named_parameters())


def test_a_fused_matrix_is_cut_through_each_of_its_parts():
    model = build("gpt", preset("gpt", "tiny", vocab_size=17, activation="swiglu"))
    whole = {name: p.detach().clone() for name, p in model.named_parameters()}
    pieces, _ = cut(model, 1, 2, None)
    name = "decoder.blocks.0.attention.key_value.weight"
    keys, values = whole[name].chunk(2)
    part = model.get_parameter(name)
    assert torch.equal(part, torch.cat([keys[64:], values[64:]]))
    assert torch.equal(pieces[name].join([pieces[name].of(whole[name], n, 2) for n in (0, 1)]), whole[name])
