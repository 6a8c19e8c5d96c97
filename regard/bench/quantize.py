"""Effects of quantised weights on a trained model: size, speed, and scores on held-out data."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.bench.measure import counted, line_up, median
from regard.cost.report import decimal_size
from regard.data.generated.docs import summaries
from regard.data.generated.text_tasks import tasks
from regard.data.readers.pairs import Pairs
from regard.data.readers.text_files import read_lines, read_text
from regard.data.sets.batches import bucket, pair_batch, text_batches
from regard.data.sets.text_pairs import TasksConfig
from regard.eval.scores import eval_set, score, scored_weights
from regard.hub.remote import find
from regard.native.quantized import size_of
from regard.objectives.next_token import next_token
from regard.runs.recipe import Recipe
from regard.tasks import EvalSet, load
from regard.tasks.loading import Quantize
from regard.tokens.encoding import encode_text
from regard.train.loop import evaluate
from regard.train.progress import Line

KINDS: tuple[Quantize, ...] = ("none", "bfloat16", "int8", "int4")
BYTES, PAIRS, SENTENCES = 100_000, 500, 200
"""The largest amounts of held-out text, of translations and of sentences that are scored by default."""
NEW_TOKENS = 48
REPEATS = 3
COUNTS = ("bytes", "examples", "sentences")
"""Names of scores that are counts of examples."""
FIELDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "text": (("data.text",),), "pairs": (("data.pairs",), ("data.source", "data.target")),
}  # fmt: skip
"""Data fields that one or more files are assigned to, by a field that identifies the data config."""


def measure_quantize(
    run: str | Path,
    *,
    data: Sequence[str | Path] = (),
    changes: Mapping[str, Any] | None = None,
    limit: int | None = None,
    quiet: bool = True,
) -> dict[str, Any]:
    """Size, speed and scores of the model in `run` as it is, and with its weights in bfloat16, int8 and int4.

    Without `data` (or `changes`, fields such as data.text) it is scored on the data held out of its training.
    """
    path, line = find(run), Line(quiet)
    rows: dict[str, Any] = {}
    reference: dict[str, Any] = {}
    unit = ""
    weights = scored_weights(path, changes or {})
    for kind in KINDS:
        line.say(f"{kind} …")
        task = load(weights, kind)
        if task.inputs[0] != "text":
            raise ValueError(f"{run} reads {task.inputs[0]}; regard bench quantize compares models of texts")
        size = size_of(task.model)  # tables of positions grow with use
        fields = {**(changes or {}), **file_fields(task, path, data)}
        texts = read_lines(Path(data[0])) if data and compares(task) else sentences()
        scores = quality(task, path, fields, limit, reference, texts[: limit or SENTENCES])
        unit, speed = speed_of(task, texts)
        rows[kind] = {"bytes": size, "speed": round(speed, 1), "scores": scores}
    return {"run": str(run), "unit": unit, "kinds": rows}


def compares(task: Any) -> bool:
    """Whether the output of a task is a vector, by which texts are compared."""
    return task.output == "vector" and not task.streams


def file_fields(task: Any, run: Path, data: Sequence[str | Path]) -> dict[str, str]:
    """Return the data fields that the user's files are assigned to; none for text encoders, which compare their
    lines."""
    files = list(map(str, data))
    if not files or compares(task):
        return {}
    choices = next((FIELDS[name] for name in task.default_data().own if name in FIELDS), ())
    if not choices:
        raise ValueError(f"{run} is scored by labels; name their files as --data.train and --data.test")
    for fields in choices:
        if len(fields) == len(files):
            return dict(zip(fields, files, strict=True))
    raise ValueError(f"--data takes one file here, or for translations two, got {len(files)}")


def quality(
    task: Any, run: Path, changes: Mapping[str, Any], limit: int | None, reference: dict[str, Any], texts: list[str]
) -> dict[str, Any]:
    """The scores of a model by the metrics of its task. `reference` keeps the similarities under float weights."""
    stored = run / "recipe.toml"
    has_own_data = stored.is_file() and isinstance(Recipe.load(stored).data, task.data)
    if compares(task) and not changes and not has_own_data:
        return similarity_quality(task, texts, reference)
    test = eval_set(task, run, changes, limit or (PAIRS if task.streams else None))
    generates = test.data.own if task.streams and task.is_scored(test) else ()
    if "text" in generates:
        return text_quality(task, test, limit)
    results = score(task, run, changes, test.limit).scores
    scores = {name: value for name, value in results.items() if not name.endswith("_signature")}
    if "pairs" in generates:
        scores = {"loss": round(pair_loss(task, pairs_of(task, test)), 4)} | scores
    return scores | similarity_quality(task, texts, reference) if compares(task) else scores


def text_quality(task: Any, test: EvalSet, limit: int | None) -> dict[str, Any]:
    """Loss per token, perplexity and bits per byte of held-out text."""
    text = (read_text(test.data.text) if test.named and test.data.text else test.data.held_out())[: limit or BYTES]
    ids, context = encode_text(task.tokenizer, text), task.context
    loss = evaluate(task.model, text_batches(ids, context, max(1, 8192 // context)), next_token)
    size = len(text.encode())
    bits = loss * (len(ids) - 1) / math.log(2) / size
    return {
        "loss": round(loss, 4), "perplexity": round(math.exp(loss), 4), "bits_per_byte": round(bits, 4), "bytes": size
    }  # fmt: skip


def pairs_of(task: Any, test: EvalSet) -> Pairs:
    """The pairs that a translator is scored on; of the embedded tasks, their inputs and answers."""
    if isinstance(test.data, TasksConfig) and test.data.embedded:
        examples = tasks("test", test.limit or PAIRS, summaries=test.data.summaries)
        return [(example.source, example.target) for example in examples]
    return task.test_pairs(test)


def pair_loss(task: Any, pairs: Pairs) -> float:
    """The loss per token of reference translations."""
    longest, generation = task.model.config.max_len, task.generation
    sources, targets = (task.encode([pair[side] for pair in pairs], longest) for side in (0, 1))
    groups = bucket(np.array([[len(s), len(t)] for s, t in zip(sources, targets, strict=True)]), 4096, None)
    batches = (
        pair_batch(
            [sources[i][:-1] for i in group], [targets[i][:-1] for i in group],
            bos=task.start[0], eos=generation["eos"], pad_id=generation["pad"],
        )
        for group in groups
    )  # fmt: skip
    return evaluate(task.model, batches, next_token)


def similarity_quality(task: Any, texts: list[str], reference: dict[str, Any]) -> dict[str, Any]:
    """The rank correlation of all similarities between texts with those under float weights."""
    if len(texts) < 3:
        raise ValueError(f"similarities are ranked among at least three texts, got {len(texts)}; give more lines")
    vectors = task.embed(texts)
    similarities = (vectors @ vectors.T).numpy()[np.triu_indices(len(texts), 1)]
    expected = reference.setdefault("similarities", similarities)
    return {"rank_correlation": round(rank_correlation(similarities, expected), 5), "sentences": len(texts)}


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's rank correlation, by SciPy where it is installed."""
    try:
        from scipy.stats import spearmanr
    except ImportError:
        ranks = [values.argsort().argsort() for values in (first, second)]
        return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
    return float(spearmanr(first, second).statistic)


def sentences() -> list[str]:
    """Sentences of Python's documentation."""
    return [title for split in ("test", "valid", "train") for _, title in summaries(split)][:SENTENCES]


def speed_of(task: Any, texts: Sequence[str]) -> tuple[str, float]:
    """Tokens per second of one text after the other for generative models, else texts per second."""
    many = list(texts[:64])
    if task.streams:
        requests = [replace(task.request(text[:40], max_new_tokens=NEW_TOKENS), beams=1) for text in texts[:4]]
        return "tokens/s", rate(lambda: sum(len(task.engine.serve([request])[0].ids) for request in requests))
    if not compares(task) and (logits := getattr(task, "logits", None)) is not None:
        framed = task.frame(many)
        return "texts/s", rate(lambda: len(logits(framed)))
    return "texts/s", rate(lambda: len(task.answers(task.verbs[0].name, many)))


def rate(work: Callable[[], int]) -> float:
    """The count that `work` returns per second, after a first call that is not timed."""
    work()
    rates = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        count = work()
        rates.append(count / (time.perf_counter() - start))
    return median(rates)


def render_quantize(result: Mapping[str, Any]) -> str:
    """Return a line for each kind of weights; each figure is followed by its change against floating point."""
    base = result["kinds"]["none"]
    names = [name for name in base["scores"] if name not in COUNTS]
    shown = [name.replace("_", " ") for name in names]
    table = [["weights", "memory", "", result["unit"], "", *(cell for name in shown for cell in (name, "")), ""]]
    for kind, row in result["kinds"].items():
        pairs = [(decimal_size(row["bytes"]), row["bytes"], base["bytes"])]
        pairs.append((f"{row['speed']:,.0f}", row["speed"], base["speed"]))
        pairs += [(f"{row['scores'][name]:,.4g}", row["scores"][name], base["scores"][name]) for name in names]
        cells = [cell for text, value, before in pairs for cell in (text, change(value, before, kind))]
        table.append([kind, *cells, ""])
    amount = ", ".join(counted(base["scores"][name], name[:-1]) for name in COUNTS if name in base["scores"])
    return "\n".join([f"{result['run']}: on {amount}", "", *line_up(table)])


def change(value: int | float, before: int | float, kind: str) -> str:
    """A relative change as `+0.3%`, or as `1.8×` where it is large."""
    if kind == "none" or not before:
        return ""
    ratio = value / before
    return f"{ratio - 1:+.2%}" if 0.8 < ratio < 1.25 else f"{ratio:.2f}×"
