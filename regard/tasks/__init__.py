"""A trained model with its tokenizer: text in, answer out. One file for each thing that a model can do."""

from regard.tasks.image_captioner import Caption, ImageCaptioner
from regard.tasks.image_encoder import ImageClassifier, ImageEncoder
from regard.tasks.image_restorer import ImageRestorer
from regard.tasks.image_text_matcher import ImageTextMatcher
from regard.tasks.language_model import LanguageModel
from regard.tasks.loading import load, load_for
from regard.tasks.object_detector import Detection, ObjectDetector
from regard.tasks.pixel_model import PixelModel
from regard.tasks.text_encoder import Match, TextEncoder
from regard.tasks.text_heads import (
    Answer,
    Entity,
    EntityTagger,
    Filled,
    Label,
    MaskFiller,
    QuestionAnswerer,
    TextClassifier,
)
from regard.tasks.translator import Translation, Translator

__all__ = [
    "Answer", "QuestionAnswerer", "Caption", "ImageCaptioner", "TextClassifier", "ImageTextMatcher", "Detection", "ObjectDetector", "TextEncoder",
    "Entity", "Filled", "MaskFiller", "Match", "Label", "PixelModel", "ImageClassifier", "ImageEncoder", "ImageRestorer",
    "EntityTagger", "Translation", "Translator", "LanguageModel", "load", "load_for",
]  # fmt: skip
