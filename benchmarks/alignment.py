"""Which cross-attention head of a translator is the best alignment, by two measures that know nothing of each other.

    python benchmarks/alignment.py runs/mine [--sentences 40] [--pairs 5000]

Erasure: the head looks most at the source token without which the output is least likely (as regard look says).
Words: it looks most at the source token that IBM Model 1 (Brown et al., 1993), trained here on the run's pairs, links
with the target token. Both on held-out pairs, with the reference translation.
"""

import argparse
from pathlib import Path

import numpy as np
from regard.inside.attribution.rollout import weights_seen

from regard.data.sets.text_pairs import embedded
from regard.eval.scores import eval_set
from regard.inside.attribution import aligners, ask
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
    loaded = load(options.run)
    test = eval_set(loaded, options.run, {}, options.sentences)
    data = test.data
    training = embedded("train", options.pairs) if data.embedded else data.split()[0][: options.pairs]
    encode = loaded.tokenizer.encode
    known = model_1([(encode(a), encode(b)) for a, b in training if a and b], len(loaded.tokenizer))

    questions = [ask(loaded, a, target=b) for a, b in loaded.test_pairs(test)]
    by_erasure = aligners(*questions)
    hits: dict[tuple[str, int], int] = {}
    total = 0
    for question in questions:
        seen = weights_seen(question)
        source, target = question.inputs["source"][0].tolist()[:-1], question.choices[:-1]  # without <eos>
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
