"""The time that a shared prefix saves: `python benchmarks/prefix.py`.

GPT-2-small shape with random weights; two prompts that share their first 1,000 of 1,016 tokens, one after the other.
"""

import time

import numpy as np

from regard.decode import Engine, Request
from regard.models import build, preset

SHARED, OWN, WORDS, ROUNDS = 1000, 16, 50_000, 3


def main() -> None:
    engine = Engine(build("gpt", preset("gpt", "gpt2", position="rotary")).eval())
    noise = np.random.default_rng(0)

    def tokens(count: int) -> list[int]:
        return noise.integers(WORDS, size=count).tolist()

    def first_token(prompt: list[int]) -> float:
        started = time.perf_counter()
        engine.serve([Request(prompt=prompt, max_len=1)])
        return time.perf_counter() - started

    first_token(tokens(64))
    for _ in range(ROUNDS):
        shared = tokens(SHARED)
        first, second = (first_token([*shared, *tokens(OWN)]) for _ in range(2))
        print(f"first token after {first:.2f} s, of the second request after {second:.3f} s: {second / first:.1%}")


if __name__ == "__main__":
    main()
