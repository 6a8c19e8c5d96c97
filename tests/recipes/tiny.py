"""Every recipe at a size that trains in a second, on small files such as a user has."""

import json
from functools import cache

from regard.recipes import fit, recipe

SIZES = {
    "model.dim": 16, "model.heads": 2, "model.ffn_dim": 24, "model.depth": 1, "data.vocab_size": 320,
    "train.steps": 6, "train.batch_tokens": 256, "train.eval_every": 3, "train.save_every": 3, "train.warmup": 2,
}  # fmt: skip
RECURRENT = ("gru", "lstm", "rnn")
COLOURS, ANIMALS = ("red", "green", "blue", "black"), ("cat", "dog", "horse", "mouse", "bird")
FACTS = [(colour, animal) for colour in COLOURS for animal in ANIMALS] * 2


def write_files(folder):
    """Files of every kind; returns the `--data` fields of each recipe on them."""

    def write(name, lines):
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        return str(folder / name)

    said = [f"The {colour} {animal} sees a {animal} in May." for colour, animal in FACTS]
    texts = [write("a.txt", said), write("b.txt", [f"No {animal} is {colour}.\n" for colour, animal in FACTS])]
    conll = []
    for colour, animal in FACTS:
        conll += ["The O", f"{colour} O", f"{animal} B-ANIMAL", "saw O", "New B-PLACE", "York I-PLACE", ". O", ""]
    questions = [
        {"question": f"What is {c}?", "passage": text, "answer": animal if i % 4 else None}
        for i, ((c, animal), text) in enumerate(zip(FACTS, said, strict=True))
    ]
    instructions = [{"prompt": f"colour of the {c} {a}", "answer": c} for c, a in FACTS]
    return {
        "lm": {"data.text": texts},
        "bert": {"data.text": texts, "data.max_len": 32},
        "spans": {"data.text": texts, "data.max_len": 24},
        "t5": {"data.pairs": write("pairs.tsv", [f"colour: {c} {a}\t{c}" for c, a in FACTS])},
        "classify": {"data.train": write("labels.tsv", [f"{t}\t{c}" for t, (c, _) in zip(said, FACTS, strict=True)])},
        "tag": {"data.train": write("tags.conll", conll)},
        "answer": {"data.train": write("questions.jsonl", map(json.dumps, questions))},
        "embed": {"data.train": write("alike.csv", ["a,b,score", *(f'"{t}","A {c} {a}.",{i % 3 / 2}'
                  for i, (t, (c, a)) in enumerate(zip(said, FACTS, strict=True)))])},
        "instruct": {"data.train": write("told.jsonl", map(json.dumps, instructions))},
    }  # fmt: skip


def plan(name, changes):
    """A recipe at this size; `name` may be a recurrent family for the language model."""
    fields = SIZES | changes
    if name in RECURRENT:
        fields = {k: v for k, v in fields.items() if k not in ("model.heads", "model.ffn_dim")} | {"model": name}
    return recipe("lm" if name in RECURRENT else name, fields)


class Tiny:
    """Runs by name, each trained once a session on the user's files."""

    def __init__(self, folder):
        self.folder, self.files = folder, write_files(folder)

    def plan(self, name, **changes):
        own = self.files["lm" if name in RECURRENT else name]
        return plan(name, own | {key.replace("__", "."): value for key, value in changes.items()})

    @cache  # noqa: B019  lives as long as the session
    def run(self, name):
        fit(self.plan(name), self.folder / name, quiet=True)
        return self.folder / name


_SHARED = []


def shared(tmp_path_factory):
    """The session's runs, for tests of several folders."""
    if not _SHARED:
        _SHARED.append(Tiny(tmp_path_factory.mktemp("tiny")))
    return _SHARED[0]
