"""The front door: a directory (or a name on the Hub) becomes an object that does what its model was trained for."""

from pathlib import Path
from typing import Any

from regard.hub.checkpoint import load_generation, load_model
from regard.hub.remote import find
from regard.tasks.translator import Translator
from regard.tasks.writer import Writer
from regard.tokens import Tokenizer


def load(directory: str | Path) -> Any:
    """A run, a checkpoint in the Hugging Face layout, or its name on the Hub, ready to use.

    What comes back knows its verbs: a `Translator` translates, a `Writer` continues texts, an `Encoder` embeds
    them and fills, classifies, tags or answers, as it was trained to.
    """
    path = find(directory)
    model = load_model(path)
    parts = (model, Tokenizer.load(path), load_generation(path))
    if hasattr(model, "encode") or hasattr(model, "read"):
        return Translator(*parts)
    return Writer(*parts)
