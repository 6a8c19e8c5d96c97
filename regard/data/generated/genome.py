"""The embedded DNA: sequences whose every statistic is known, because they are drawn here.

Between genes, bases are independent, with more A and T than C and G. A gene is ATG, codons of which some are much more
frequent than others, and a stop codon. So the next base depends on the place in its codon, and that on where the gene
began, which may be hundreds of bases ago: more than a table of the last few bases can know. `generator_bits` is what
the one who knows the rules needs for each base, and nobody can need less.
"""

import hashlib
import math
from functools import cache
from itertools import product

import numpy as np

from regard.data.generated.splits import SPLITS, check_stream

BASES = "ACGT"
BETWEEN = (0.32, 0.18, 0.18, 0.32)
"""Probabilities of the bases between genes."""
BEGINS, ENDS = 1 / 100, 1 / 100
"""Probability of a gene after each base between genes, and of its end after each codon."""
STOPS = {"TAA": 0.5, "TAG": 0.25, "TGA": 0.25}
SIZES = {"train": 2_000_000, "valid": 60_000, "test": 60_000}
LINE = 20_000
"""Bases of a sequence, of which each is a line."""


@cache
def codons() -> tuple[tuple[str, ...], np.ndarray]:
    """The codons of genes, and the probability of each."""
    names = tuple(codon for codon in map("".join, product(BASES, repeat=3)) if codon not in STOPS)
    weights = np.random.default_rng(61).random(len(names)) ** 4
    return names, weights / weights.sum()


@cache
def genome(split: str) -> str:
    """The sequences of a split, one a line."""
    check_stream(split)
    rng = np.random.default_rng((11, SPLITS.index(split)))
    names, usage = codons()
    parts: list[str] = []
    size = 0
    while size < SIZES[split]:
        plain = choose(rng, BETWEEN, int(rng.geometric(BEGINS)))
        gene = choose(rng, usage, int(rng.geometric(ENDS)))
        (stop,) = choose(rng, tuple(STOPS.values()), 1)
        parts += ["".join(BASES[i] for i in plain), "ATG", "".join(names[i] for i in gene), list(STOPS)[stop]]
        size = size + len(plain) + 3 * len(gene) + 6
    whole = "".join(parts)[: SIZES[split]]
    return "".join(whole[start : start + LINE] + "\n" for start in range(0, len(whole), LINE))


def choose(rng: np.random.Generator, probabilities: tuple[float, ...] | np.ndarray, count: int) -> np.ndarray:
    """Numbers with these probabilities."""
    return np.minimum(np.searchsorted(np.cumsum(probabilities), rng.random(count)), len(probabilities) - 1)


@cache
def genome_hash() -> str:
    """The SHA-256 of all splits, in hexadecimal."""
    return hashlib.sha256("\0".join(map(genome, SPLITS)).encode()).hexdigest()


@cache
def rules() -> np.ndarray:
    """For each base, the probabilities with which a hidden state emits it and another one follows."""
    names, usage = codons()
    prefixes = ["", *BASES, *map("".join, product(BASES, repeat=2))]
    stops = ("stop ", "stop T", "stop TA", "stop TG")
    states = ["between", "begins", "A", "AT", *(f"codon {each}" for each in prefixes), *stops]
    index = {state: number for number, state in enumerate(states)}
    moves = np.zeros((4, len(states), len(states)))

    def add(state: str, base: str, after: str, probability: float) -> None:
        moves[BASES.index(base), index[state], index[after]] += probability

    for base, probability in zip(BASES, BETWEEN, strict=True):
        add("between", base, "between", probability * (1 - BEGINS))
        add("between", base, "begins", probability * BEGINS)
    for state, base, after in (("begins", "A", "A"), ("A", "T", "AT"), ("AT", "G", "codon ")):
        add(state, base, after, 1.0)
    for table, kind in ((dict(zip(names, usage, strict=True)), "codon "), (STOPS, "stop ")):
        for prefix in prefixes:
            below = {codon: float(p) for codon, p in table.items() if codon.startswith(prefix)}
            if kind + prefix not in index or not below:
                continue
            for codon, p in below.items():
                base, part = codon[len(prefix)], p / sum(below.values())
                if len(prefix) < 2:
                    add(kind + prefix, base, kind + prefix + base, part)
                elif kind == "codon ":
                    add(kind + prefix, base, "codon ", part * (1 - ENDS))
                    add(kind + prefix, base, "stop ", part * ENDS)
                else:
                    add(kind + prefix, base, "between", part)
    return moves


def generator_bits(text: str) -> float:
    """The bits for each base of sequences under the rules that drew them, hidden states unknown (forward algorithm)."""
    moves, bits, count = rules(), 0.0, 0
    state = np.zeros(moves.shape[1])
    state[0] = 1.0
    for base in text.replace("\n", ""):
        state = state @ moves[BASES.index(base)]
        total = state.sum()
        bits, count, state = bits - math.log2(total), count + 1, state / total
    return bits / count
