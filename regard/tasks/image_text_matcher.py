"""Images and texts as vectors of one space: how similar they are, labels by any texts, search by words."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.data.readers.image_files import is_image
from regard.data.readers.preprocessing import Preprocessing
from regard.data.sets.batches import bucket, pad
from regard.hub.checkpoint import export_model
from regard.hub.preprocessor import load_preprocessing, save_preprocessing
from regard.tasks.base import Option, Verb, register_task
from regard.tasks.image_encoder import ImageEncoder, ImageInput
from regard.tasks.text_encoder import BATCH_TOKENS, EMBED
from regard.tasks.text_heads import Label, label_answers, ranked, render_labels
from regard.tokens import Tokenizer
from regard.tokens.export import export_tokenizer


@register_task("match")
class ImageTextMatcher(ImageEncoder):
    """CLIP's task: vectors of images and of texts in one space."""

    inputs = ("image", "text")
    verbs = (
        Verb(
            name="classify", does="labels images by texts",
            options=(Option(name="labels", kind=tuple, help="The texts that an image may match."),),
        ),
        EMBED,
    )  # fmt: skip

    def __init__(self, model: Any, preparation: Preprocessing, tokenizer: Tokenizer) -> None:
        super().__init__(model, preparation)
        self.tokenizer = tokenizer

    @classmethod
    def load(cls, path: Path, model: Any) -> "ImageTextMatcher":
        return cls(model, load_preprocessing(path, model.config), Tokenizer.load(path))

    @property
    def width(self) -> int:
        return self.model.config.embedding_dim

    @torch.inference_mode()
    def embed_texts(self, texts: Sequence[str], *, normalize: bool = True) -> Float[Tensor, "N D"]:
        """A vector for each text, of length 1 if `normalize`; a text beyond the context is cut."""
        if isinstance(texts, str):
            raise ValueError(f"texts is a list; put a single one in brackets: [{texts!r}]")
        rows = [framed.ids for framed in self.tokenizer.frame(texts, max_len=self.model.config.max_len)]
        vectors = torch.empty(len(rows), self.width, dtype=next(self.model.parameters()).dtype)
        for group in bucket(np.array([[len(row)] for row in rows]), BATCH_TOKENS, None) if rows else ():
            batch = [rows[i] for i in group]
            lengths = torch.tensor([len(row) for row in batch])
            vectors[group] = self.model.embed_text(pad(batch, self.tokenizer.pad or 0), lengths)
        return F.normalize(vectors, dim=-1) if normalize else vectors

    def vectors(self, items: Sequence[Any]) -> Float[Tensor, "N D"]:
        """Vectors of images and texts side by side; a string that ends like an image file's name is an image."""
        rows = torch.empty(len(items), self.width)
        for wanted, embed in ((True, self.embed), (False, self.embed_texts)):
            indices = [i for i, item in enumerate(items) if is_image_input(item) == wanted]
            if indices:
                rows[indices] = embed([items[i] for i in indices]).to(rows)
        return rows

    @torch.inference_mode()
    def classify(self, images: Sequence[ImageInput], labels: Sequence[str] | None = None) -> list[list[Label]]:
        """The probability of each of the given texts for each image, the most probable first."""
        if not labels:
            raise ValueError('this model has no labels of its own; name some texts: --zero-shot "a cat" "a dog"')
        if len(set(labels)) < len(labels):
            raise ValueError(f"labels must differ; got {', '.join(map(repr, labels))}")
        logits = self.embed(images) @ self.embed_texts(labels).T / self.model.temperature
        return [ranked(row, labels) for row in logits]

    def field_of(self, verb: str, item: Any) -> str:
        return "image" if is_image_input(item) else "text"

    def answers(self, verb: str, inputs: Sequence[Any], **options: Any) -> list[dict[str, Any]]:
        if verb != "classify":
            return super().answers(verb, inputs, **options)
        return label_answers(self.classify(inputs, **options))

    def render(self, verb: str, answer: Any) -> str:
        return render_labels(answer, None) if verb == "classify" else super().render(verb, answer)

    def export(self, out: Path) -> None:
        special = {name: getattr(self.tokenizer, name) for name in ("bos", "eos", "pad")}
        export_model(self.model, out, **special)
        save_preprocessing(out, self.preparation)
        export_tokenizer(self.tokenizer, out, frame="both", max_len=self.model.config.max_len)


def is_image_input(item: Any) -> bool:
    """Whether an input is an image: anything but a string, or a string that ends like an image file's name."""
    return not isinstance(item, str) or is_image(item)
