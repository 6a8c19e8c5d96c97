"""How good translations are, by the field's own packages."""

from collections.abc import Sequence


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


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Percent of hypotheses that equal their reference, but for space at the ends."""
    same = sum(h.strip() == r.strip() for h, r in zip(hypotheses, references, strict=True))
    return 100 * same / max(1, len(references))
