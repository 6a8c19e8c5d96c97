"""A trained model with its tokenizer: text in, answer out. One file for each thing that a model can do."""

from regard.tasks.encoder import Encoder, Found
from regard.tasks.loading import load, load_for
from regard.tasks.pictures import PictureClassifier, PictureEncoder
from regard.tasks.readers import Answer, Answerer, Classifier, Entity, Filled, Filler, Label, Tagger
from regard.tasks.translator import Translation, Translator
from regard.tasks.writer import Writer

__all__ = [
    "Answer", "Answerer", "Classifier", "Encoder", "Entity", "Filled", "Filler", "Found", "Label",
    "PictureClassifier", "PictureEncoder", "Tagger", "Translation", "Translator", "Writer", "load", "load_for",
]  # fmt: skip
