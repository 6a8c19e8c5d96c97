"""The gain of prompt-lookup decoding on texts that copy: `python benchmarks/lookup.py RUN FILE`.

Prompts are pieces of FILE (for the README: a file that says every sentence of Python's documentation three times, on
which RUN was trained), each followed by its first tokens again. Greedy, one text at a time, with and without guesses in
turns; the texts must be equal.
"""

import sys
import time

import numpy as np

import regard
from regard.decode import Request
from regard.decode.speculative import Lookup

PROMPTS, ROUNDS, AGAIN, NEW = 12, 5, 8, 120


def main(run: str, file: str) -> None:
    writer = regard.load(run)
    with open(file, encoding="utf-8") as text:
        ids = writer.tokenizer.encode(text.read())
    length = (writer.context - AGAIN - NEW) - len(writer.front)
    if length < AGAIN or len(ids) <= length:
        raise SystemExit(f"a context of {writer.context} and a text of {len(ids)} tokens are too short for this")
    starts = np.random.default_rng(0).integers(len(ids) - length, size=PROMPTS)
    prompts = [[*writer.front, *ids[s : s + length], *ids[s : s + AGAIN]] for s in starts]

    def write(propose: Lookup | None) -> tuple[float, list[list[int]]]:
        started = time.perf_counter()
        found = [writer.engine.serve([Request(prompt=p, max_len=NEW, propose=propose)])[0].ids for p in prompts]
        return time.perf_counter() - started, found

    write(None)
    ratios = []
    for _ in range(ROUNDS):
        (plain, texts), (quick, same) = write(None), write(Lookup())
        assert texts == same, "guesses changed a text"
        ratios.append(plain / quick)
    print(f"{np.median(ratios):.2f}× ({min(ratios):.2f}–{max(ratios):.2f}) as fast with guesses; {PROMPTS} equal texts")


if __name__ == "__main__":
    main(*sys.argv[1:])
