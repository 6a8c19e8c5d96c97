"""Small runs and checkpoints, each of their JSON and TOML files with one field changed, and all that reads these."""

import json
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from regard.config import dump_toml
from regard.data.readers.preprocessing import Preprocessing
from regard.doctor.history import History
from regard.hub import load_model
from regard.hub.checkpoint import export_model, peek_model
from regard.hub.preprocessor import save_preprocessing
from regard.models import build, preset
from regard.recipes import Recipe, fit, recipe
from regard.runs.checksums import changed_sources
from regard.runs.choice import Choice, load_choice
from regard.tasks import load
from regard.tasks.page_examples import examples_of
from regard.tokens import Tokenizer
from regard.train import checkpoint
from regard.train.optim import build_optimizers
from regard.train.parallel import Parallel
from tests.recipes.tiny import SIZES, Tiny

STEPS = {"train.steps": 2, "train.eval_every": 1, "train.save_every": 1, "train.warmup": 1, "train.batch_tokens": 256}
BLOCK = {"model.dim": 16, "model.heads": 2, "model.ffn_dim": 24, "model.depth": 1}
DETECTOR = {
    "model.stem": 4, "model.widths": "8", "model.blocks": "1", "model.queries": 3, "model.decoder_depth": 1,
    "data.size": 24,
}  # fmt: skip
TEXT = dict(dim=16, heads=2, ffn_dim=24, depth=1, vocab_size=262, max_len=32, dropout=0.0)
VISION = dict(dim=16, heads=2, ffn_dim=24, depth=1, image=16, patch=8, channels=3)
FOREIGN: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt", TEXT | dict(position="learned")),
    "llama": ("gpt", TEXT | dict(norm="rms", activation="swiglu", bias=False, tie=False)),
    "bert": ("bert", TEXT | dict(task="classify", labels=("a", "b"), pooler=True)),
    "marian": ("transformer", TEXT | dict(decoder_depth=1, position="sinusoidal-halves", norm_place="post")),
    "t5": ("t5", TEXT | dict(decoder_depth=1)),
    "vit": ("vit", VISION | dict(labels=("a", "b"))),
    "clip": ("clip", VISION | dict(text_dim=8, text_depth=1, text_heads=2, text_ffn_dim=8, embedding_dim=8,
                                   vocab_size=262, max_len=16)),
    "detr": ("detr", dict(image=32, stem=4, widths=(8,), blocks=(1,), queries=3, dim=16, depth=1, decoder_depth=1,
                          heads=2, ffn_dim=16, labels=("a", "b"))),
    "swin": ("swin", dict(image=16, patch=2, channels=3, dim=8, depths=(1, 1), heads=(1, 2), window=2,
                          labels=("a", "b"))),
}  # fmt: skip


def make_images(folder: Path) -> Path:
    """A folder with the images of two labels, and one box for each of them in COCO's format."""
    rng = np.random.default_rng(1)
    stored: dict[str, Any] = {"images": [], "annotations": [], "categories": [{"id": 0, "name": "a"}]}
    for label in ("a", "b"):
        (folder / "images" / label).mkdir(parents=True)
        for number in range(6):
            path = folder / "images" / label / f"{number}.png"
            Image.fromarray(rng.integers(0, 256, (24, 24, 3), np.uint8)).save(path)
            image = {"id": len(stored["images"]), "file_name": f"{label}/{number}.png", "height": 24, "width": 24}
            stored["images"].append(image)
            box = {"id": image["id"], "image_id": image["id"], "category_id": 0, "bbox": [2, 3, 10, 10]}
            stored["annotations"].append(box)
    (folder / "images" / "boxes.json").write_text(json.dumps(stored))
    return folder / "images"


def make_runs(folder: Path) -> dict[str, Path]:
    """A translator, a GPT with LoRA, an encoder with labels, an image classifier and a detector, each trained for two
    steps, and a checkpoint in the Hugging Face layout for several `model_type`s."""
    tiny, images = Tiny(folder), make_images(folder)
    tuned = tiny.files["instruct"] | {"data.base": str(tiny.run("lm")), "data.tune": "lora", "data.rank": 2}
    plans = {
        "translator": ("translate", SIZES | STEPS | tiny.files["t5"] | {"model.decoder_depth": 1}),
        "lora": ("instruct", STEPS | tuned),
        "encoder": ("classify", tiny.files["classify"] | SIZES | STEPS),
        "images": ("vit", BLOCK | STEPS | {"data.images": str(images), "data.size": 16, "model.patch": 8}),
        "detector": ("detr", BLOCK | STEPS | DETECTOR | {"data.coco": str(images / "boxes.json")}),
    }  # fmt: skip
    runs = {}
    for name, (kind, changes) in plans.items():
        runs[name] = folder / "runs" / name
        fit(recipe(kind, changes), runs[name], quiet=True)
        Choice(probe=False, loss=1.0, finished=True).save(runs[name])
    shutil.rmtree(runs["lora"] / "checkpoints")  # they are of the model before its adapters are merged
    for kind, (family, fields) in FOREIGN.items():
        runs[f"hf-{kind}"] = path = folder / "runs" / f"hf-{kind}"
        export_model(build(family, preset(family, "tiny", **fields)).eval(), path, kind=kind, bos=2, eos=1, pad=0)
        Tokenizer.train(texts=["some text"], vocab_size=262, specials=("<mask>",)).save(path)
        if "image" in fields:
            half = (0.5,) * 3
            save_preprocessing(path, Preprocessing(channels=3, size=(16, 16), mean=half, std=half))
    return runs


DEEP = 10_000
MARK = "stands for a list that is nested deeply"
VALUES: dict[str, Any] = {
    "null": None, "text": "strange", "minus": -1, "zero": 0, "huge": 2**70, "float": 1e308, "list": [1, "a"],
    "object": {"a": 1}, "deep": MARK, "nul": "\0", "true": True,
}  # fmt: skip
MOST = 8
"""Most entries of a list or object that are changed one by one; of more, the first and the last."""


@dataclass(frozen=True)
class Case:
    """A file of a run with one field changed."""

    run: str
    file: str
    path: tuple[str | int, ...]
    change: str

    def __str__(self) -> str:
        return f"{self.run}/{self.file}:{'.'.join(map(str, self.path))}={self.change}"


def paths_of(tree: Any, before: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of every field of a tree; of long lists and objects, those of the first and last entries."""
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree))) if isinstance(tree, list) else []
    for key in keys if len(keys) <= MOST else [*keys[: MOST - 1], keys[-1]]:
        yield (*before, key)
        yield from paths_of(tree[key], (*before, key))


def parse_file(path: Path) -> Any:
    """The content of a JSON, JSONL or TOML file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".toml":
        return tomllib.loads(text)
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)


def write_file(path: Path, tree: Any) -> None:
    """The counterpart of `parse_file`."""
    if path.suffix == ".toml":
        text = dump_toml(tree) if isinstance(tree, dict) else ""
    else:
        text = "\n".join(map(json.dumps, tree)) if path.suffix == ".jsonl" else json.dumps(tree)
    path.write_text(text.replace(f'"{MARK}"', "[" * DEEP + "]" * DEEP), encoding="utf-8")


def cases_of(name: str, run: Path) -> Iterator[Case]:
    """All single changes of the files of a run."""
    for path in sorted(run.rglob("*")):
        file = str(path.relative_to(run))
        if path.suffix not in (".json", ".jsonl", ".toml") or "step-00000001" in file:
            continue
        for place in paths_of(parse_file(path)):
            yield from (Case(name, file, place, change) for change in ["removed", *VALUES])


def apply(case: Case, run: Path) -> None:
    """Write the changed file."""
    path = run / case.file
    tree = parse_file(path)
    inner = tree
    for key in case.path[:-1]:
        inner = inner[key]
    if case.change == "removed":
        del inner[case.path[-1]]
    else:
        inner[case.path[-1]] = VALUES[case.change]
    write_file(path, tree)


def open_run(run: Path, file: str) -> None:
    """Read all that depends on a file of a run, as the commands do."""
    name = Path(file).name
    if "checkpoints" in file:
        model = load_model(run)
        plan = Recipe.load(run / "recipe.toml")
        optimizers = build_optimizers(model, name=plan.train.optimizer, lr=0.1, betas=(0.9, 0.9), weight_decay=0.0)
        checkpoint.load((run / file).parent, Parallel(model), optimizers)
    elif name in ("recipe.toml", "data.json"):
        plan = Recipe.load(run / "recipe.toml")
        changed_sources(plan.data, run)
        History.read(run).as_dict()
    elif name in ("metrics.jsonl", "scores.json"):
        History.read(run).as_dict()
    elif name == "choice.json":
        load_choice(run)
    else:
        task = load(run)
        examples_of(type(task), run, task.model.config)
        if name == "config.json":
            peek_model(run)
