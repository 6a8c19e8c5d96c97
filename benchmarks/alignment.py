"""Which cross-attention head of a translator is the best alignment, by two measures that know nothing of each other.

    python benchmarks/alignment.py runs/mine [--sentences 40] [--pairs 5000]

Erasure: the head looks most at the source token without which the output is least likely (as regard look says).
Words: it looks most at the source token that IBM Model 1 (Brown et al., 1993), trained here on the run's pairs, links
with the target token. Both on held-out pairs, with the reference translation.
"""

import argparse
from pathlib import Path

import numpy as np

from regard.data.sets.pairs import PairsConfig, embedded
from regard.eval.scores import data_of, held_out_pairs
from regard.inside.explain import aligners
from regard.tasks import load

ROUNDS = 8


def model_1(pairs: list[tuple[list[int], list[int]]], vocab: int) -> np.ndarray:
    """Chances of a target token given a source token, V × V: some rounds of expectation and maximisation."""
    chances = np.full((vocab, vocab), 1 / vocab, dtype=np.float32)
    for _ in range(ROUNDS):
        counts = np.zeros_like(chances)
        for source, target in pairs:
            links = chances[np.ix_(source, target)]
            np.add.at(counts, np.ix_(source, target), links / links.sum(0, keepdims=True))
        chances = counts / counts.sum(1, keepdims=True).clip(1e-9)
    return chances


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--sentences", type=int, default=40)
    parser.add_argument("--pairs", type=int, default=5000)
    options = parser.parse_args()
    loaded, data = load(options.run), data_of(options.run, PairsConfig, {})
    training = embedded("train", options.pairs) if data.embedded else data.split()[0][: options.pairs]
    encode = loaded.tokenizer.encode
    known = model_1([(encode(a), encode(b)) for a, b in training if a and b], len(loaded.tokenizer))

    questions = [loaded.read(a, target=b) for a, b in held_out_pairs(options.run, {}, options.sentences)]
    by_erasure = aligners(*questions)
    hits: dict[tuple[str, int], int] = {}
    total = 0
    for question in questions:
        seen = all_weights(question)
        source, target = question.inputs["source"][0].tolist()[:-1], question.outputs.columns[:-1]  # without <eos>
        links = known[np.ix_(source, target)]
        rows = np.flatnonzero(links.max(0) > 0.1)  # words that have a translation
        total += len(rows)
        for name in seen.names_of("cross"):
            looks = seen.attention[name][0][:, :-1, :-1].argmax(-1).numpy()  # H T
            for head, own in enumerate(looks):
                hits[name, head] = hits.get((name, head), 0) + int((own[rows] == links.argmax(0)[rows]).sum())
    print(f"{options.run}: {len(questions)} sentences")
    for one in by_erasure[:4]:
        print(f"erasure   {one.layer:24} head {one.head}  {one.share:6.1%} of {one.outputs}")
    for (name, head), count in sorted(hits.items(), key=lambda item: -item[1])[:4]:
        print(f"words     {name:24} head {head}  {count / total:6.1%} of {total}")


if __name__ == "__main__":
    main()
