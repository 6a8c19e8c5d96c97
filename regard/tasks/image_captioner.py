"""Image captioning: images in, captions out."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from PIL import Image

from regard.data.notices import Count
from regard.data.readers.preprocessing import Preprocessing
from regard.data.sets.batches import IGNORE, Batch
from regard.data.sets.captioned_images import CaptionsConfig
from regard.decode.requests import Request, Ticket
from regard.decode.sample import Sampling, SamplingOptions, ends_of, sampling_of
from regard.hub.checkpoint import load_generation
from regard.hub.preprocessor import load_preprocessing
from regard.tasks.base import EvalSet, Example, Samples, Scored, Verb, register_task
from regard.tasks.baselines import constant_caption
from regard.tasks.engine_task import BEAM_OPTIONS, VALIDATED, EngineTask, count_or, render_texts, texts_as_json
from regard.tasks.image_encoder import ImageEncoder, ImageInput, at_most
from regard.tasks.metrics import caption_scores
from regard.tasks.prepared_image import read_captioned
from regard.tasks.single import one_or_many
from regard.tokens import Tokenizer


@dataclass(frozen=True, slots=True)
class Caption:
    """One caption, its score, and its tokens."""

    text: str
    score: float
    ids: tuple[int, ...]


@register_task("caption")
class ImageCaptioner(ImageEncoder, EngineTask):
    """Describes images in words."""

    verbs: ClassVar[tuple[Verb, ...]] = (
        Verb(
            name="caption", does="captions images", ability="images", options=BEAM_OPTIONS,
            as_json=lambda captions: {"caption": captions[0].text, "captions": texts_as_json(captions)},
            render=lambda answer: render_texts(answer["captions"]),
        ),
    )  # fmt: skip
    data: ClassVar[tuple[type, ...]] = (CaptionsConfig,)

    def __init__(
        self, model: Any, preprocessing: Preprocessing, tokenizer: Tokenizer, generation: dict[str, Any]
    ) -> None:
        super().__init__(model, preprocessing)
        self.tokenizer, self.generation = tokenizer, generation

    @classmethod
    def load(cls, path: Path, model: Any) -> "ImageCaptioner":
        return cls(model, load_preprocessing(path, model.config), Tokenizer.load(path), load_generation(path))

    def request(
        self,
        pixels: np.ndarray,
        *,
        beams: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        sampling: Sampling | None = None,
        row: int = 0,
        max_new_tokens: int | None = None,
    ) -> Request:
        """The engine's request for a preprocessed image."""
        settings, like = self.generation, next(self.model.parameters())
        return Request(
            prompt=[settings["decoder_start"]], inputs={"pixels": torch.from_numpy(pixels).to(like)},
            ends=tuple(ends_of(settings["eos"])), forbidden=tuple(settings["forbidden"]),
            max_len=count_or(self.model.config.max_len - 1, max_new_tokens),
            sampling=sampling, row=row, beams=1 if sampling else max(beams or settings["num_beams"], n_best),
            n_best=n_best,
            length_penalty=settings["length_penalty"] if length_penalty is None else length_penalty,
        )  # fmt: skip

    read = read_captioned

    @one_or_many
    def caption(self, images: Sequence[ImageInput], **options: Any) -> list[list[Caption]]:
        """The `n_best` captions of each image, best first: beam search over `beams`, or sampled as `sampling`, or
        `temperature`, `top_p` and the like, say."""
        return self.caption_pixels(self.pixels(images), **options)

    def caption_arrays(self, arrays: np.ndarray, **options: Any) -> list[list[Caption]]:
        """Captions of uint8 images (number, rows, columns, channels), already of the model's size."""
        return self.caption_pixels(self.numbers(arrays), **options)

    def caption_pixels(
        self, pixels: Sequence[np.ndarray], *, each: Callable[[int, list[Caption]], Any] | None = None, **options: Any
    ) -> list[list[Caption]]:
        """Captions of preprocessed images; `each` is called with an image's index and captions when they are ready."""
        sampled = {name: options.pop(name) for name in SamplingOptions.__annotations__ if name in options}
        options["sampling"] = sampling_of(options.get("sampling"), cast(SamplingOptions, sampled))
        if options.get("sampling") and (options.get("n_best", 1) > 1 or (options.get("beams") or 1) > 1):
            raise ValueError("sampling returns one caption of each image; leave out beams and n_best")
        results: list[list[Caption]] = [[] for _ in pixels]

        def done(row: int, ticket: Ticket) -> None:
            if ticket.hypotheses is not None:
                texts = self.tokenizer.decode_batch([hypothesis.ids for hypothesis in ticket.hypotheses])
                pairs = zip(texts, ticket.hypotheses, strict=True)
                results[row] = [Caption(text.strip(), best.score, tuple(best.ids)) for text, best in pairs]
                count.add()
                if each is not None:
                    each(row, results[row])

        with Count("images:", len(pixels)) as count:
            self.engine.serve((self.request(image, row=row, **options) for row, image in enumerate(pixels)), done)
        return results

    def validate(self, batches: Iterable[Batch]) -> dict[str, float]:
        """BLEU-4 of greedy captions for some of the validation images."""
        pixels: dict[int, np.ndarray] = {}
        captions: dict[int, list[str]] = {}
        for batch in batches:
            texts = self.tokenizer.decode_batch([row[row != IGNORE][:-1].tolist() for row in batch.targets])
            for index, image, text in zip(batch.examples, batch.inputs["pixels"].numpy(), texts, strict=True):
                pixels[index] = image
                captions.setdefault(index, []).append(text)
        chosen = list(pixels)[:: math.ceil(len(pixels) / VALIDATED)]
        texts = self.greedy(pixels[index] for index in chosen)
        return {"bleu_4": caption_scores(texts, [captions[index] for index in chosen])["bleu_4"]}

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        """BLEU-4 and exact match against all captions of each image."""
        whole = self.test_images(replace(test, limit=None))
        images, lowercase = at_most(whole, test.limit), options.pop("lowercase", False) or test.data.lowercase
        captions = [best[0] for best in self.caption_arrays(images.pixels[:], **options)]
        texts = [caption.text for caption in captions]
        scores = caption_scores(texts, images.captions, lowercase=lowercase)
        return Scored(
            scores=scores, outputs=texts, expected=images.captions, details=[caption.ids for caption in captions],
            total=len(whole), unit="images",
        )  # fmt: skip

    def baselines(self, test: EvalSet, scored: Scored) -> dict[str, dict[str, float]]:
        caption = constant_caption(scored.expected)
        scores = caption_scores([caption] * len(scored.expected), scored.expected, lowercase=test.data.lowercase)
        return {"the best constant caption": {name: scores[name] for name in ("bleu_4", "exact_match")}}

    def samples(self, test: EvalSet, run: Path) -> Samples:
        images = self.test_images(replace(test, limit=5))
        texts = [best[0].text for best in self.caption_arrays(images.pixels[:])]
        other = "transformer" if self.model.config.decoder == "recurrent" else "recurrent"
        commands = [
            f"regard caption {run} image.png --look words.png",
            f"regard train {test.recipe} --model.decoder {other} --out runs/captioner-{other}",
        ]
        rows = [(captions[0], text) for captions, text in zip(images.captions, texts, strict=True)]
        first = Image.fromarray(images.pixels[0].squeeze())
        examples = [Example(inputs=(array,), label=row[0]) for array, row in zip(images.pixels[:], rows, strict=True)]
        return Samples(rows=rows, commands=commands, views={"words.png": ("words", first)}, examples=examples)
