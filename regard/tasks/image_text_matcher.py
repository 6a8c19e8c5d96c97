"""Images and texts as vectors of one space: how similar they are, labels by any texts, search by words."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.data.readers.preprocessing import Preprocessing
from regard.data.sets.batches import bucket, pad
from regard.data.sets.image_text_pairs import PairedConfig
from regard.hub.checkpoint import export_model
from regard.hub.preprocessor import save_preprocessing
from regard.modalities import modality_of
from regard.tasks.base import EvalSet, Example, Option, Samples, Scored, Verb, quoted, register_task
from regard.tasks.baselines import best_constant
from regard.tasks.default_texts import PHRASES
from regard.tasks.image_encoder import EMBED_IMAGES, ImageEncoder, ImageInput, at_most
from regard.tasks.metrics import label_scores, recall_scores
from regard.tasks.prepared_image import read_matched
from regard.tasks.single import one_or_many
from regard.tasks.text_encoder import BATCH_TOKENS
from regard.tasks.text_heads import Label, best_label, labels_as_json, ranked, render_labels
from regard.tokens import Tokenizer
from regard.tokens.export import export_tokenizer
from regard.train.device import device_of


@register_task("match")
class ImageTextMatcher(ImageEncoder):
    """CLIP's task: vectors of images and of texts in one space."""

    inputs: ClassVar[tuple[str, ...]] = ("image", "text")
    verbs: ClassVar[tuple[Verb, ...]] = (
        Verb(
            name="classify", does="labels images by texts", ability="images", as_json=labels_as_json,
            render=partial(render_labels, count=None), columns=best_label,
            options=(Option(name="labels", kind=tuple, help="The texts that an image may match."),),
        ),
        EMBED_IMAGES,
    )  # fmt: skip

    data: ClassVar[tuple[type, ...]] = (PairedConfig,)

    def __init__(self, model: Any, preprocessing: Preprocessing, tokenizer: Tokenizer) -> None:
        super().__init__(model, preprocessing)
        self.tokenizer = tokenizer

    @property
    def width(self) -> int:
        return self.model.config.embedding_dim

    @one_or_many
    @torch.inference_mode()
    def embed_texts(self, texts: Sequence[str], *, normalize: bool = True) -> Float[Tensor, "N D"]:
        """A vector for each text, of length 1 if `normalize`; a text beyond the context is cut."""
        rows = [framed.ids for framed in self.tokenizer.frame(texts, max_len=self.model.config.max_len)]
        vectors = torch.empty(len(rows), self.width, dtype=next(self.model.parameters()).dtype)
        for group in bucket(np.array([[len(row)] for row in rows]), BATCH_TOKENS, None) if rows else ():
            batch = [rows[i] for i in group]
            lengths, device = torch.tensor([len(row) for row in batch]), device_of(self.model)
            ids = pad(batch, self.tokenizer.pad or 0).to(device)
            vectors[group] = self.model.embed_text(ids, lengths.to(device)).cpu()
        return F.normalize(vectors, dim=-1) if normalize else vectors

    @one_or_many
    def vectors(self, items: Sequence[Any]) -> Float[Tensor, "N D"]:
        """Vectors of images and texts side by side; a string that ends like an image file's name is an image."""
        rows = torch.empty(len(items), self.width)
        for name, embed in (("image", self.embed), ("text", self.embed_texts)):
            indices = [i for i, item in enumerate(items) if modality_of(item, self.inputs).name == name]
            if indices:
                rows[indices] = embed([items[i] for i in indices]).to(rows)
        return rows

    read = read_matched

    @one_or_many
    @torch.inference_mode()
    def classify(self, images: Sequence[ImageInput], labels: Sequence[str] | None = None) -> list[list[Label]]:
        """The probability of each of the given texts for each image, the most probable first."""
        if not labels:
            raise ValueError('this model has no labels of its own; name some texts: --zero-shot "a cat" "a dog"')
        if len(set(labels)) < len(labels):
            raise ValueError(f"labels must differ; got {', '.join(map(repr, labels))}")
        logits = self.embed(images) @ self.embed_texts(labels).T / self.model.temperature.cpu()
        return [ranked(row, labels) for row in logits]

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        """Recall at 1 in both directions; for generated scenes also the zero-shot accuracy on single objects."""
        whole = self.test_images(replace(test, limit=None))
        images = at_most(whole, test.limit)
        texts = list(dict.fromkeys(images.texts))
        vectors = self.embed_arrays(images.pixels), self.embed_texts(texts)
        scores, best = recall_scores(*vectors, images.captions, texts)
        if test.data.embedded:
            single, labels = test.data.single_objects(test.limit, self.preprocessing)
            predicted = [row[0].label for row in self.classify(single.images(), labels)]
            expected = [captions[0] for captions in single.captions]
            scores["zero_shot_accuracy"] = label_scores(predicted, expected)["accuracy"]
        return Scored(
            scores=scores | {"examples": len(images)}, outputs=best, expected=images.captions, total=len(whole),
        )  # fmt: skip

    def baselines(self, test: EvalSet, scored: Scored) -> dict[str, dict[str, float]]:
        """One text for all images, and one image for all texts: those that are right most often."""
        rows = [set(captions) for captions in scored.expected]
        texts = Counter(text for row in rows for text in row)
        scores = {
            "text_recall_at_1": round(100 * max(texts.values()) / len(rows), 2),
            "image_recall_at_1": round(100 * max(map(len, rows)) / len(texts), 2),
        }
        if "zero_shot_accuracy" in scored.scores:
            single = test.data.single_objects(test.limit, self.preprocessing)[0]
            scores["zero_shot_accuracy"] = best_constant([captions[0] for captions in single.captions])
        return {"one answer for all": scores}

    def samples(self, test: EvalSet, run: Path) -> Samples:
        """The best label of a few images, among everything a scene may show or all held-out captions."""
        if test.data.embedded:
            images, labels = test.data.single_objects(5)
        else:
            images = test.data.held_out()
            labels = tuple(dict.fromkeys(images.texts))
            images = images.take(slice(5))
        inputs = [f"an image of {texts[0]}" for texts in images.captions]
        best = [f"{row[0].label}  {row[0].probability:.0%}" for row in self.classify(images.images(), labels)]
        commands = [
            f"regard classify {run} image.png --zero-shot {' '.join(quoted(label) for label in labels[:2])}",
            f"regard embed {run} --search {quoted(labels[0])} --in FOLDER",
        ]
        examples = [
            Example(inputs=(image, *dict.fromkeys([texts[0], *labels[:4]])), label=texts[0])
            for image, texts in zip(images.images(), images.captions, strict=True)
        ]
        return Samples(rows=list(zip(inputs, best, strict=True)), commands=commands, examples=examples)

    @classmethod
    def default_examples(cls, path: Path, config: Any) -> list[Example]:
        return [replace(one, inputs=(*one.inputs, *PHRASES)) for one in super().default_examples(path, config)]

    def export(self, out: Path) -> None:
        special = {name: getattr(self.tokenizer, name) for name in ("bos", "eos", "pad")}
        export_model(self.model, out, **special)
        save_preprocessing(out, self.preprocessing)
        export_tokenizer(self.tokenizer, out, frame="both", max_len=self.model.config.max_len)
