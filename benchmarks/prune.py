"""Half of a translator's heads removed: those that matter least by ablation, against random halves.

    python benchmarks/prune.py runs/mine [--draws 5] [--limit 300] [--data.valid-source dev.en …]

Prints held-out loss and BLEU (sacreBLEU, as regard eval; beam 1) of the model as it is, without the half that matters
least, and without each random half.
"""

import argparse
import copy
import random
from pathlib import Path

from regard.cli import overrides
from regard.eval.prune import held_out_loss, removable, remove, sift
from regard.eval.scores import eval_set
from regard.tasks import load
from regard.tasks.translator import Translator
from regard.train.progress import Line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--limit", type=int, default=300)
    options, fields = parser.parse_known_args()
    loaded, loss_of = load(options.run), held_out_loss(options.run, overrides(fields))
    pairs = loaded.test_pairs(eval_set(loaded, options.run, {}, options.limit))
    every = removable(loaded.model)
    count = round(options.share * len(every))
    best, _ = sift(loaded.model, count, lambda: loss_of(loaded.model), Line())

    halves = {"all heads": [], "the least by ablation": best}
    halves |= {f"random, seed {seed}": random.Random(seed).sample(every, count) for seed in range(options.draws)}
    print(f"{options.run}: {len(every)} heads, {count} removed, {len(pairs)} sentences")
    print(f"{'':24}{'loss':>8}{'BLEU':>8}")
    for name, heads in halves.items():
        model = copy.deepcopy(loaded.model)
        remove(model, heads)
        one = Translator(model, loaded.tokenizer, loaded.generation)
        bleu = one.evaluate_pairs(pairs, beams=1).scores["bleu"]
        print(f"{name:24}{loss_of(model):8.4f}{bleu:8.2f}", flush=True)


if __name__ == "__main__":
    main()
