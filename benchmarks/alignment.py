"""The cross-attention head of a translator that aligns best, by two independent measures.

    python benchmarks/alignment.py runs/mine [--sentences 40] [--pairs 5000]

Erasure: the head attends most to the source token without which the output is least probable (as in regard look).
Words: it attends most to the source token that IBM Model 1 (Brown et al., 1993), trained here on the run's pairs, links
with the target token. Both on held-out pairs, with the reference translation.
"""

import argparse
from pathlib import Path

import numpy as np

from regard.eval.scores import eval_set
from regard.inside.explain.agreement import aligners
from regard.inside.explain.rollout import all_weights
from regard.tasks import load

ROUNDS = 8


def model_1(pairs: list[tuple[list[int], list[int]]], vocab: int) -> np.ndarray:
    """Probabilities of target tokens given a source token, V × V, by expectation maximisation."""
    probabilities = np.full((vocab, vocab), 1 / vocab, dtype=np.float32)
    for _ in range(ROUNDS):
        counts = np.zeros_like(probabilities)
        for source, target in pairs:
            links = probabilities[np.ix_(source, target)]
            np.add.at(counts, np.ix_(source, target), links / links.sum(0, keepdims=True))
        probabilities = counts / counts.sum(1, keepdims=True).clip(1e-9)
    return probabilities


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--sentences", type=int, default=40)
    parser.add_argument("--pairs", type=int, default=5000)
    options = parser.parse_args()
    task = load(options.run)
    test = eval_set(task, options.run, {}, options.sentences)
    data = test.data
    training = data.generated("train", options.pairs) if data.embedded else data.split()[0][: options.pairs]
    encode = task.tokenizer.encode
    known = model_1([(encode(a), encode(b)) for a, b in training if a and b], len(task.tokenizer))

    questions = [task.read(a, target=b).select() for a, b in task.test_pairs(test)]
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
            strongest = seen.attention[name][0][:, :-1, :-1].argmax(-1).numpy()  # H T
            for head, own in enumerate(strongest):
                hits[name, head] = hits.get((name, head), 0) + int((own[rows] == links.argmax(0)[rows]).sum())
    print(f"{options.run}: {len(questions)} sentences")
    for aligner in by_erasure[:4]:
        print(f"erasure   {aligner.layer:24} head {aligner.head}  {aligner.share:6.1%} of {aligner.outputs}")
    for (name, head), count in sorted(hits.items(), key=lambda item: -item[1])[:4]:
        print(f"words     {name:24} head {head}  {count / total:6.1%} of {total}")


if __name__ == "__main__":
    main()
