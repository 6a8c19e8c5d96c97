"""A trained model with its tokenizer: text in, answer out. One file for each thing that a model can do."""

from regard.tasks.load import load
from regard.tasks.translator import Translation, Translator
from regard.tasks.writer import Writer

__all__ = ["Translation", "Translator", "Writer", "load"]
