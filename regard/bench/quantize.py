"""What quantised weights do to a trained model: its size, its speed, and what it is worth on held-out data."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.bench.measure import counted, line_up, median
from regard.cost.report import decimal_size
from regard.data.generated.docs import summaries
from regard.data.generated.text_tasks import tasks
from regard.data.readers.text_files import Pairs, read_lines, read_text
from regard.data.sets.batches import bucket, pair_batch, text_batches
from regard.data.sets.labelled_texts import ExamplesConfig
from regard.data.sets.text_pairs import TasksConfig
from regard.eval.scores import eval_set, score
from regard.hub.remote import find
from regard.native.quantized import size_of
from regard.objectives.next_token import next_token
from regard.runs.recipe import Recipe
from regard.tasks import LanguageModel, MaskFiller, TextEncoder, Translator, load
from regard.tasks.loading import Quantize
from regard.tokens.encoding import encode_text
from regard.train.loop import evaluate
from regard.train.progress import Line

KINDS: tuple[Quantize, ...] = ("none", "int8", "int4")
BYTES, PAIRS, SENTENCES = 100_000, 500, 200
"""Of held-out text, of translations, of sentences: what is scored, unless told otherwise."""
NEW_TOKENS = 48
REPEATS = 3
COUNTS = ("bytes", "examples", "sentences")
"""How much was scored, rather than how well."""


def measure_quantize(
    run: str | Path,
    *,
    data: Sequence[str | Path] = (),
    changes: Mapping[str, Any] | None = None,
    limit: int | None = None,
    quiet: bool = True,
) -> dict[str, Any]:
    """Size, speed and scores of the model in `run` as it is, with int8 and with int4 weights.

    Without `data` (or `changes`, fields such as data.text) it is scored on what was held out from its training.
    """
    path, line = find(run), Line(quiet)
    rows: dict[str, Any] = {}
    vectors: dict[str, Any] = {}
    unit = ""
    for kind in KINDS:
        line.say(f"{kind} …")
        loaded = load(path, kind)
        size = size_of(loaded.model)  # tables of positions grow with use
        told = {**(changes or {}), **named(loaded, path, data)}
        texts = read_lines(Path(data[0])) if type(loaded) is TextEncoder and data else sentences()
        scores = quality(loaded, path, told, limit, vectors, texts[: limit or SENTENCES])
        unit, speed = speed_of(loaded, texts)
        rows[kind] = {"bytes": size, "speed": round(speed, 1), "scores": scores}
    return {"run": str(run), "unit": unit, "kinds": rows}


def named(loaded: Any, run: Path, data: Sequence[str | Path]) -> dict[str, str]:
    """FILEs as the fields that they are for this kind of model."""
    files = list(map(str, data))
    if not files or type(loaded) is TextEncoder:
        return {}
    if isinstance(loaded, Translator):
        fields = ["data.pairs"] if len(files) == 1 else ["data.source", "data.target"]
    elif isinstance(loaded, LanguageModel | MaskFiller):
        fields = ["data.text"]
    else:
        raise ValueError(f"{run} has labels to be right about; name their files as --data.train and --data.test")
    if len(files) != len(fields):
        raise ValueError(f"--data takes one file here, or for translations two, got {len(files)}")
    return dict(zip(fields, files, strict=True))


def quality(
    loaded: Any, run: Path, changes: Mapping[str, Any], limit: int | None, vectors: dict[str, Any], texts: list[str]
) -> dict[str, Any]:
    """What a model is worth, by the measures of its task. `vectors` keeps likenesses under float weights."""
    if isinstance(loaded, LanguageModel) and not isinstance(own_data(run), ExamplesConfig):
        return text_quality(loaded, run, changes, limit)
    if type(loaded) is TextEncoder and not isinstance(own_data(run), ExamplesConfig) and not changes:
        return likeness_quality(loaded, texts, vectors)
    limit = limit or (PAIRS if isinstance(loaded, Translator | LanguageModel) else None)
    found = score(loaded, run, changes, limit).scores
    scores = {name: value for name, value in found.items() if not name.endswith("_signature")}
    if isinstance(loaded, Translator):
        scores = {"loss": round(pair_loss(loaded, pairs_of(loaded, run, changes, limit)), 4)} | scores
    if type(loaded) is TextEncoder:
        scores |= likeness_quality(loaded, texts, vectors)
    return scores


def own_data(run: Path) -> Any:
    stored = run / "recipe.toml"
    return Recipe.load(stored).data if stored.is_file() else None


def text_quality(loaded: LanguageModel, run: Path, changes: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
    """Loss a token, perplexity and bits per byte of held-out text."""
    data = eval_set(loaded, run, changes).data
    text = (read_text(data.text) if changes and data.text else data.held_out())[: limit or BYTES]
    ids, context = encode_text(loaded.tokenizer, text), loaded.context
    loss = evaluate(loaded.model, text_batches(ids, context, max(1, 8192 // context)), next_token)
    size = len(text.encode())
    bits = loss * (len(ids) - 1) / math.log(2) / size
    return {
        "loss": round(loss, 4), "perplexity": round(math.exp(loss), 4), "bits_per_byte": round(bits, 4), "bytes": size
    }  # fmt: skip


def pairs_of(loaded: Translator, run: Path, changes: Mapping[str, Any], limit: int | None) -> Pairs:
    test = eval_set(loaded, run, changes, limit)
    if isinstance(test.data, TasksConfig) and test.data.embedded:
        return [(one.source, one.target) for one in tasks("test", limit or PAIRS)]
    return loaded.test_pairs(test)


def pair_loss(loaded: Translator, pairs: Pairs) -> float:
    """Loss a token of the right translations."""
    longest = loaded.model.config.max_len
    sources, targets = (loaded.encode([pair[side] for pair in pairs], longest) for side in (0, 1))
    groups = bucket(np.array([[len(s), len(t)] for s, t in zip(sources, targets, strict=True)]), 4096, None)
    told = loaded.generation
    batches = (
        pair_batch(
            [sources[i][:-1] for i in group], [targets[i][:-1] for i in group],
            bos=loaded.start[0], eos=told["eos"], pad_id=told["pad"],
        )
        for group in groups
    )  # fmt: skip
    return evaluate(loaded.model, batches, next_token)


def likeness_quality(loaded: TextEncoder, texts: list[str], vectors: dict[str, Any]) -> dict[str, Any]:
    """How well the order of all likenesses between texts stays what it is under float weights."""
    if len(texts) < 3:
        raise ValueError(f"likenesses are ranked among at least three texts, got {len(texts)}; give more lines")
    found = loaded.embed(texts)
    likeness = (found @ found.T).numpy()[np.triu_indices(len(texts), 1)]
    wanted = vectors.setdefault("likeness", likeness)
    return {"rank_correlation": round(rank_correlation(likeness, wanted), 5), "sentences": len(texts)}


def rank_correlation(found: np.ndarray, wanted: np.ndarray) -> float:
    """Spearman's, by SciPy where it is installed."""
    try:
        from scipy.stats import spearmanr
    except ImportError:
        ranks = [values.argsort().argsort() for values in (found, wanted)]
        return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
    return float(spearmanr(found, wanted).statistic)


def sentences() -> list[str]:
    """Sentences of Python's documentation, nobody's own."""
    return [title for split in ("test", "valid", "train") for _, title in summaries(split)][:SENTENCES]


def speed_of(loaded: Any, texts: Sequence[str]) -> tuple[str, float]:
    """Tokens a second of one text after the other for what writes, else texts a second."""
    if isinstance(loaded, LanguageModel):
        prompt = texts[0][:40]
        return "tokens/s", rate(lambda: written(loaded, loaded.generate([prompt], max_new_tokens=NEW_TOKENS)[0]))
    if isinstance(loaded, Translator):
        return "tokens/s", rate(
            lambda: sum(
                1 + len(loaded.translate([text], beams=1, max_new_tokens=NEW_TOKENS)[0][0].ids) for text in texts[:4]
            )
        )
    some = list(texts[:64])
    framed = loaded.frame(some)
    return "texts/s", rate(lambda: len(loaded.embed(some) if type(loaded) is TextEncoder else loaded.logits(framed)))


def written(loaded: LanguageModel, text: str) -> int:
    """Tokens of a continuation, its end included."""
    return min(NEW_TOKENS, len(loaded.tokenizer.encode(text)) + 1)


def rate(work: Callable[[], int]) -> float:
    """What `work` counts, for each second of it, after a first time that does not count."""
    work()
    rates = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        count = work()
        rates.append(count / (time.perf_counter() - start))
    return median(rates)


def render_quantize(result: Mapping[str, Any]) -> str:
    """A line for each kind of weights; behind each figure, the change against floating point."""
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
    """`+0.3%`, or `1.8×` where that says it better."""
    if kind == "none" or not before:
        return ""
    ratio = value / before
    return f"{ratio - 1:+.2%}" if 0.8 < ratio < 1.25 else f"{ratio:.2f}×"
