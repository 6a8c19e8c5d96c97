"""A trained model that sees and reads: how alike pictures and texts are."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.data.readers.images import Preparation, is_image
from regard.data.sets.batches import bucket, pad
from regard.tasks.image_encoder import ImageEncoder, Picture
from regard.tasks.prepared import Prepared
from regard.tasks.prepared_image import read_matched
from regard.tasks.text_encoder import BATCH_TOKENS
from regard.tasks.text_heads import Label
from regard.tokens import Tokenizer


class ImageTextMatcher(ImageEncoder):
    """What `regard.load` returns for CLIP: vectors of pictures and of texts, labels by any texts, search by words."""

    inputs: ClassVar[tuple[str, ...]] = ("image", "text")

    def __init__(self, model: Any, preparation: Preparation, tokenizer: Tokenizer) -> None:
        super().__init__(model, preparation)
        self.tokenizer = tokenizer

    @property
    def width(self) -> int:
        return self.model.config.embedding_dim

    @torch.inference_mode()
    def embed_texts(self, texts: Sequence[str], *, normalize: bool = True) -> Float[Tensor, "N D"]:
        """A vector for each text, of length 1 unless told otherwise; what is too long is cut."""
        if isinstance(texts, str):
            raise ValueError(f"texts is a list; put a single one in brackets: [{texts!r}]")
        rows = [one.ids for one in self.tokenizer.frame(texts, max_len=self.model.config.max_len)]
        vectors = torch.empty(len(rows), self.width, dtype=next(self.model.parameters()).dtype)
        for group in bucket(np.array([[len(row)] for row in rows]), BATCH_TOKENS, None) if rows else ():
            some = [rows[i] for i in group]
            lengths = torch.tensor([len(row) for row in some])
            vectors[group] = self.model.embed_text(pad(some, self.tokenizer.pad or 0), lengths)
        return F.normalize(vectors, dim=-1) if normalize else vectors

    def vectors(self, words: Sequence[Picture]) -> Float[Tensor, "N D"]:
        """Pictures and texts side by side: what ends like an image file is one."""
        rows = torch.empty(len(words), self.width)
        ways: dict[bool, Any] = {True: self.embed, False: self.embed_texts}
        for seen, embed in ways.items():
            places = [i for i, word in enumerate(words) if is_picture(word) == seen]
            if places:
                rows[places] = embed([words[i] for i in places]).to(rows)
        return rows

    def read(self, *inputs: Any, **options: Any) -> Prepared:
        """One input, ready to be looked into."""
        return read_matched(self, *inputs, **options)

    @torch.inference_mode()
    def classify(self, pictures: Sequence[Picture], labels: Sequence[str] | None = None) -> list[list[Label]]:
        """How likely each of some texts is for each picture, the likeliest first."""
        if not labels:
            raise ValueError('this model has no labels of its own; name some texts: --zero-shot "a cat" "a dog"')
        if len(set(labels)) < len(labels):
            raise ValueError(f"labels must differ; got {', '.join(map(repr, labels))}")
        likeness = self.embed(pictures) @ self.embed_texts(labels).T / self.model.temperature
        return [ranked(row.softmax(-1), labels) for row in likeness]


def is_picture(word: Picture) -> bool:
    """An image, or a word that ends like the name of an image file."""
    return not isinstance(word, str) or is_image(word)


def ranked(row: Float[Tensor, "N"], labels: Sequence[str]) -> list[Label]:
    best = row.sort(descending=True)
    return [Label(labels[i], p) for i, p in zip(best.indices.tolist(), best.values.tolist(), strict=True)]
