"""What models that see are looked at with: those that label, find, describe or compare."""

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from regard.data.sets.batches import pad
from regard.decode.sample import ends_of
from regard.inside.page.packing import packed
from regard.inside.page.record import Layer
from regard.inside.page.subjects import MOST_TOKENS, Subject, told, written
from regard.inside.sight import Places, Plan, cut, layout, prepared, tower
from regard.inside.text import check_length
from regard.models import CLIP
from regard.nn.heads import split_predictions
from regard.nn.weights import find_kernels
from regard.objectives.matching import corners

SMALLEST = 384
"""Pixels of a side, at least, that a picture is shown with: a browser would blur a small one."""


def uri_of(pixels: np.ndarray) -> str:
    """A picture as it stands in a page."""
    image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    times = max(1, SMALLEST // max(image.size))
    file = io.BytesIO()
    image.resize([side * times for side in image.size], Image.Resampling.NEAREST).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


class Seeing(Subject):
    """A picture, and the labels of it, or its vector. Every grid that layers see it by is a sequence."""

    sequence: int | None = None

    def __init__(self, loaded: Any, picture: Any) -> None:
        super().__init__(loaded)
        self.bytes, self.pixels = prepared(loaded, picture)
        self.answers = "labels" if getattr(self.model.config, "labels", ()) else "vector"
        self.input = {"picture": uri_of(self.bytes)}
        self.plans = self.planned()
        self.grids: list[tuple[Places, int]] = []
        for plan in self.plans.values():
            self.grid(plan.queries, plan.first)
            self.grid(plan.keys, plan.first)

    def planned(self) -> dict[str, Plan]:
        """Where the layers that read the picture look, by their names."""
        part = tower(self.loaded)
        own = set(find_kernels(part.watched).values())
        names = [name for name, kernel in find_kernels(self.model).items() if kernel in own]
        return dict(zip(names, layout(part.family, cut(part.family, self.bytes.shape[:2])), strict=True))

    def grid(self, places: Places, first: int = 0) -> int:
        """The sequence of some places; a new one where they are new."""
        if (places, first) not in self.grids:
            rows, columns = places.grid
            if first + len(places) > 8 * MOST_TOKENS:
                raise ValueError(f"the picture has {rows} × {columns} places, too many for a page; give a smaller one")
            front = ["[class]", *(f"[{number}]" for number in range(2, first + 1))][:first]
            title = f"{rows} × {columns} places of {places.cell} × {places.cell} pixels"
            self.grids.append((places, first))
            self.sequences.append({
                "name": "picture", "title": title, "grid": [rows, columns], "cell": places.cell, "front": front,
                "size": list(self.bytes.shape[:2]),
            })  # fmt: skip
        return self.grids.index((places, first))

    def run(self) -> Float[Tensor, "P V"]:
        seen = self.model(self.pixels) if self.answers == "labels" else self.model.embed(self.pixels)
        return seen.float()

    def names(self, ids: Sequence[int]) -> list[str]:
        return [self.model.config.labels[id] for id in ids]

    def sides(self, layer: Layer) -> tuple[int, int]:
        plan = self.plans[layer.name]
        return self.grid(plan.queries, plan.first), self.grid(plan.keys, plan.first)

    def more(self, layer: Layer) -> dict[str, Any]:
        """How Swin cuts: which place stands where in which window; −1 is filled up."""
        cuts = self.plans[layer.name].windows
        if cuts is None:
            return {}
        count = cuts.grid[0] * cuts.grid[1]
        places = cuts.split(torch.arange(1.0, count + 1)[None, :, None])[..., 0].long() - 1
        return {"windows": {"size": cuts.size, "shift": cuts.shift, "counts": list(cuts.counts),
                            "places": packed(places, "i4")}}  # fmt: skip


class Painting(Seeing):
    """A picture as the pixels that a model paints one after the other. With a `target`, these pixels follow its upper
    half, and then what the model paints itself."""

    def __init__(self, loaded: Any, picture: Any, target: Sequence[int] | None = None) -> None:
        super().__init__(loaded, picture)
        self.answers, self.sequence = "next", 0
        size, (ids,) = loaded.pixels, self.pixels.tolist()
        self.given = 1 + size.rows // 2 * size.columns
        if target is not None:
            if len(target) > len(ids) - self.given or size.start in target:
                raise ValueError(f"at most {len(ids) - self.given} colours below {size.start} follow the upper half")
            front = [*ids[: self.given], *target]
            ids = [*front, *written(self.model, front, len(ids) - len(front), ends=(), forbidden=(size.start,))]
            self.input["picture"] = uri_of(size.decode(np.array([ids[1:]]))[0])
        self.ids = ids
        self.input["target"] = ids[self.given :]
        self.sequences[0] |= {"ids": ids, "front": ["[start]"]}

    def run(self) -> Float[Tensor, "P V"]:
        scores = self.model(torch.tensor([self.ids]))[0, :-1].float()  # behind the last pixel nothing comes
        scores[:, self.loaded.pixels.start] = -torch.inf
        return scores

    def names(self, ids: Sequence[int]) -> list[str]:
        size = self.loaded.pixels
        if size.channels == 1:
            return [f"{id}/{size.levels - 1}" for id in ids]
        colours = [size.decode(np.full((1, len(size)), id))[0, 0, 0] for id in ids]
        return ["#" + bytes(colour).hex() for colour in colours]

    def found(self, scores: Float[Tensor, "P V"]) -> dict[str, Any]:
        return {"row": self.given - 1}  # where the lower half begins

    def write(self) -> list[int]:
        return []  # all of it is there


class Detecting(Seeing):
    """A picture, and what each of a DETR's queries says of it."""

    def __init__(self, loaded: Any, picture: Any) -> None:
        super().__init__(loaded, picture)
        self.answers, self.sequence = "boxes", len(self.sequences)
        count = self.model.config.queries
        self.sequences.append({"name": "queries", "title": "Queries", "tokens": [f"query {i}" for i in range(count)],
                               "ids": list(range(count))})  # fmt: skip

    def run(self) -> Float[Tensor, "P V"]:
        scores, self.boxes = split_predictions(self.model(self.pixels)[0].float())
        return scores

    def names(self, ids: Sequence[int]) -> list[str]:
        labels = [*self.model.config.labels, "nothing"]
        return [labels[id] for id in ids]

    def sides(self, layer: Layer) -> tuple[int, int]:
        queries = len(self.sequences) - 1
        return {"encoder": (0, 0), "decoder": (queries, queries)}.get(layer.kind, (queries, 0))

    def more(self, layer: Layer) -> dict[str, Any]:
        return {}

    def found(self, scores: Float[Tensor, "P V"]) -> dict[str, Any]:
        rows, columns = self.bytes.shape[:2]
        places = corners(self.boxes).clamp(0, 1) * torch.tensor([columns, rows, columns, rows])
        best = scores.softmax(-1)[:, :-1].max(-1)
        self.sequences[-1]["tokens"] = [
            f"{i} {self.names([int(label)])[0]} {chance:.2f}" if chance >= 0.5 else f"{i} nothing"
            for i, (label, chance) in enumerate(zip(best.indices, best.values.tolist(), strict=True))
        ]
        return {"boxes": [[round(side, 2) for side in box] for box in places.tolist()],
                "scores": [round(chance, 4) for chance in best.values.tolist()],
                "row": int(best.values.argmax())}  # fmt: skip


class Captioning(Seeing):
    """A picture and its caption, the model's own or the `target` tokens given."""

    given = 1

    def __init__(self, loaded: Any, picture: Any, target: Sequence[int] | None = None) -> None:
        super().__init__(loaded, picture)
        self.answers, self.sequence = "next", 1
        start = loaded.generation["decoder_start"]
        self.ends = ends_of(loaded.generation["eos"])
        self.prefix = [start, *(target or ())]
        check_length(self.model, len(self.prefix))
        own = [id for id in self.write() if id not in self.ends] if target is None else list(target)
        self.ids = [start, *own]
        self.input["target"] = own
        self.sequences.append(told(loaded.tokenizer, self.ids, "caption", "Caption") | {"front": 1})

    def planned(self) -> dict[str, Plan]:
        side = self.model.config.cell_side
        rows, columns = self.bytes.shape[:2]
        places = Places((-(-rows // side), -(-columns // side)), side)
        return {"": Plan(queries=places, keys=places)}

    def run(self) -> Float[Tensor, "P V"]:
        scores = self.model(self.pixels, torch.tensor([self.ids]))[0].float()
        scores[:, self.loaded.generation["forbidden"]] = -torch.inf
        return scores

    def names(self, ids: Sequence[int]) -> list[str]:
        return self.loaded.tokenizer.pieces(ids)

    def sides(self, layer: Layer) -> tuple[int, int]:
        return (1, 1) if layer.kind == "decoder" else (1, 0)

    def more(self, layer: Layer) -> dict[str, Any]:
        return {}

    def write(self) -> list[int]:
        told, room = self.loaded.generation, self.model.config.max_len - len(self.prefix)
        how: dict[str, Any] = dict(ends=self.ends, forbidden=told["forbidden"], pixels=self.pixels)
        return written(self.model, self.prefix, room, **how) if room > 0 else []


class Comparing(Seeing):
    """A picture and texts: how alike they are. Of several texts the first is looked into."""

    def __init__(self, loaded: Any, picture: Any, texts: Sequence[str] = ()) -> None:
        super().__init__(loaded, picture)
        self.texts = list(texts)
        self.answers = "match" if texts else "vector"
        self.input |= {"texts": self.texts}
        if texts:
            framed = loaded.tokenizer.frame(texts, max_len=self.model.config.max_len)
            self.ids = pad([one.ids for one in framed], loaded.tokenizer.pad or 0)
            self.lengths = torch.tensor([len(one) for one in framed])
            self.sequences.append(told(loaded.tokenizer, framed[0].ids, "text", "Text", texts=self.texts[:1]))

    def run(self) -> Float[Tensor, "P V"]:
        if not self.texts:
            return self.model.embed(self.pixels).float()
        return self.model(self.pixels, self.ids, self.lengths).float()

    def names(self, ids: Sequence[int]) -> list[str]:
        return [self.texts[id] for id in ids]

    def reads_text(self, layer: Layer) -> bool:
        assert isinstance(self.model, CLIP)
        return layer.name.startswith("text.")

    def sides(self, layer: Layer) -> tuple[int, int]:
        text = len(self.sequences) - 1
        return (text, text) if self.reads_text(layer) else super().sides(layer)

    def more(self, layer: Layer) -> dict[str, Any]:
        return {"tab": "text"} if self.reads_text(layer) else {"tab": "picture"} | super().more(layer)
