"""Metrics of model outputs, by the field's own packages where there are any. Shares are in percent."""

import bz2
import importlib
import lzma
import math
import re
import string
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from regard.data.notices import track
from regard.data.readers.preprocessing import Preprocessing
from regard.data.sets.augment import Augmentation
from regard.data.sets.batches import Batch, text_batches
from regard.data.sets.labelled_images import LabelledImages
from regard.data.sets.unlabelled_images import PixelStream
from regard.objectives.next_token import next_token
from regard.tasks.scored import Confusion
from regard.tokens import Tokenizer
from regard.tokens.encoding import encode_text, raw
from regard.tokens.pixel_tokenizer import PixelTokenizer
from regard.train.loop import evaluate


def sacrebleu_metrics() -> tuple[Any, Any]:
    """The classes of BLEU and chrF."""
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError:
        raise ImportError("BLEU needs sacrebleu: pip install 'regard[text]'") from None
    return BLEU, CHRF


def translation_scores(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> dict:
    """sacreBLEU and chrF with their signatures, and the share of exact matches."""
    BLEU, CHRF = sacrebleu_metrics()  # noqa: N806
    bleu, chrf = BLEU(lowercase=lowercase), CHRF()
    return {
        "bleu": round(bleu.corpus_score(list(hypotheses), [list(references)]).score, 2),
        "chrf": round(chrf.corpus_score(list(hypotheses), [list(references)]).score, 2),
        "exact_match": round(exact_match(hypotheses, references), 2),
        "sentences": len(hypotheses),
        "bleu_signature": str(bleu.get_signature()),
        "chrf_signature": str(chrf.get_signature()),
    }


def caption_scores(hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False) -> dict:
    """sacreBLEU of up to four words against all captions of each image, and the share that equals one of them."""
    bleu = sacrebleu_metrics()[0](lowercase=lowercase)
    most = max(map(len, references))
    streams: list[list[Any]] = [[row[i] if i < len(row) else None for row in references] for i in range(most)]
    folded = str.lower if lowercase else str
    pairs = zip(hypotheses, references, strict=True)
    equal = [folded(text.strip()) in [folded(caption.strip()) for caption in row] for text, row in pairs]
    return {
        "bleu_4": round(bleu.corpus_score(list(hypotheses), streams).score, 2),
        "exact_match": round(100 * sum(equal) / len(equal), 2),
        "images": len(equal),
        "bleu_signature": str(bleu.get_signature()),
    }


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The share of hypotheses that equal their reference, but for space at the ends."""
    equal = sum(h.strip() == r.strip() for h, r in zip(hypotheses, references, strict=True))
    return 100 * equal / max(1, len(references))


def accuracy(model: Any, batches: Iterable[Batch]) -> dict[str, float]:
    """The share of rows whose highest logit is that of their label."""
    right = [row for batch in batches for row in (model(**batch.inputs).argmax(-1) == batch.targets).tolist()]
    return {"accuracy": round(100 * sum(right) / max(1, len(right)), 2)}


def label_scores(predicted: Sequence[str], expected: Sequence[str]) -> dict:
    """Accuracy and macro F1 by scikit-learn."""
    metrics = needed("sklearn.metrics")
    return {
        "accuracy": round(100 * metrics.accuracy_score(expected, predicted), 2),
        "macro_f1": round(100 * metrics.f1_score(expected, predicted, average="macro"), 2),
        "examples": len(expected),
    }


def label_table(predicted: Sequence[str], expected: Sequence[str], known: Collection[str] = ()) -> dict[str, Any]:
    """Fields of a `Scored` of labels: precision, recall and F1 of each label by scikit-learn, their confusion, and
    counts of those that are not among the `known` ones, where these are given."""
    metrics, labels = needed("sklearn.metrics"), sorted({*expected, *predicted})
    columns = metrics.precision_recall_fscore_support(expected, predicted, labels=labels, zero_division=0)
    pairs = Counter(zip(expected, predicted, strict=True))
    counts = tuple(tuple(pairs[label, other] for other in labels) for label in labels)
    return {
        "classes": [class_row(label, *row) for label, *row in zip(labels, *columns, strict=True)],
        "confusion": Confusion(tuple(labels), counts),
        "unseen": dict(Counter(label for label in expected if known and label not in known)),
    }


def class_row(label: str, precision: float, recall: float, f1: float, count: Any) -> dict[str, Any]:
    """A row of the table of classes, in percent."""
    shares = {"precision": precision, "recall": recall, "f1": f1}
    return {"label": label} | {name: round(100 * float(x), 2) for name, x in shares.items()} | {"count": int(count)}


def tag_table(predicted: Sequence[Sequence[str]], expected: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Precision, recall and F1 of each kind of entity, by seqeval (strict, IOB2)."""
    metrics, scheme = needed("seqeval.metrics.v1"), needed("seqeval.scheme")
    rows = [list(row) for row in expected], [list(row) for row in predicted]
    columns = metrics.precision_recall_fscore_support(*rows, average=None, scheme=scheme.IOB2, zero_division=0)
    kinds = sorted({tag[2:] for part in rows for row in part for tag in row if tag != "O"})
    return [class_row(label, *row) for label, *row in zip(kinds, *columns, strict=True)]


def answer_f1(predicted: Sequence[str], expected: Sequence[str]) -> float:
    """SQuAD's F1 of the words of answers, without case, punctuation and articles, averaged over examples."""
    return 100 * sum(map(words_f1, predicted, expected)) / max(1, len(expected))


def answer_scores(texts: Sequence[str], expected: Sequence[str]) -> dict[str, float]:
    """The share of answers that are exactly right, and SQuAD's F1 of their words."""
    return {"exact_match": round(exact_match(texts, expected), 2), "f1": round(answer_f1(texts, expected), 2)}


def words_f1(predicted: str, expected: str) -> float:
    """F1 of the words of one answer; an empty answer is right only if the expected one is empty."""
    first, second = (Counter(plain_words(text)) for text in (predicted, expected))
    if not first or not second:
        return float(first == second)
    shared = (first & second).total()
    return 2 * shared / (first.total() + second.total())


def plain_words(text: str) -> list[str]:
    """The words of an answer as SQuAD compares them."""
    bare = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", bare).split()


def tag_scores(predicted: Sequence[Sequence[str]], expected: Sequence[Sequence[str]]) -> dict:
    """Precision, recall and F1 over whole entities by seqeval (strict, IOB2)."""
    metrics, scheme = needed("seqeval.metrics"), needed("seqeval.scheme")
    rows = [list(row) for row in expected], [list(row) for row in predicted]
    options = dict(mode="strict", scheme=scheme.IOB2, zero_division=0)
    names = ("precision", "recall", "f1")
    scores = {name: round(100 * getattr(metrics, f"{name}_score")(*rows, **options), 2) for name in names}
    return scores | {"examples": len(expected)}


def similarity_scores(predicted: Sequence[float], expected: Sequence[float]) -> dict:
    """Spearman's rank correlation by SciPy."""
    stats = needed("scipy.stats")
    return {
        "spearman": round(100 * float(stats.spearmanr(predicted, expected).statistic), 2),
        "examples": len(expected),
    }


def summary_scores(predicted: Sequence[str], expected: Sequence[str]) -> float:
    """Mean ROUGE-L F1 by rouge-score, with stemming."""
    scorer = needed("rouge_score.rouge_scorer").RougeScorer(["rougeL"], use_stemmer=True)
    values = [scorer.score(right, text)["rougeL"].fmeasure for right, text in zip(expected, predicted, strict=True)]
    return round(100 * sum(values) / max(1, len(values)), 2)


def text_scores(model: Any, tokenizer: Tokenizer, context: int, text: str) -> dict[str, Any]:
    """Bits per byte of a language model, next to two programs that compress the same bytes."""
    whole = raw(text)
    return {
        "bits_per_byte": round(bits_per_byte(model, tokenizer, context, text), 4),
        "xz": round(8 * len(lzma.compress(whole, preset=9 | lzma.PRESET_EXTREME)) / len(whole), 4),
        "bz2": round(8 * len(bz2.compress(whole)) / len(whole), 4),
        "bytes": len(whole),
    }


def bits_per_byte(model: Any, tokenizer: Tokenizer, context: int, text: str) -> float:
    """The cross-entropy of a text in bits per byte, in windows of the model's context."""
    ids = encode_text(tokenizer, text)
    batches = text_batches(ids, context, max(1, 8192 // context))
    mean = evaluate(model, track(batches, "tokens:", len(ids), lambda batch: batch.targets.numel()), next_token)
    return mean * (len(ids) - 1) / math.log(2) / len(raw(text))


def pixel_scores(model: Any, pixels: PixelTokenizer, images: LabelledImages, known: LabelledImages) -> dict[str, Any]:
    """Bits per dimension of held-out images, next to each pixel's histogram over the training images `known`."""
    rows = max(1, 16_384 // len(pixels))
    stream = PixelStream(
        images, Preprocessing(scale=None), Augmentation(), rows, encode=pixels.encode, start=pixels.start
    )
    unit = math.log(2) * pixels.channels
    batches = track(stream.once(images, rows), "images:", len(images), lambda batch: len(batch.targets))
    histograms = histogram_nats(pixels.encode(known.pixels[:]), pixels.encode(images.pixels[:]), pixels)
    return {
        "bits_per_dimension": round(evaluate(model, batches, next_token) / unit, 4),
        "histograms": round(histograms / unit, 4),
        "examples": len(images),
    }


def histogram_nats(known: np.ndarray, ids: np.ndarray, pixels: PixelTokenizer) -> float:
    """Return the mean cross-entropy of pixels under their own histogram, with add-half smoothing."""
    positions = np.arange(len(pixels))
    counts = np.full((len(pixels), pixels.colours), 0.5)
    np.add.at(counts, (np.broadcast_to(positions, known.shape), known), 1)
    return float(-np.log(counts[positions, ids] / counts.sum(1)).mean())


def recall_scores(
    image_vectors: Tensor, text_vectors: Tensor, captions: Sequence[Sequence[str]], texts: Sequence[str]
) -> tuple[dict[str, float], list[str]]:
    """Recall at 1 from images to texts and back, by the cosine of unit vectors; and the best text of each image."""
    similarity = image_vectors @ text_vectors.T
    best = [texts[i] for i in similarity.argmax(1).tolist()]
    right = sum(text in own for text, own in zip(best, captions, strict=True))
    back = sum(text in captions[i] for text, i in zip(texts, similarity.argmax(0).tolist(), strict=True))
    return {
        "text_recall_at_1": round(100 * right / len(captions), 2),
        "image_recall_at_1": round(100 * back / len(texts), 2),
    }, best


def needed(module: str) -> Any:
    """A package of the extra `text`, or the error that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        name = module.partition(".")[0]
        raise ImportError(f"metrics need {name}, which is not installed: pip install 'regard[text]'") from None
