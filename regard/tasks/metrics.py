"""How good an output is, by the field's own packages."""

import importlib
from collections.abc import Sequence
from typing import Any


def translation_scores(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> dict:
    """sacreBLEU and chrF with their signatures, and the share of exact matches, all in percent."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    bleu, chrf = BLEU(lowercase=lowercase), CHRF()
    scores = {
        "bleu": round(bleu.corpus_score(list(hypotheses), [list(references)]).score, 2),
        "chrf": round(chrf.corpus_score(list(hypotheses), [list(references)]).score, 2),
        "exact_match": round(exact_match(hypotheses, references), 2),
        "sentences": len(hypotheses),
        "bleu_signature": str(bleu.get_signature()),
        "chrf_signature": str(chrf.get_signature()),
    }
    return scores


def caption_scores(hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False) -> dict:
    """sacreBLEU of up to four words in a row against all captions of each picture, and the share that equals one."""
    from sacrebleu.metrics.bleu import BLEU

    bleu = BLEU(lowercase=lowercase)
    most = max(map(len, references))
    streams: list[list[Any]] = [[row[i] if i < len(row) else None for row in references] for i in range(most)]
    folded = str.lower if lowercase else str
    pairs = zip(hypotheses, references, strict=True)
    same = [folded(said.strip()) in [folded(one.strip()) for one in row] for said, row in pairs]
    return {
        "bleu_4": round(bleu.corpus_score(list(hypotheses), streams).score, 2),
        "exact_match": round(100 * sum(same) / len(same), 2),
        "pictures": len(same),
        "bleu_signature": str(bleu.get_signature()),
    }


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Percent of hypotheses that equal their reference, but for space at the ends."""
    same = sum(h.strip() == r.strip() for h, r in zip(hypotheses, references, strict=True))
    return 100 * same / max(1, len(references))


def label_scores(found: Sequence[str], wanted: Sequence[str]) -> dict:
    """Accuracy and macro F1 by scikit-learn, in percent."""
    metrics = needed("sklearn.metrics")
    return {
        "accuracy": round(100 * metrics.accuracy_score(wanted, found), 2),
        "macro_f1": round(100 * metrics.f1_score(wanted, found, average="macro"), 2),
        "examples": len(wanted),
    }


def tag_scores(found: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]]) -> dict:
    """Precision, recall and F1 over whole entities by seqeval (strict, IOB2), in percent."""
    metrics, scheme = needed("seqeval.metrics"), needed("seqeval.scheme")
    rows = [list(row) for row in wanted], [list(row) for row in found]
    how = dict(mode="strict", scheme=scheme.IOB2, zero_division=0)
    names = ("precision", "recall", "f1")
    scores = {name: round(100 * getattr(metrics, f"{name}_score")(*rows, **how), 2) for name in names}
    return scores | {"examples": len(wanted)}


def likeness_scores(found: Sequence[float], wanted: Sequence[float]) -> dict:
    """Spearman's rank correlation by SciPy, in percent."""
    stats = needed("scipy.stats")
    return {"spearman": round(100 * float(stats.spearmanr(found, wanted).statistic), 2), "examples": len(wanted)}


def summary_scores(found: Sequence[str], wanted: Sequence[str]) -> float:
    """Mean ROUGE-L F1 by rouge-score, with stemming, in percent."""
    scorer = needed("rouge_score.rouge_scorer").RougeScorer(["rougeL"], use_stemmer=True)
    values = [scorer.score(right, text)["rougeL"].fmeasure for right, text in zip(wanted, found, strict=True)]
    return round(100 * sum(values) / max(1, len(values)), 2)


def needed(module: str) -> Any:
    """A package of the extra `text`, or the error that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        name = module.partition(".")[0]
        raise ImportError(f"scores need {name}, which is not installed: pip install 'regard[text]'") from None
