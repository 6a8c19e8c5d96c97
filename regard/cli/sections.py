"""The sections of `regard --help`, and the examples at its end."""

import click

SECTIONS = {
    "Train": ("choose", "train", "finetune", "recipes", "launch", "convert", "prune"),
    "Use": (
        "translate", "generate", "classify", "tag", "answer", "fill", "embed", "nearest", "predict", "detect",
        "caption", "transcribe", "forecast", "complete",
    ),
    "Look inside": ("look", "latent", "attend", "draw", "why"),
    "Understand costs": ("cost", "bench", "cheaper"),
    "Serve": ("serve",),
    "Data and tokens": ("data", "sample", "tokenizer"),
    "Check": ("eval", "compare", "doctor", "claims", "completion"),
}  # fmt: skip
"""Commands by what they are for, in the order of a newcomer's way; a verb of a plugin is one to use."""

EXAMPLES = """\b
Examples:
  regard train translate --out runs/demo          Train a translator on data that come with Regard.
  regard translate runs/demo "twenty-five euros"  Use it.
  regard look runs/demo "twenty-five euros"       Open a page that shows what it attends to.
  regard train classify --data.train reviews.csv  Train on data of your own.
  regard serve runs/demo                          Serve it at http://127.0.0.1:8000/.
  regard COMMAND --help                           Show the options of a command, with examples.
"""


class Sections(click.Group):
    """A group whose help lists its commands in sections, each with a whole sentence."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        width = max(map(len, names))
        listed = {name for section in SECTIONS.values() for name in section}
        for title, section in SECTIONS.items():
            own = [name for name in names if name not in listed] if title == "Use" else []
            commands = [(name, self.get_command(ctx, name)) for name in [*section, *own] if name in names]
            rows = [(name.ljust(width), command.get_short_help_str(500)) for name, command in commands if command]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
