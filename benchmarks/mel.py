"""Log-mel frames beside transformers' WhisperFeatureExtractor: seconds of audio in a second of one core.

    python benchmarks/mel.py [--seconds 300] [--rounds 5]

Noise, one thread, the best CPU time of interleaved rounds.
"""

import argparse
import time

import numpy as np
import torch
from transformers import WhisperFeatureExtractor

from regard.tokens.mel import LogMel

RATE = 16_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    samples = np.random.default_rng(0).normal(0, 0.1, options.seconds * RATE).astype(np.float32)
    theirs = WhisperFeatureExtractor(chunk_length=options.seconds)
    functions = {
        "whisper": LogMel(), "nemo": LogMel(style="nemo", fft=512, preemphasis=0.97),
        "kaldi": LogMel(style="kaldi", bands=128, fft=512, preemphasis=0.97),
        "transformers": lambda x: theirs(x, sampling_rate=RATE, truncation=False),
    }  # fmt: skip
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(options.rounds + 1):  # the first warms up
        for name, function in functions.items():
            begin = time.process_time()
            function(samples)
            best[name] = min(best[name], time.process_time() - begin)
    for name, seconds in best.items():
        print(f"{name:14}{options.seconds / seconds:8,.0f} times real time")


if __name__ == "__main__":
    main()
