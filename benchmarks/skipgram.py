"""Skip-gram here and by gensim on the same text with the same settings: rank correlations and words per second.

    pip install gensim
    python benchmarks/skipgram.py TEXT wordsim353.tsv simlex999.txt [--epochs 5] [--seeds 1] [--rates 0.025]

TEXT is a UTF-8 file; its last tenth is held out of both. gensim ships the two lists in gensim/test/test_data. Both have
100 dimensions, windows of 5, 5 noise words, subsampling at 1e-3, words that occur 5 times, lower case, and one thread.
Words are those of the text before any is left out, seconds are CPU time of the training alone.
"""

import argparse
import itertools
import tempfile
import time
from pathlib import Path

import torch

from regard.data.sets.running_text import TextConfig
from regard.recipes import recipe
from regard.runs.fit import fit_job, prepare
from regard.tasks import WordVectors, load
from regard.tokens.words import PATTERN
from regard.train.progress import Line


def words_of(text: str) -> list[str]:
    """The words of a text, as both sides read them."""
    import tokenizers
    from tokenizers import pre_tokenizers

    split = pre_tokenizers.Split(tokenizers.Regex(PATTERN), "removed", invert=True)
    return [word for line in text.lower().splitlines() for word, _ in split.pre_tokenize_str(line)]


def train_theirs(words: list[str], lists: list[str], epochs: int, seed: int, lr: float) -> tuple[float, list[float]]:
    from gensim.models import Word2Vec

    texts = [words[start : start + 10_000] for start in range(0, len(words), 10_000)]
    settings: dict = dict(vector_size=100, window=5, min_count=5, sample=1e-3, negative=5, sg=1, workers=1, alpha=lr)
    model = Word2Vec(**settings, epochs=epochs, seed=seed + 1)
    model.build_vocab(texts)
    start = time.process_time()
    model.train(texts, total_examples=model.corpus_count, epochs=epochs)
    seconds = time.process_time() - start
    return seconds, [100 * model.wv.evaluate_word_pairs(path)[1][0] for path in lists]


def train_ours(text: str, lists: list[str], epochs: int, seed: int, lr: float) -> tuple[float, list[float]]:
    fields = {"data.text": [text], "train.epochs": float(epochs), "train.seed": seed, "train.lr": lr}
    plan, out = recipe("skipgram", fields), Path(tempfile.mkdtemp()) / "run"
    job = prepare(plan.data, plan, out, False, Line(quiet=True))
    start = time.process_time()
    fit_job(job, out, quiet=True)
    seconds = time.process_time() - start
    task = load(out, as_=WordVectors)
    return seconds, [task.score_similarities(path)[0] or 0.0 for path in lists]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("lists", nargs="+")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.025], help="learning rates that both are tried at")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    words = words_of(TextConfig(text=(asked.text,)).split()[0])
    print(f"{len(words):,} words, {asked.epochs} epochs")
    for lr, seed in itertools.product(asked.rates, range(asked.seeds)):
        for name, train in (("regard", train_ours), ("gensim", train_theirs)):
            source = asked.text if name == "regard" else words
            seconds, scores = train(source, asked.lists, asked.epochs, seed, lr)  # type: ignore[operator]
            shown = "  ".join(f"{Path(path).stem} {score:.1f}" for path, score in zip(asked.lists, scores, strict=True))
            speed = asked.epochs * len(words) / seconds
            print(f"{name}  rate {lr:g}  seed {seed}  {speed:,.0f} words/s  {shown}", flush=True)


if __name__ == "__main__":
    main()
