"""Whole journeys on a device that is not the CPU: a recipe is trained two steps, scored, asked by every verb, looked
into by every view, drawn, and served.

    python -m tests.laws.device_journeys NAME …     recipes, one with another family (lm:lstm), or whisper; none: all

The device is that of `tests/accelerator.py`. In the training loop nothing goes back to the CPU but losses and norms.
"""

import inspect
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
import regard.runs.fit
from regard.doctor.watch import Watch
from regard.eval.report import report
from regard.inside.page import Page
from regard.inside.views import find_view, show_view
from regard.recipes import fit, recipe
from regard.registry import modalities, recipes
from regard.tasks.page_examples import examples_of
from regard.train import checkpoint
from regard.train.device import ENVIRONMENT, device_of
from regard.train.parallel import Parallel
from tests.accelerator import NAME, device_rules, register
from tests.serve.running import serving_here
from tests.tasks.whispers import make_whisper

FEW: dict[str, Any] = {
    "train.steps": 2, "train.eval_every": 2, "train.save_every": 2, "train.batch_tokens": 256, "train.watch": 2,
    "train.device": NAME,
}  # fmt: skip
SMALL: dict[str, Any] = {"model.dim": 16, "model.heads": 2, "model.ffn_dim": 24, "model.depth": 1}
OWN: dict[str, dict[str, Any]] = {"simclr": {"train.batch_tokens": 4096}}
"""Fields of a recipe that differ from SMALL."""
FAMILIES = ["lm:gru", "lm:lstm", "lm:rnn", "lm:bilstm", "translate:seq2seq", "captioner:transformer"]
"""Recipes with another family, or another decoder."""
PACKED = {"lm:bilstm", "translate:seq2seq", "captioner", "detr"}
"""Journeys with packed sequences, whose lengths PyTorch wants on the CPU; and a matching that is SciPy's."""
ROUTES = {"embed": "embeddings", "classify": "classifications", "translate": "translations", "generate": "completions"}


def plan(name: str) -> Any:
    """The recipe of a journey, at a size that trains in a second."""
    name, _, family = name.partition(":")
    changes = FEW | SMALL | OWN.get(f"{name}:{family}" if family else name, {})
    changes |= {"model": family} if family and name != "captioner" else {}
    changes |= {"model.decoder": family} if family and name == "captioner" else {}
    while True:  # a family lacks some of the fields
        try:
            return recipe(name, changes)
        except ValueError as error:
            wrong = [field for field in changes if f"--{field.replace('_', '-')}" in str(error) or field in str(error)]
            if not wrong:
                raise
            del changes[wrong[0]]


@contextmanager
def strict(**rules: bool) -> Iterator[None]:
    """Context manager: a training does nothing that these rules forbid but where it measures, scores or saves."""
    exempt = [(Watch, "on_gradients"), (Watch, "on_update"), (checkpoint, "save"), (Parallel, "publish"),
              (Parallel, "score")]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch, device_rules(**rules):
        for owner, name in exempt:
            patch.setattr(owner, name, free(getattr(owner, name)))
        yield


def strictly(train: Any, **rules: bool) -> Any:
    """A training to which rules apply."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with strict(**rules):
            return train(*args, **kwargs)

    return call


def free(function: Any) -> Any:
    """A function to which no rules apply."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with device_rules():
            result = function(*args, **kwargs)
            return list(result) if inspect.isgenerator(result) else result

    return call


def journey(name: str, folder: Path) -> None:
    """Train, score, ask, look and serve."""
    out = folder / name.replace(":", "-")
    if name == "whisper":
        make_whisper(out)
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                regard.runs.fit, "train", strictly(regard.runs.fit.train, float64=False, leaves=name in PACKED)
            )
            fitted = fit(plan(name), out, quiet=True)
        report(out, fitted, as_json=False)
    task = regard.load(out)
    assert device_of(task.model).type == NAME
    rows = examples_of(type(task), out, task.model.config)
    assert rows, "no examples"
    record = modalities[task.inputs[0]]
    row = rows[0]
    item = record.receive(row[record.field]) if record.files else row["input"]
    texts = row.get("texts") or ([row["second"]] if "second" in row else [])
    for verb in task.verbs:
        options: dict[str, Any] = {}
        if "seconds" in {option.name for option in verb.options} and texts:
            options["seconds"] = texts[:1]
        if "passages" in {option.name for option in verb.options}:
            options["passages"] = texts[:1]
        if "labels" in {option.name for option in verb.options}:
            options["labels"] = texts
        answer = task.answers(verb.name, [item], **options)
        print(f"  {verb.name}: {str(answer)[:60]}")
    prepared = task.read(item, *texts)
    for view in prepared.views:
        options = {"against": task.read(item, *texts)} if "against" in find_view(prepared, view).options else {}
        try:
            data, draw = show_view(prepared, view, **options)
        except ValueError as error:
            print(f"  view {view}: refused: {error}")
            continue
        draw(out / f"{view}.png")
        print(f"  view {view}")
    Page(task, item, *texts).save(out / "page.html")
    with serving_here({"it": out}) as server:
        fields = {key: value for key, value in row.items() if key != "label"}
        looked = server.post("/v1/look", model="it", **fields)
        assert looked.status == 200, looked.body
        if looked.json["layers"]:
            layer = server.post("/v1/look/layer", model="it", look=looked.json["look"], layer=0)
            assert layer.status == 200, layer.body
        for verb in task.verbs:
            if verb.ability is None:
                continue
            route = verb.name
            sent = {"input": row[record.field]} if record.files else {"input": row["input"]}
            if verb.name in ROUTES and not record.files:
                route = ROUTES[verb.name]
            if verb.name == "generate":
                sent = {"prompt": row["input"], "max_tokens": 3}
            if verb.name == "answer":
                sent["passages"] = texts
            if "texts" in row and verb.name == "classify":
                sent["labels"] = texts
            answer = server.post(f"/v1/{route}", model="it", **sent)
            print("  serve", route, answer.status, answer.body[:90])


def main(names: list[str]) -> int:
    register()
    torch.__future__.set_swap_module_params_on_conversion(True)  # parameters stay the objects they are, as on a GPU
    os.environ[ENVIRONMENT] = NAME
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in names or [*recipes, *FAMILIES, "whisper"]:
            print(name, flush=True)
            try:
                journey(name, Path(folder))
            except Exception:
                failed += 1
                traceback.print_exc(file=sys.stdout)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
