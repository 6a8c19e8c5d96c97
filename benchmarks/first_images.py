"""Train on 500 images with default settings only, beside scikit-learn's defaults on the same pixels.

    python benchmarks/first_images.py DIRECTORY --out rows.jsonl           everything, three seeds
    python benchmarks/first_images.py DIRECTORY --out rows.jsonl --table   the table of the rows so far

DIRECTORY holds sets, each a folder with a sub-folder of images for every class. Every seed draws other images for
training; the test is on others still, and all methods get the same ones.

regard    `regard train cnn-attention --data.images FOLDER`, nothing else
logistic  scikit-learn's LogisticRegression on the pixels, from 0 to 1, at the size that Regard reads
forest    scikit-learn's RandomForestClassifier on these
mlp       scikit-learn's MLPClassifier on these
majority  the most frequent class

Rows that --out holds already are not measured again, so an interrupted run goes on. One thread for everything; times
are of the CPU, so that a busy machine does not change them much.
"""

import argparse
import json
import random
import shutil
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from regard.data.sets.labelled_images import ImagesConfig
from regard.eval.scores import evaluate
from regard.recipes import fit, recipe

METHODS = ("regard", "logistic", "forest", "mlp", "majority")


def folder_of(files: list[Path], place: Path) -> Path:
    """A new folder that holds these images, each in the sub-folder of its class."""
    shutil.rmtree(place, ignore_errors=True)
    for file in files:
        (place / file.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place / file.parent.name / file.name)
    return place


def train_regard(train: Path, test: Path, seed: int) -> tuple[float, dict[str, Any]]:
    """The accuracy of `regard train cnn-attention`, and the steps that it took."""
    out = Path(tempfile.mkdtemp()) / "run"
    fields = {"data.images": str(train), "data.test": str(test), "train.seed": seed}
    fitted = fit(recipe("cnn-attention", fields), out, quiet=True)
    score = evaluate(out, {}).scores["accuracy"]
    shutil.rmtree(out.parent)
    return score, {"steps": fitted.step}


def train_sklearn(method: str, train: Path, test: Path, seed: int) -> float:
    """The accuracy of one of scikit-learn's classifiers with its defaults."""
    config = ImagesConfig(images=str(train), test=str(test), resize="crop")
    sets = [config.read(str(place), part) for place, part in ((train, "train"), (test, "test"))]
    (pixels, classes), (others, wanted) = (
        (part.pixels[:].reshape(len(part), -1) / 255, np.array(part.names)[part.labels]) for part in sets
    )
    if method == "majority":
        return 100 * float(np.mean(wanted == Counter(classes.tolist()).most_common(1)[0][0]))
    model: Any = {
        "logistic": LogisticRegression(), "forest": RandomForestClassifier(random_state=seed),
        "mlp": MLPClassifier(random_state=seed),
    }[method]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return 100 * float(np.mean(model.fit(pixels, classes).predict(others) == wanted))


def table(rows: list[dict[str, Any]]) -> str:
    """Means over the seeds, and the distance of Regard to the best of the others."""
    lines = [
        "| set | images | seeds | " + " | ".join(METHODS) + " | to the best | steps, CPU minutes |",
        "|---" * (len(METHODS) + 5) + "|",
    ]
    for name, count in dict.fromkeys((row["set"], row["count"]) for row in rows):
        own = [row for row in rows if (row["set"], row["count"]) == (name, count)]
        runs = [row for row in own if row["by"] == "regard"]
        if not runs:
            continue
        seeds = {row["seed"] for row in runs}
        by_method = {by: [row["score"] for row in own if row["by"] == by and row["seed"] in seeds] for by in METHODS}
        means = {by: float(np.mean(scores)) for by, scores in by_method.items() if scores}
        others = [mean for by, mean in means.items() if by != "regard"]
        shown = " | ".join(f"{means[by]:.1f}" if by in means else "" for by in METHODS)
        best = f"{means['regard'] - max(others):+.1f}" if others else ""
        length = f"{np.mean([row['steps'] for row in runs]):,.0f}, {np.mean([row['cpu'] for row in runs]) / 60:.1f}"
        lines.append(f"| {name} | {count:,} | {len(seeds)} | {shown} | {best} | {length} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=500, help="images for training")
    parser.add_argument("--test", type=int, default=1000, help="images for the test, at most")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--sets", nargs="+", default=[])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    names = args.sets or sorted(place.name for place in args.directory.iterdir() if place.is_dir())
    folder = Path(tempfile.mkdtemp())
    plan = [(seed, name, by) for seed in args.seeds for name in names for by in args.methods]
    for seed, name, by in [] if args.table else plan:
        key = {"set": name, "count": args.count, "seed": seed, "by": by}
        if any(key.items() <= row.items() for row in rows):
            continue
        files = sorted(file for file in (args.directory / name).glob("*/*") if file.is_file())
        random.Random(seed).shuffle(files)
        train = folder_of(files[: args.count], folder / "train")
        test = folder_of(files[args.count : args.count + args.test], folder / "test")
        started, more = time.process_time(), dict[str, Any]()
        if by == "regard":
            score, more = train_regard(train, test, seed)
        else:
            score = train_sklearn(by, train, test, seed)
        rows.append(key | {"score": round(score, 2), "cpu": round(time.process_time() - started, 1)} | more)
        print(json.dumps(rows[-1]), flush=True)
        with args.out.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
    shutil.rmtree(folder)
    print(table(rows))


if __name__ == "__main__":
    main()
