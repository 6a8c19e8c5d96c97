"""Fine-tune an encoder on SST-2, here and with transformers, with the same settings in the same run.

    python benchmarks/sst2.py CHECKPOINT DIRECTORY --choose            the rates, by accuracy on dev.tsv
    python benchmarks/sst2.py CHECKPOINT DIRECTORY --seeds 3           both sides at those rates, on test.tsv

CHECKPOINT is a BERT-like encoder in the Hugging Face layout (made for: all-MiniLM-L6-v2); DIRECTORY holds train.tsv,
dev.tsv and test.tsv with a sentence, a tab and a label on every line. Both train with AdamW, a linear schedule with a
tenth of warm-up, dropout as in the checkpoint and about 32 sentences a batch; theirs pads random batches as its
documentation does. Prints accuracy, wall and CPU seconds of training, the size of the weights saved, and their means.
"""

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from regard.data.readers.examples import read_examples
from regard.eval.scores import evaluate
from regard.recipes import fit, recipe

RATES = {"all": 2e-4, "head": 4e-3, "lora": 2e-3}  # the best of TRIED on dev.tsv after one epoch
TRIED = {"all": (1e-4, 2e-4), "head": (1e-3, 4e-3, 1.6e-2), "lora": (1e-3, 2e-3, 4e-3)}
BATCH = 32
TOKENS = 900  # about as many sentences, padding included


def train_ours(checkpoint: str, data: Path, tune: str, rate: float, epochs: float, seed: int, on: str) -> dict:
    fields = {
        "data.base": checkpoint, "data.tune": tune, "data.train": str(data / "train.tsv"),
        "data.valid": str(data / "dev.tsv"), "data.test": str(data / f"{on}.tsv"), "train.lr": rate,
        "train.epochs": epochs, "train.batch_tokens": TOKENS, "train.warmup": int(epochs * 22), "train.seed": seed,
        "train.eval_every": 100_000, "train.save_every": 100_000,
    }  # fmt: skip
    plan, out = recipe("classify", fields), Path(tempfile.mkdtemp()) / "run"
    wall, cpu = time.monotonic(), time.process_time()
    fit(plan, out, quiet=True)
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    scores = evaluate(out, {}).scores
    weights = sum(p.stat().st_size for p in out.glob("*.safetensors"))
    shutil.rmtree(out.parent)
    return {"accuracy": scores["accuracy"], "wall": wall, "cpu": cpu, "megabytes": weights / 1e6}


def train_theirs(checkpoint: str, data: Path, tune: str, epochs: float, seed: int) -> dict:
    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = AutoModelForSequenceClassification.from_pretrained(checkpoint, num_labels=2)
    if tune == "head":
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("pooler" in name or "classifier" in name)
    sets = {name: read_examples(data / f"{name}.tsv", "classify") for name in ("train", "test")}
    encoded = {
        name: (tokenizer([e.text for e in rows], truncation=True, max_length=256)["input_ids"],
               torch.tensor([int(e.label) for e in rows]))
        for name, rows in sets.items()
    }  # fmt: skip

    def batch(name: str, places: np.ndarray) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        ids, labels = encoded[name]
        padded = tokenizer.pad({"input_ids": [ids[i] for i in places]}, return_tensors="pt")
        return dict(padded), labels[places]

    rng = np.random.default_rng(seed)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATES[tune], betas=(0.9, 0.999), weight_decay=0.01, fused=True)
    count = len(sets["train"])
    steps = int(epochs * -(-count // BATCH))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (steps / 10), (steps - step) / (steps * 0.9))
    )
    wall, cpu = time.monotonic(), time.process_time()
    model.train()
    order = [
        group
        for _ in range(int(np.ceil(epochs)))
        for group in np.split(rng.permutation(count), range(BATCH, count, BATCH))
    ]
    for step in range(steps):
        inputs, labels = batch("train", order[step])
        model(**inputs, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    model.eval()
    right = 0
    with torch.inference_mode():
        for places in np.array_split(np.arange(len(sets["test"])), len(sets["test"]) // 64):
            inputs, labels = batch("test", places)
            right += int((model(**inputs).logits.argmax(-1) == labels).sum())
    return {"accuracy": round(100 * right / len(sets["test"]), 2), "wall": wall, "cpu": cpu}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--tune", nargs="+", choices=list(RATES), default=list(RATES))
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--choose", action="store_true", help="try rates on dev.tsv instead")
    args = parser.parse_args()
    if args.choose:
        for tune in args.tune:
            for rate in TRIED[tune]:
                row = train_ours(args.checkpoint, args.directory, tune, rate, args.epochs, 0, "dev")
                print(json.dumps({"tune": tune, "rate": rate} | row), flush=True)
        return
    rows = []
    for seed in range(args.seeds):
        for tune in args.tune:
            ours = train_ours(args.checkpoint, args.directory, tune, RATES[tune], args.epochs, seed, "test")
            rows.append({"tune": tune, "by": "regard", "seed": seed} | ours)
            print(json.dumps(rows[-1]), flush=True)
            if tune != "lora":  # needs one more package there
                theirs = train_theirs(args.checkpoint, args.directory, tune, args.epochs, seed)
                rows.append({"tune": tune, "by": "transformers", "seed": seed} | theirs)
                print(json.dumps(rows[-1]), flush=True)
    for tune in args.tune:
        for by in ("regard", "transformers"):
            group = [row for row in rows if (row["tune"], row["by"]) == (tune, by)]
            if group:
                mean = {key: float(np.mean([row[key] for row in group])) for key in ("accuracy", "wall", "cpu")}
                print(f"{tune:5} {by:13} {mean['accuracy']:.2f} %  {mean['cpu']:.0f} s of CPU time  {len(group)} seeds")


if __name__ == "__main__":
    main()
