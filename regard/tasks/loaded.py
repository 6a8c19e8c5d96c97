"""The type of what `load` returns, for editors and type checkers: a task with the verbs of all our tasks."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.tasks.base import Task
from regard.tasks.forecaster import Forecast
from regard.tasks.image_captioner import ImageCaptioner
from regard.tasks.image_encoder import ImageInput
from regard.tasks.language_model import LanguageModel
from regard.tasks.object_detector import ObjectDetector
from regard.tasks.single import Verbal
from regard.tasks.text_encoder import Match
from regard.tasks.text_heads import EntityTagger, Label, MaskFiller, QuestionAnswerer
from regard.tasks.transcriber import Transcript
from regard.tasks.translator import Translator
from regard.tasks.word_vectors import WordVectors

if TYPE_CHECKING:

    class Loaded(Task):
        """A loaded model. It has the verbs of its own task; another verb is an error that says what it does instead.
        `load(path, as_=Translator)` returns the class itself."""

        translate = Translator.translate
        generate = LanguageModel.generate
        stream: Callable[..., Iterator[str]]
        embed: Verbal[ImageInput, ..., Tensor, Tensor]
        search: Callable[..., list[Match]]
        classify: Verbal[ImageInput, ..., list[Label], list[list[Label]]]
        fill = MaskFiller.fill
        tag = EntityTagger.tag
        answer = QuestionAnswerer.answer
        caption = ImageCaptioner.caption
        detect = ObjectDetector.detect
        nearest = WordVectors.nearest
        transcribe: Verbal[Any, ..., Transcript, list[Transcript]]
        complete: Callable[..., Any]
        forecast: Verbal[Any, ..., list[Forecast], list[list[Forecast]]]
        predict: Verbal[Any, ..., list[dict[str, Any]], list[list[dict[str, Any]]]]

        def __getattr__(self, name: str) -> Any:
            """A reader, a setting, or a verb of a plugin."""

else:
    Loaded = Task
