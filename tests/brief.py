"""Regard with budgets of seconds: `python tests/brief.py regard train lm …`, or `python tests/brief.py session`, which
runs the files of Python that its input names, one after the other, as cells of one notebook.

Documents say what a user wants: minutes of training, benchmarks up to 64k tokens. To test that every command runs in
the order written, training takes three steps here, scores a few examples, and benchmarks their smallest sizes.
"""

import sys
from dataclasses import replace
from pathlib import Path

SHORT = {
    "bench attention": ["--lengths", "64..128", "--repeats", "1"],
    "bench architectures": ["--lengths", "64..128", "--repeats", "1"],
    "bench area": ["--sides", "32,64", "--repeats", "1"],
    "bench error": ["--draws", "1"],
    "bench quality": ["--steps", "2"],
    "bench images": ["--steps", "2", "--seeds", "1"],
    "bench quantize": ["--limit", "4"],
    "bench decode": ["--rounds", "1", "--new", "4", "--prompt", "4"],
    "generate": ["--max-new-tokens", "8"],
    "eval": ["--limit", "4"],
    "compare": ["--limit", "4"],
    "cheaper": ["--minutes", "0"],
    "choose": ["--minutes", "0.01", "--seeds", "2"],
    "latent": ["--limit", "20"],
}
"""Options that are appended to a command: of two values click takes the last."""
STEPS, EXAMPLES = 3, 8
DONE = "=== done ==="
"""The line behind the output of a file of a session."""


def shorten_training() -> None:
    """Let every training end after a few steps, and score a few examples after it."""
    import regard.runs.fit
    import regard.tasks.base
    from regard.decide import cheaper
    from regard.eval import scores
    from regard.tasks import language_model, translator

    whole = regard.runs.fit.fit_job

    def fit_job(job, out, **options):
        brief = dict(steps=STEPS, epochs=None, minutes=None, min_steps=0, warmup=1, eval_every=STEPS, save_every=STEPS)
        train = replace(job.recipe.train, **brief, average=1)
        return whole(replace(job, recipe=replace(job.recipe, train=train)), out, **options)

    regard.runs.fit.fit_job = fit_job
    for module in (scores, language_model, translator):
        module.TEST_EXAMPLES = EXAMPLES
    cheaper.BLOCKS, cheaper.LEAST, cheaper.TURN = 2, 1, 0.0


def shorten_words(words: list[str]) -> list[str]:
    """A command with its short options."""
    rest = words[2:] if words[:1] == ["--plugin"] else words
    for known, extra in SHORT.items():
        if rest[: len(known.split())] == known.split() and "--help" not in words:
            return [*words, *extra]
    return words


if __name__ == "__main__":
    program, *words = sys.argv[1:]
    if program == "regard":
        if {"train", "finetune", "bench", "prune", "cheaper"} & set(words):
            shorten_training()
        sys.argv = ["regard", *shorten_words(words)]
        from regard.cli import main

        main()
    else:
        shorten_training()
        names = {"__name__": "__main__"}
        for line in sys.stdin:
            exec(compile(Path(line.strip()).read_text(encoding="utf-8"), line.strip(), "exec"), names)
            print(f"\n{DONE}", flush=True)
