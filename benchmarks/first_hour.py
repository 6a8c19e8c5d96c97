"""Train on few examples with default settings only, beside the defaults of transformers and scikit-learn.

    python benchmarks/first_hour.py CHECKPOINT DIRECTORY --out rows.jsonl          everything, three seeds
    python benchmarks/first_hour.py CHECKPOINT DIRECTORY --out rows.jsonl --table  the table of the rows so far
    python benchmarks/first_hour.py CHECKPOINT DIRECTORY --out rows.jsonl --only regard tf-idf  some of the methods

CHECKPOINT is a BERT-like encoder in the Hugging Face layout (made for: all-MiniLM-L6-v2). DIRECTORY holds sets, each of
two files: NAME.train.tsv and NAME.test.tsv with a text, a tab and a label on every line, or NAME.train.conll and
NAME.test.conll with a word and its tag. Every seed draws other training examples; all methods get the same ones.

regard        `regard finetune CHECKPOINT --task classify|tag --data.train FILE`, nothing else
transformers  the defaults of its Trainer in a plain loop: AdamW 5e-5, batches of 8, 3 epochs, linear, no warm-up
tf-idf        scikit-learn's TfidfVectorizer and LogisticRegression; for tags, words and their neighbours
vectors       scikit-learn's LogisticRegression on the checkpoint's sentence vectors
majority      the most frequent label

Rows that --out holds already are not measured again, so an interrupted run goes on. One thread for everything.
"""

import argparse
import json
import random
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from seqeval.metrics import f1_score
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from regard import load
from regard.data.readers.examples import read_examples
from regard.eval.scores import evaluate
from regard.recipes import fit, recipe

SIZES = {"tsv": (100, 300, 1000), "conll": (300, 1000)}
METHODS = ("regard", "transformers", "tf-idf", "vectors", "majority")


def read(path: Path) -> list[str]:
    """The examples of a file as they are written there."""
    text = path.read_text(encoding="utf-8")
    rows = text.splitlines() if path.suffix == ".tsv" else text.split("\n\n")
    return [row.strip("\n") for row in rows if row.strip()]


def write(path: Path, rows: list[str]) -> Path:
    path.write_text(("\n" if path.suffix == ".tsv" else "\n\n").join(rows) + "\n", encoding="utf-8")
    return path


def words_of(row: str) -> tuple[list[str], list[str]]:
    """The words and tags (IOB2) of a sentence."""
    cells = [line.split() for line in row.splitlines()]
    tags, before = [], "O"
    for tag in (cell[-1] for cell in cells):
        starts = tag.startswith("I-") and before[2:] != tag[2:]  # IOB1 begins an entity with I-
        tags.append("B-" + tag[2:] if starts else tag)
        before = tag
    return [cell[0] for cell in cells], tags


def train_regard(checkpoint: str, task: str, train: Path, test: Path, seed: int) -> float:
    fields = {"data.base": checkpoint, "data.train": str(train), "data.test": str(test), "train.seed": seed}
    out = Path(tempfile.mkdtemp()) / "run"
    fit(recipe(task, fields), out, quiet=True)
    scores = evaluate(out, {}).scores
    shutil.rmtree(out.parent)
    return scores["accuracy" if task == "classify" else "f1"]


def train_transformers(checkpoint: str, task: str, train: Path, test: Path, seed: int) -> float:
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    tags = task == "tag"
    sets = [[words_of(row) if tags else row.split("\t") for row in read(path)] for path in (train, test)]
    labels = sorted({label for _, own in sets[0] for label in (own if tags else [own])})
    place = {label: i for i, label in enumerate(labels)}
    kind = "AutoModelForTokenClassification" if tags else "AutoModelForSequenceClassification"
    model = getattr(transformers, kind).from_pretrained(checkpoint, num_labels=len(labels))

    def batch(rows: list[Any]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        inputs = tokenizer(
            [row[0] for row in rows], is_split_into_words=tags, truncation=True, max_length=256, padding=True,
            return_tensors="pt",
        )  # fmt: skip
        if not tags:
            return inputs, torch.tensor([place.get(label, 0) for _, label in rows])
        targets = torch.full(inputs["input_ids"].shape, -100)
        for i, (_, own) in enumerate(rows):
            for token, word in reversed(list(enumerate(inputs.word_ids(i)))):  # the first token of a word has its tag
                if word is not None:
                    targets[i, token] = place.get(own[word], 0)
                    if token + 1 < targets.shape[1] and inputs.word_ids(i)[token + 1] == word:
                        targets[i, token + 1] = -100
        return inputs, targets

    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.0)
    count = len(sets[0])
    steps, step = 3 * -(-count // 8), 0
    rng = np.random.default_rng(seed)
    model.train()
    for _ in range(3):
        order = rng.permutation(count)
        for first in range(0, count, 8):
            optimizer.param_groups[0]["lr"] = 5e-5 * (1 - step / steps)
            inputs, targets = batch([sets[0][i] for i in order[first : first + 8]])
            logits = model(**inputs).logits
            torch.nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
    model.eval()
    predicted: list[Any] = []
    with torch.inference_mode():
        for first in range(0, len(sets[1]), 32):
            inputs, targets = batch(sets[1][first : first + 32])
            best = model(**inputs).logits.argmax(-1)
            if tags:
                kept = [(row[t != -100]).tolist() for row, t in zip(best, targets, strict=True)]
                predicted += [[labels[i] for i in row] for row in kept]
            else:
                predicted += [labels[i] for i in best.tolist()]
    return scored(task, predicted, [label for _, label in sets[1]])


def train_sklearn(method: str, checkpoint: str, task: str, train: Path, test: Path, seed: int) -> float:
    if task == "tag":
        sets = [[words_of(row) for row in read(path)] for path in (train, test)]
        if method == "majority":
            return 0.0
        model = make_pipeline(DictVectorizer(), LogisticRegression(max_iter=1000))
        model.fit(
            [f for words, _ in sets[0] for f in around(words)], [tag for _, tags in sets[0] for tag in tags]
        )  # fmt: skip
        return scored(task, [model.predict(around(words)).tolist() for words, _ in sets[1]], [t for _, t in sets[1]])
    (texts, labels), (others, wanted) = (zip(*(row.split("\t") for row in read(p)), strict=True) for p in (train, test))
    if method == "majority":
        return scored(task, [Counter(labels).most_common(1)[0][0]] * len(wanted), wanted)
    if method == "tf-idf":
        model = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000)).fit(texts, labels)
        return scored(task, model.predict(others).tolist(), wanted)
    encoder = load(checkpoint)
    vectors = [encoder.embed(list(part)).numpy() for part in (texts, others)]
    return scored(task, LogisticRegression(max_iter=1000).fit(vectors[0], labels).predict(vectors[1]).tolist(), wanted)


def around(words: list[str]) -> list[dict[str, str]]:
    """Features of each word: itself, its case, its ending and its neighbours."""
    padded = ["<", *words, ">"]
    return [
        {"word": w.lower(), "case": f"{w[:1].isupper()}{w.isupper()}", "end": w[-3:].lower(),
         "before": padded[i].lower(), "after": padded[i + 2].lower()}
        for i, w in enumerate(words)
    ]  # fmt: skip


def scored(task: str, predicted: Any, wanted: Any) -> float:
    """Accuracy of labels, F1 of entities, in percent."""
    if task == "tag":
        pairs = [(list(p) + ["O"] * (len(w) - len(p)), list(w)) for p, w in zip(predicted, wanted, strict=True)]
        return round(100 * f1_score([w for _, w in pairs], [p[: len(w)] for p, w in pairs]), 2)
    return round(100 * float(np.mean([p == w for p, w in zip(predicted, wanted, strict=True)])), 2)


def table(rows: list[dict[str, Any]]) -> str:
    """Means over the seeds, and the distance of Regard to the best of the others."""
    lines = [
        "| set | examples | seeds | " + " | ".join(METHODS) + " | to the best |",
        "|---" * (len(METHODS) + 4) + "|",
    ]
    for name, count in dict.fromkeys((row["set"], row["count"]) for row in rows):
        own = [row for row in rows if (row["set"], row["count"]) == (name, count)]
        seeds = {row["seed"] for row in own if row["by"] == "regard"}
        means = {
            by: np.mean(figures)
            for by in METHODS
            if (figures := [row["score"] for row in own if row["by"] == by and row["seed"] in seeds])
        }
        if "regard" in means:
            others = [mean for by, mean in means.items() if by != "regard"]
            shown = " | ".join(f"{means[by]:.1f}" if by in means else "" for by in METHODS)
            distance = f"{means['regard'] - max(others):+.1f}" if others else ""
            lines.append(f"| {name} | {count:,} | {len(seeds)} | {shown} | {distance} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--sets", nargs="+", default=[])
    parser.add_argument("--counts", nargs="+", type=int, default=[], help="training examples")
    parser.add_argument("--only", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--test", type=int, default=500, help="test examples")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    files = sorted(path for kind in SIZES for path in args.directory.glob(f"*.train.{kind}"))
    files = [path for path in files if not args.sets or path.name.split(".")[0] in args.sets]
    folder = Path(tempfile.mkdtemp())
    plan = [
        (seed, path, count, by)
        for seed in args.seeds
        for path in files
        for count in SIZES[path.suffix[1:]]
        if not args.counts or count in args.counts
        for by in args.only
        if not (path.suffix == ".conll" and by in ("vectors", "majority"))
    ]
    for seed, path, count, by in [] if args.table else plan:
        key = {"set": path.name.split(".")[0], "count": count, "seed": seed, "by": by}
        if any(key.items() <= row.items() for row in rows):
            continue
        learn = read(path)
        random.Random(seed).shuffle(learn)
        tests = read(path.with_name(path.name.replace(".train.", ".test.")))
        random.Random(0).shuffle(tests)
        train = write(folder / f"train{path.suffix}", learn[:count])
        test = write(folder / f"test{path.suffix}", tests[: args.test])
        task, started = {".tsv": "classify", ".conll": "tag"}[path.suffix], time.monotonic()
        read_examples(train, task)
        do = {"regard": train_regard, "transformers": train_transformers}.get(by)
        score = (
            do(args.checkpoint, task, train, test, seed) if do
            else train_sklearn(by, args.checkpoint, task, train, test, seed)
        )  # fmt: skip
        rows.append(key | {"score": score, "seconds": round(time.monotonic() - started, 1)})
        print(json.dumps(rows[-1]), flush=True)
        with args.out.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
