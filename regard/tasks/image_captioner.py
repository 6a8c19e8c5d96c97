"""A trained model that sees and writes: pictures in, captions out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regard.data.readers.images import Preparation
from regard.decode.requests import Request, Ticket
from regard.decode.sample import Sampling, ends_of
from regard.tasks.engine_task import EngineTask, told_or
from regard.tasks.image_encoder import ImageEncoder, Picture
from regard.tasks.prepared import Prepared
from regard.tasks.prepared_image import read_captioned
from regard.tokens import Tokenizer


@dataclass(frozen=True, slots=True)
class Caption:
    """One caption, its score, and its tokens."""

    text: str
    score: float
    ids: tuple[int, ...]


class ImageCaptioner(ImageEncoder, EngineTask):
    """What `regard.load` returns for a model that says what a picture shows."""

    def __init__(self, model: Any, preparation: Preparation, tokenizer: Tokenizer, generation: dict[str, Any]) -> None:
        super().__init__(model, preparation)
        self.tokenizer, self.generation = tokenizer, generation

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
        """What is asked of the engine for a picture as the model reads it."""
        told, like = self.generation, next(self.model.parameters())
        return Request(
            prompt=[told["decoder_start"]], pixels=torch.from_numpy(pixels).to(like), ends=tuple(ends_of(told["eos"])),
            forbidden=tuple(told["forbidden"]), max_len=told_or(self.model.config.max_len - 1, max_new_tokens),
            sampling=sampling, row=row, beams=1 if sampling else max(beams or told["num_beams"], n_best), n_best=n_best,
            length_penalty=told["length_penalty"] if length_penalty is None else length_penalty,
        )  # fmt: skip

    def read(self, *inputs: Any, **options: Any) -> Prepared:
        """One input, ready to be looked into."""
        return read_captioned(self, *inputs, **options)

    def caption(self, pictures: Sequence[Picture], **how: Any) -> list[list[Caption]]:
        """The `n_best` captions of each picture, best first: greedy for one of `beams`, or drawn as `sampling` says."""
        return self.caption_pixels(self.pixels(pictures), **how)

    def caption_arrays(self, arrays: np.ndarray, **how: Any) -> list[list[Caption]]:
        """The same for bytes (number, rows, columns, channels) that have their size already."""
        return self.caption_pixels(self.numbers(arrays), **how)

    def caption_pixels(
        self, pixels: Sequence[np.ndarray], *, each: Callable[[int, list[Caption]], Any] | None = None, **how: Any
    ) -> list[list[Caption]]:
        """The same for pictures as the model reads them; `each` is called with a picture's number and captions."""
        if how.get("sampling") and (how.get("n_best", 1) > 1 or (how.get("beams") or 1) > 1):
            raise ValueError("sampling draws one caption of each picture; leave out beams and n_best")
        results: list[list[Caption]] = [[] for _ in pixels]

        def done(row: int, ticket: Ticket) -> None:
            if ticket.found is not None:
                texts = self.tokenizer.decode_batch([one.ids for one in ticket.found])
                pairs = zip(texts, ticket.found, strict=True)
                results[row] = [Caption(text.strip(), one.score, tuple(one.ids)) for text, one in pairs]
                if each is not None:
                    each(row, results[row])

        self.engine.serve((self.request(one, row=row, **how) for row, one in enumerate(pixels)), done)
        return results
