"""Tasks: a trained model with the readers of its inputs, and a method for each verb. One file for each task."""

from regard.tasks.base import EvalSet, Option, Samples, Scored, Task, Verb, register_task
from regard.tasks.contextual_encoder import ContextualEncoder
from regard.tasks.ctc_transcriber import CTCTranscriber
from regard.tasks.detection_scores import Detection
from regard.tasks.forecaster import Forecast, Forecaster
from regard.tasks.graph_predictor import GraphEncoder, GraphPredictor
from regard.tasks.image_captioner import Caption, ImageCaptioner
from regard.tasks.image_encoder import ImageClassifier, ImageEncoder
from regard.tasks.image_restorer import ImageRestorer
from regard.tasks.image_text_matcher import ImageTextMatcher
from regard.tasks.language_model import LanguageModel
from regard.tasks.loading import load, load_for, task_of
from regard.tasks.object_detector import ObjectDetector
from regard.tasks.pixel_model import PixelModel
from regard.tasks.prepared import Prepared, TokenSequence
from regard.tasks.sound_classifier import SoundClassifier, SoundEncoder
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
from regard.tasks.transcriber import Segment, Transcriber, Transcript
from regard.tasks.translator import TextToText, Translation, Translator
from regard.tasks.video_classifier import VideoClassifier, VideoEncoder
from regard.tasks.whisper_transcriber import WhisperTranscriber
from regard.tasks.word_vectors import Neighbour, WordVectors

__all__ = [
    "Answer", "CTCTranscriber", "Caption", "ContextualEncoder", "Detection", "Entity", "EntityTagger", "EvalSet",
    "Filled", "Forecast", "Forecaster", "GraphEncoder", "GraphPredictor", "ImageCaptioner",
    "ImageClassifier", "ImageEncoder", "ImageRestorer",
    "ImageTextMatcher", "Label",
    "LanguageModel", "MaskFiller", "Match", "Neighbour", "ObjectDetector", "Option", "PixelModel", "Prepared",
    "QuestionAnswerer", "Samples", "Scored", "Segment", "SoundClassifier", "SoundEncoder", "Task", "TextClassifier",
    "TextEncoder", "TextToText", "TokenSequence", "Transcriber", "Transcript", "Translation", "Translator", "Verb",
    "VideoClassifier", "VideoEncoder", "WhisperTranscriber", "WordVectors", "load", "load_for", "register_task",
    "task_of",
]  # fmt: skip
