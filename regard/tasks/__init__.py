"""A trained model with its tokenizer: text in, answer out. One file for each thing that a model can do."""

from regard.tasks.captioner import Caption, CaptionWriter
from regard.tasks.comparer import Comparer
from regard.tasks.detector import Detection, Detector
from regard.tasks.encoder import Encoder, Found
from regard.tasks.loading import load, load_for
from regard.tasks.painter import Painter
from regard.tasks.pictures import PictureClassifier, PictureEncoder
from regard.tasks.readers import Answer, Answerer, Classifier, Entity, Filled, Filler, Label, Tagger
from regard.tasks.restorer import Restorer
from regard.tasks.translator import Translation, Translator
from regard.tasks.writer import Writer

__all__ = [
    "Answer", "Answerer", "Caption", "CaptionWriter", "Classifier", "Comparer", "Detection", "Detector", "Encoder",
    "Entity", "Filled", "Filler", "Found", "Label", "Painter", "PictureClassifier", "PictureEncoder", "Restorer",
    "Tagger", "Translation", "Translator", "Writer", "load", "load_for",
]  # fmt: skip
