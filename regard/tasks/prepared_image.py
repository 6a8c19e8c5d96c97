"""Prepared images for encoders, detectors, captioners, pixel models and image–text matchers."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.sets.batches import pad
from regard.modalities import modality_of
from regard.modalities.image import IMAGE
from regard.models import parts
from regard.nn.grids import LayerGrids, PatchGrid
from regard.nn.heads import split_predictions
from regard.objectives.matching import best_objects
from regard.tasks.prepared import (
    SURE,
    Generation,
    Outputs,
    Prepared,
    TokenSequence,
    all_tokens,
    best_columns,
    check_tokens,
    first_token,
)
from regard.tasks.prepared_text import Target, continued
from regard.train.device import device_of

MOST_CELLS = 8192
"""The most tokens of an image, its special tokens included."""


def pixels_of(task: Any, image: Any) -> tuple[np.ndarray, Tensor]:
    """An image (a path, or a Pillow image) at the model's size: its bytes, and the numbers that the model reads."""
    bytes_ = task.preprocessing.fit(IMAGE.read(image))
    return bytes_, torch.from_numpy(task.preprocessing.numbers(bytes_))[None].to(next(task.model.parameters()))


def check_images(task: Any, images: tuple[Any, ...], target: Any = None, kept: int | None = None) -> None:
    """Raise an error if this is not one image, or if there is more beside it than the task reads."""
    family = type(task.model).__name__
    if len(images) != 1:
        raise ValueError(f"a {family} reads one image at a time, got {len(images)}; call it once for each")
    if kept is not None:
        raise ValueError(f"kept is for language models, and a {family} is none; leave it out")
    if target:
        raise ValueError("only a translator has a --target; leave it out")


def image_sequence(size: tuple[int, ...], cells: PatchGrid, prefix: int, first: str = "[class]") -> TokenSequence:
    """The tokens in front of an image's cells, and the cells."""
    rows, columns = cells.grid
    if prefix + len(cells) > MOST_CELLS:
        raise ValueError(f"the image has {rows} × {columns} patches, too many to show; give a smaller one")
    front = [first, *(f"[{number}]" for number in range(2, prefix + 1))][:prefix]
    title = f"{rows} × {columns} patches of {cells.cell} × {cells.cell} pixels"
    return TokenSequence("image", title, [*front, *cells.labels], grid=cells, prefix=prefix)


def grid_fields(model: Any, size: tuple[int, ...]) -> dict[str, Any]:
    """Return the fields of a `Prepared` that describe the grids of the layers of an image tower."""
    tower, patches = parts.image_tower(model), parts.patch_grid(model, (size[0], size[1]))
    own = set(parts.attention_layers(tower).values())
    names = [name for name, kernel in parts.attention_layers(model).items() if kernel in own]
    grids: dict[str, LayerGrids] = dict(zip(names, parts.layer_grids(model, patches), strict=True))
    shapes = [(patches, parts.prefix_length(model))]
    shapes += [(side, one.prefix) for one in grids.values() for side in (one.queries, one.keys)]
    return dict(tower=tower, grids=grids, sequences=[image_sequence(size, *one) for one in dict.fromkeys(shapes)])


def read_images(
    task: Any, *images: Any, target: Target = None, kept: int | None = None, cut: bool = False, greedy: bool = False
) -> Prepared:  # fmt: skip
    """Prepare an image for an encoder; every grid of its layers is a sequence."""
    check_images(task, images, target, kept)
    model, answers, (bytes_, pixels) = task.model, task.output, pixels_of(task, images[0])

    def run(inputs: dict[str, Tensor]) -> Tensor:
        rows = model.embed(**inputs) if answers == "vector" else model(**inputs)
        return rows.reshape(len(rows), 1, -1)

    def choose(prepared: Prepared) -> Outputs:
        length, prefix = len(prepared.sequences[0]), prepared.sequences[0].prefix
        column = 0 if answers == "vector" else int(prepared.logits()[0, 0].argmax())
        return Outputs([0], [column], first_token(length) if prefix else all_tokens(length))

    return Prepared(
        model=model, inputs={"pixels": pixels}, run=run, answers=answers, row_sequence=None, choose=choose,
        labels=list(getattr(model.config, "labels", ())), image=bytes_, original=images[0],
        **grid_fields(model, bytes_.shape[:2]),
        embed=lambda inputs: model.embed(inputs["pixels"]),
    )  # fmt: skip


def read_scene(task: Any, *images: Any, **options: Any) -> Prepared:
    """An image as a detector reads it, and its queries; logits are those of each query, "nothing" comes last."""
    prepared = read_images(task, *images, **options)
    model, size = task.model, prepared.image.shape[:2]  # type: ignore[union-attr]
    queries = TokenSequence("queries", "Queries", [f"query {i}" for i in range(model.config.queries)])
    queries.ids = list(range(len(queries)))

    def choose(prepared: Prepared) -> Outputs:
        best = prepared.logits()[0].softmax(-1)[:, :-1].max(-1)
        order = best.values.argsort(descending=True, stable=True).tolist()
        sure = [query for query in order if best.values[query] >= SURE] or order[:1]
        return Outputs(sure, best.indices[sure].tolist(), torch.eye(len(best.values))[sure])

    def details(logits: Tensor) -> dict[str, Any]:
        scores, indices, boxes = best_objects(model(**prepared.inputs)[0].float().cpu(), size)
        names = prepared.names(indices.tolist())
        queries.tokens = [
            f"{i} {names[i]} {probability:.2f}" if probability >= SURE else f"{i} nothing"
            for i, probability in enumerate(scores.tolist())
        ]
        return {
            "boxes": [[round(side, 2) for side in box] for box in boxes.tolist()],
            "scores": [round(score, 4) for score in scores.tolist()], "row": int(scores.argmax()),
        }  # fmt: skip

    prepared.answers, prepared.row_sequence = "boxes", len(prepared.sequences)
    prepared.run = lambda inputs: split_predictions(model(**inputs))[0]
    prepared.labels, prepared.choose, prepared.details = [*model.config.labels, "nothing"], choose, details
    prepared.sequences.append(queries)
    return prepared


def read_captioned(
    task: Any, *images: Any, target: Target = None, kept: int | None = None, cut: bool = False, greedy: bool = False
) -> Prepared:  # fmt: skip
    """Prepare an image with a caption: `target`, or else the one that the model generates, by beams unless `greedy`."""
    check_images(task, images, kept=kept)
    model, (bytes_, pixels) = task.model, pixels_of(task, images[0])
    fields = grid_fields(model, bytes_.shape[:2])
    return continued(
        task, {"pixels": pixels}, fields.pop("sequences")[0], TokenSequence("caption", "Caption", [], prefix=1),
        [task.generation["decoder_start"]], target, most=model.config.max_len, request={}, image=bytes_,
        original=images[0], **fields, search=lambda: task.request(pixels[0].float().cpu().numpy()),
        own=None if greedy else lambda: task.caption_pixels(list(pixels.cpu().numpy()))[0][0].ids,
    )  # fmt: skip


def read_colours(
    task: Any, *images: Any, target: Target = None, kept: int | None = None, cut: bool = False, greedy: bool = False
) -> Prepared:  # fmt: skip
    """Prepare an image as a pixel model reads it; `target` colours replace its lower half, followed by generated
    ones."""
    check_images(task, images, isinstance(target, str), kept)
    model, size = task.model, task.pixels
    ids = [size.start, *size.encode(task.arrays(images))[0].tolist()]
    fixed = 1 + size.rows // 2 * size.columns
    if target is not None:
        if len(target) > len(ids) - fixed or size.start in target:
            raise ValueError(f"at most {len(ids) - fixed} colours below {size.start} follow the upper half")
        front = [*ids[:fixed], *check_tokens(model, target)]  # type: ignore[arg-type]
        ids = front + Generation(prefix=front, room=len(ids) - len(front), forbidden=(size.start,)).write(model)
    bytes_ = size.decode(np.array([ids[1:]]))[0]
    cells = PatchGrid((size.rows, size.columns), 1)
    sequence = image_sequence(bytes_.shape, cells, 1, first="[start]")
    sequence.ids = ids
    grids = LayerGrids(queries=cells, keys=cells, prefix=1, reader=-1)
    colours = np.rint(np.arange(size.colours)[:, None] // size.levels ** np.arange(size.channels)[::-1] % size.levels
                      * (255 / (size.levels - 1))).astype(np.uint8)  # fmt: skip
    grey = [f"{level}/{size.levels - 1}" for level in range(size.levels)]
    return Prepared(
        model=model, inputs={"ids": torch.tensor([ids])}, sequences=[sequence], image=bytes_, fixed=fixed,
        run=lambda inputs: model(**inputs)[:, :-1],  # behind the last pixel nothing comes
        labels=grey if size.channels == 1 else ["#" + bytes(colour).hex() for colour in colours],
        forbidden=(size.start,), details=lambda logits: {"row": fixed - 1}, request={"target": ids[fixed:]},
        generation=Generation(prefix=ids, room=0), grids=dict.fromkeys(parts.attention_layers(model), grids),
    )  # fmt: skip


def read_matched(
    task: Any, *inputs: Any, target: Target = None, kept: int | None = None, cut: bool = False, greedy: bool = False
) -> Prepared:  # fmt: skip
    """An image and texts that it is compared with, or either alone; of several texts the first is looked into."""
    model, tokenizer = task.model, task.tokenizer
    images = [item for item in inputs[:1] if modality_of(item, task.inputs) is IMAGE]
    texts = list(inputs[len(images) :])
    tokens: dict[str, Tensor] = {}
    if texts:
        framed = tokenizer.frame(texts, max_len=model.config.max_len)
        tokens = {"ids": pad([item.ids for item in framed], tokenizer.pad or 0)}
        tokens["lengths"] = torch.tensor([len(item) for item in framed])
        ids = framed[0].ids
        text = TokenSequence("text", "Text", tokenizer.pieces(ids), ids, text=texts[0])
    if not images and texts:
        check_images(task, tuple(texts), target, kept)  # one text alone
        return Prepared(
            model=model, inputs=tokens, run=lambda inputs: model.embed_text(**inputs)[:, None], sequences=[text],
            answers="vector", row_sequence=None, embed=lambda inputs: model.embed_text(**inputs), traceable=False,
            tower=parts.text_tower(model), choose=lambda prepared: Outputs([0], [0], first_token(len(ids))),
            request={"text": texts[0]},
        )  # fmt: skip
    prepared = read_images(task, *(images or inputs[:1]), target=target, kept=kept)
    prepared.traceable, prepared.request = False, {"texts": texts}
    if texts:
        placed = {name: values.to(device_of(model)) for name, values in tokens.items()}
        prepared.answers, prepared.labels, prepared.inputs = "match", texts, prepared.inputs | placed
        prepared.run, prepared.choose = lambda inputs: model(**inputs)[:, None], best_columns
        prepared.sequences.append(text)
    return prepared
