"""A known circuit, found by three views: the induction head, which attends to what followed last time.

    python benchmarks/induction.py runs/induction [--out induction.png]

Trains two layers of two heads on lines in which random letters repeat (about one minute of one core), if the run is
not there yet. Then every head is scored by where it looks (at what followed the same letter last time), by ablation
(how much the loss of the repeated letters rises without it) and by patching (how much of a swapped letter it carries
to the end). The same head comes first by where it looks and by patching; without it, or without its partner that
looks at the letter before, there is no circuit, so ablation has these two on top. Afterwards:

    regard look runs/induction "qwertyuiopqwert" --out heads.png
    regard look runs/induction "qwertyuiopqwert" --view patch --against "qwertzuiopqwert" --out patch.png
"""

import argparse
import random
import string
from pathlib import Path

import torch

from regard.inside.capture.weights import look
from regard.inside.draw.tables import draw_tables
from regard.inside.explain import patch
from regard.inside.explain.effects import head_effects
from regard.inside.explain.patterns import induction, previous
from regard.inside.views.explanations import head_table
from regard.recipes import fit, recipe
from regard.tasks import load

LENGTH = 20
"""Letters of a word that is tested on; they are all different."""


def lines(count: int, seed: int) -> str:
    """Words of distinct letters, each repeated twice or more."""
    draw, found = random.Random(seed), []
    for _ in range(count):
        word = "".join(draw.sample(string.ascii_lowercase, draw.randint(8, LENGTH)))
        found.append((3 * word)[: draw.randint(2 * len(word), 3 * len(word))])
    return "\n".join(found)


def train(run: Path) -> None:
    text = run.with_suffix(".txt")
    text.parent.mkdir(parents=True, exist_ok=True)
    text.write_text(lines(30_000, seed=0), encoding="utf-8")
    fields = {
        "data.text": str(text), "data.kind": "char", "model.dim": 64, "model.depth": 2, "model.heads": 2,
        "model.ffn_dim": 1, "model.max_len": 64, "train.steps": 1000, "train.eval_every": 200,
    }  # fmt: skip
    fit(recipe("lm", fields), run)


def score(run: Path) -> dict[str, dict[str, torch.Tensor]]:
    """Each head by each view, on words that were never seen."""
    loaded, draw = load(run), random.Random(1)
    words = ["".join(draw.sample(string.ascii_lowercase, LENGTH)) for _ in range(32)]
    ids = torch.tensor([loaded.encode(word + word) for word in words])
    with torch.no_grad():
        with look(loaded.model) as seen:
            loaded.model(ids)
        names = seen.names

        def loss() -> float:
            """Of the letters that repeat, from the second on."""
            said = loaded.model(ids)[:, LENGTH:-1]
            return torch.nn.functional.cross_entropy(said.transpose(1, 2), ids[:, LENGTH + 1 :]).item()

        effects, base = head_effects(loaded.model, loss), loss()
    print(f"loss of repeated letters {base:.3f} (guessing: {torch.log(torch.tensor(26.0)):.3f})")
    shares = {name: torch.zeros_like(effects[name]) for name in names}
    for word in words[:8]:  # one letter is another: what followed last time is, too
        new = draw.choice(sorted(set(string.ascii_lowercase) - set(word)))
        texts = [word + word[:10], word[:10] + new + word[11:] + word[:10]]
        first, other = (loaded.read(text).select(at=-1, token=text[10]) for text in texts)
        found = patch(first, other).heads
        shares = {name: shares[name] + found[name] / 8 for name in names}
    weights = {name: seen.attention[name] for name in names}
    return {
        "looks at what followed last time": {name: induction(weights[name], ids) for name in names},
        "looks at the letter before": {name: previous(weights[name]) for name in names},
        "loss rises without it": effects,
        "carries a swapped letter": shares,
    }


def ranked(layers: dict[str, torch.Tensor]) -> list[tuple[str, int]]:
    """All heads of all layers, the highest first."""
    values = {(name, head): value for name, heads in layers.items() for head, value in enumerate(heads.tolist())}
    return sorted(values, key=values.__getitem__, reverse=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, help="draw the scores")
    options = parser.parse_args()
    if not (options.run / "model.safetensors").exists():
        train(options.run)
    found = score(options.run)
    for view, layers in found.items():
        print(view)
        for name, heads in layers.items():
            print(f"  {name:32}" + "".join(f"{value:9.3f}" for value in heads.tolist()))
    for view in found:
        print(f"{view}: {', then '.join(f'{name} head {head}' for name, head in ranked(found[view])[:2])}")
    if options.out is not None:
        draw_tables([head_table(layers, view) for view, layers in found.items()], options.out)


if __name__ == "__main__":
    main()
