"""The front door: a directory (or a name on the Hub) becomes an object that does what its model was trained for."""

import inspect
from pathlib import Path
from typing import Any, Literal

from regard.hub.chat import find_chat_template
from regard.hub.checkpoint import load_generation, load_model
from regard.hub.llama2c import load_llama2c_tokenizer
from regard.hub.preprocessor import load_preprocessing
from regard.hub.remote import find
from regard.models import CLIP, DETR, MAE, Bert, Captioner
from regard.native import quantized
from regard.tasks.image_captioner import ImageCaptioner
from regard.tasks.image_encoder import ImageClassifier, ImageEncoder
from regard.tasks.image_restorer import ImageRestorer
from regard.tasks.image_text_matcher import ImageTextMatcher
from regard.tasks.language_model import LanguageModel
from regard.tasks.object_detector import ObjectDetector
from regard.tasks.pixel_model import PixelModel
from regard.tasks.text_encoder import TextEncoder
from regard.tasks.text_heads import EntityTagger, MaskFiller, QuestionAnswerer, TextClassifier
from regard.tasks.translator import Translator
from regard.tokens import Tokenizer
from regard.tokens.pixel_tokenizer import PIXELS, PixelTokenizer

READERS: dict[str, type[TextEncoder]] = {
    "none": TextEncoder, "mask": MaskFiller, "pretrain": MaskFiller, "classify": TextClassifier, "tag": EntityTagger, "answer": QuestionAnswerer,
}  # fmt: skip
LLAMA2C: dict[str, Any] = {"bos": 1, "eos": 1, "ends": [1], "pad": None, "forbidden": [], "prompt_end": ""}
"""Its stories begin with <s>, and a second one begins the next story."""
VERBS = {
    "translate": "translates", "generate": "writes", "embed": "embeds", "fill": "fills in hidden words",
    "classify": "labels", "tag": "tags entities", "answer": "answers questions", "complete": "completes pictures",
    "caption": "captions pictures", "detect": "finds things in pictures",
}  # fmt: skip

Quantize = Literal["none", "int8", "int4"]


def load(directory: str | Path, quantize: Quantize | None = None) -> Any:
    """A run, a checkpoint in the Hugging Face layout, or its name on the Hub, ready to use.

    What comes back knows its verbs: a `Translator` translates, a `LanguageModel` continues texts, an `TextEncoder` embeds
    them and, as it was trained to, fills, classifies, tags or answers; a `ImageEncoder` does so with image files,
    a `ImageTextMatcher` with both.
    `quantize` makes its matrices whole numbers.
    """
    path = find(directory)
    model: Any = load_model(path)
    if quantize is not None and quantize != "none":
        model = quantized.quantize(model, quantize)
    if path.is_file():  # a llama2.c file, with its tokenizer beside it
        return LanguageModel(model, load_llama2c_tokenizer(path), dict(LLAMA2C))
    if (path / PIXELS).is_file():
        return PixelModel(model, PixelTokenizer.load(path))
    kind = kind_of(model)
    if kind is ImageCaptioner:
        generation = load_generation(path)
        return ImageCaptioner(model, load_preprocessing(path, model.config), Tokenizer.load(path), generation)
    if kind is ImageTextMatcher:
        return ImageTextMatcher(model, load_preprocessing(path, model.config), Tokenizer.load(path))
    if issubclass(kind, ImageEncoder):
        return kind(model, load_preprocessing(path, model.config))
    tokenizer = Tokenizer.load(path)
    if issubclass(kind, TextEncoder):
        return kind(model, tokenizer)
    generation = load_generation(path)
    generation["forbidden"] += range(tokenizer.vocab_size, model.config.vocab_size)  # padding that stands for no token
    loaded = kind(model, tokenizer, generation)
    if isinstance(loaded, LanguageModel):
        loaded.template = find_chat_template(path)
    return loaded


def kind_of(model: Any) -> type[Any]:
    """The class that does what a model was trained for."""
    if isinstance(model, Bert):
        return READERS[model.config.task]
    if isinstance(model, Captioner):
        return ImageCaptioner
    if isinstance(model, DETR):
        return ObjectDetector
    if isinstance(model, CLIP):
        return ImageTextMatcher
    if isinstance(model, MAE):
        return ImageRestorer
    if "pixels" in inspect.signature(model.forward).parameters:
        return ImageClassifier if getattr(model.config, "labels", ()) else ImageEncoder
    return Translator if hasattr(model, "encoder") else LanguageModel


def load_for(verb: str, directory: str | Path, quantize: Quantize | None = None) -> Any:
    """The same for one verb, with an error that says what else can be done where the model does not know it."""
    loaded = load(directory, quantize)
    if not hasattr(loaded, verb):
        able = [does for name, does in VERBS.items() if hasattr(loaded, name)]
        learns = isinstance(loaded, TextEncoder) and verb in READERS  # an encoder can be given another head
        cure = f"regard finetune {directory} --task {verb}" if learns else "choose another model"
        raise ValueError(f"{directory} {' and '.join(able)}, it does not {verb}; {cure}")
    return loaded
