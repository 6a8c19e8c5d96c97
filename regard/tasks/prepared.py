"""One input of a model, prepared for views and explanations: `task.read("a text")` returns it for every task.

Views, explanations, the page and the latent space all work on a `Prepared` and know no family and no task: it has the
tensors that the model takes, the token sequences that layers attend from and to, the rows of logits with the names of
their columns, which outputs are to be explained, and how a generative model goes on by itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.config import nearest
from regard.decode.requests import Request
from regard.models import parts
from regard.nn.grids import LayerGrids, PatchGrid
from regard.nn.stack import Stack
from regard.train.device import device_of

MOST_OUTPUTS = 64
"""The most outputs that are explained; of a longer sequence, the last ones."""
AHEAD = 16
"""Number of tokens that a language model generates after a prompt."""
SURE = 0.5
"""Probability above which a detector's query counts as a detected object."""


@dataclass(slots=True)
class TokenSequence:
    """Tokens that attention layers read: of a text, of an image, or of what the model writes."""

    name: str
    title: str
    tokens: list[str]
    """A readable label of each token."""
    ids: list[int] | None = None
    prefix: int = 0
    """Special tokens in front of the first token of the text, or of the first patch."""
    grid: PatchGrid | None = None
    """The patches of an image, which stand behind the prefix."""
    segments: list[int] | None = None
    """Index of the text of a pair that each token belongs to."""
    spans: list[tuple[int, int] | None] | None = None
    """The characters of the first text that each token stands for; None for special tokens."""
    text: str = ""
    """The text that the tokens spell, if they spell one."""
    seconds: float | None = None
    """The seconds of sound that each token, or each column of a grid, stands for."""

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class Outputs:
    """Which logits are to be explained: some rows, a column of each, and the positions that they are read from."""

    rows: list[int]
    columns: list[int]
    readout: Float[Tensor, "R T"]
    """The positions of the last layer that each output is read from, as weights that sum to 1."""
    left_out: int = 0
    """Outputs before these that are not explained, because there are too many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The greedy continuation of a prefix by a generative model."""

    prefix: list[int]
    room: int
    """Tokens that fit behind the prefix."""
    ahead: int | None = None
    """Number of tokens to generate by default (none: as many as fit)."""
    ends: Sequence[int] = ()
    forbidden: Sequence[int] = ()
    inputs: Mapping[str, Tensor] = field(default_factory=dict)
    """The inputs of the model's `prefill` beside the prefix: a source, or pixels."""
    decode: Callable[[list[int]], str] = str
    """The text of the tokens that were written, without the ends."""
    search: Callable[[], Request] | None = None
    """Function that returns the engine's request for a continuation by beam search, where there is room for one."""

    @torch.inference_mode()
    def write(self, model: Any, most: int | None = None) -> list[int]:
        """Generate tokens greedily after the prefix, EOS included; hooks on the model's layers are called."""
        most = min(self.room, most or self.ahead or self.room)
        ids: list[int] = []
        if most < 1:
            return ids
        cache, device = model.new_cache(len(self.prefix) + most), device_of(model)
        inputs = {name: values.to(device) for name, values in self.inputs.items()}
        logits = model.prefill(torch.tensor([self.prefix], device=device), cache, **inputs)
        while True:
            logits[:, list(self.forbidden)] = -torch.inf
            ids.append(int(logits.argmax(-1)))
            if ids[-1] in self.ends or len(ids) == most:
                return ids
            logits = model.step(torch.tensor(ids[-1:], device=device), cache)


def on_device(inputs: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Inputs on the device of a model's weights; numbers that are no indices have the type of these."""
    like = next(model.parameters())
    return {name: x.to(like) if x.is_floating_point() else x.to(like.device) for name, x in inputs.items()}


@dataclass(kw_only=True)
class Prepared:
    """One input in the form that a model takes, with descriptions of its tokens, its logits and its outputs."""

    model: Any
    inputs: dict[str, Tensor]
    """The tensors that `run` takes: a batch of one."""
    run: Callable[[dict[str, Tensor]], Float[Tensor, "B P V"]]
    """From inputs to rows of logits; for an encoder one row, the vector."""
    sequences: list[TokenSequence]
    """The input comes first; the target of a decoder comes last."""
    answers: str = "next"
    """The kind of the columns of logits: next or fill (tokens), labels, tags, span, boxes, match, number, or vector."""
    row_sequence: int | None = 0
    """The sequence with a row of logits for each token; None where rows are about the whole input."""
    choose: "Callable[[Prepared], Outputs] | None" = None
    """Function that selects the outputs to explain (none: the most probable column of each row)."""
    labels: Sequence[str] = ()
    """The names of the columns of logits, if there are few."""
    tokenizer: Any = None
    """The tokenizer that names the columns, where they are its vocabulary."""
    embed: Callable[[dict[str, Tensor]], Float[Tensor, "B D"]] | None = None
    """From inputs to the model's own vector of each, if it was trained to give one."""
    generation: Generation | None = None
    """The continuation by the model itself, if it generates."""
    forbidden: Sequence[int] = ()
    """Columns that are never chosen."""
    fixed: int = 0
    """Tokens at the start of the row sequence that cannot be replaced by others."""
    tower: nn.Module | None = None
    """The part of the model that reads the first sequence (none: all of it)."""
    grids: dict[str, LayerGrids] = field(default_factory=dict)
    """The grids of attention layers that read an image, by their names in the model."""
    sequence_of: dict[str, int] = field(default_factory=dict)
    """The sequence that an attention layer runs over, by its name, where it is neither the input nor the target."""
    image: np.ndarray | None = None
    """Bytes, rows × columns × channels: the image as it was brought to the model's size."""
    original: Any = None
    """The image as it was given: a path, or a Pillow image."""
    sound: str | None = None
    """The recording that was read, as a data: URI."""
    request: dict[str, Any] = field(default_factory=dict)
    """The input as it was given, for JSON."""
    details: Callable[[Float[Tensor, "P V"]], dict[str, Any]] = lambda logits: {}
    """Function from logits to further data of the answer, such as boxes."""
    own_views: tuple[str, ...] = ()
    """The names of views that only inputs of this kind have; the first is shown unless another is asked for."""
    traceable: bool = True
    """Whether the outputs can be traced back to tokens; otherwise only heads are ablated."""
    chosen: Outputs | None = None
    ablated: frozenset[tuple[str, int]] = frozenset()
    """Heads that are switched off, by layer and number."""

    def __post_init__(self) -> None:
        self.inputs = {name: values.to(device_of(self.model)) for name, values in self.inputs.items()}

    # ---- tokens and layers ---------------------------------------------------------------------------------------

    @property
    def tokens(self) -> list[str]:
        """The labels of the tokens, or patches, of the first sequence."""
        return self.sequences[0].tokens

    def sides(self, layer: str, kind: str) -> tuple[int, int]:
        """Return the indices in `sequences` of a layer's queries and keys; `kind` is that of `regard.look`."""
        if layer in self.grids:
            grids = self.grids[layer]
            shapes = [(sequence.grid, sequence.prefix) for sequence in self.sequences]
            return shapes.index((grids.queries, grids.prefix)), shapes.index((grids.keys, grids.prefix))
        if layer in self.sequence_of:
            return self.sequence_of[layer], self.sequence_of[layer]
        own = len(self.sequences) - 1
        return {"encoder": (0, 0), "decoder": (own, own)}.get(kind, (own, 0))

    @property
    def stacks(self) -> dict[str, Stack]:
        """The stacks of blocks of the model by name; the one that reads the tokens comes first."""
        stacks = parts.stacks(self.model)
        if not stacks:
            raise ValueError(f"{type(self.model).__name__} has no stack of blocks for this view; use heads or ablation")
        return stacks

    @property
    def uniform(self) -> bool:
        """Whether every layer has the same tokens, so that their weights can be multiplied."""
        if self.grids:
            own = self.sequences[0].grid
            return all(layer.queries == layer.keys == own and layer.windows is None for layer in self.grids.values())
        return bool(parts.stacks(self.model)) and not self.sequence_of

    @property
    def explanations(self) -> list[str]:
        """The names of the explanations that are available for this model and input."""
        if not parts.attention_layers(self.model) or self.answers == "next" and self.row_sequence == 0 and self.grids:
            return []
        if not (self.traceable and self.uniform):
            return ["ablation"]
        deep = self.answers not in ("vector", "number") and bool(parts.stacks(self.model))
        possible = {
            "rollout": True, "gradient": True, "ablation": True, "lens": deep,
            "patch": deep and self.image is None and "second" not in self.request,
            "agreement": bool(parts.stacks(self.tower or self.model)),
        }  # fmt: skip
        return [name for name, there in possible.items() if there]

    @property
    def mechanisms(self) -> list[str]:
        """The names of the views of parts other than attention that this model has."""
        searches = self.generation is not None and self.generation.search is not None
        there = {"beam": searches, "ffn": bool(parts.feedforward_blocks(self.model))}
        return [name for name, has in there.items() if has]

    @property
    def views(self) -> list[str]:
        """The names of all views of this model and input; the first is shown unless another is asked for."""
        if self.image is None:
            alignment = ["alignment"] if self.row_sequence else []
            of_all = [] if self.sequence_of else ["heads", "lines"]  # which have one sequence
            shown = [*of_all, *self.explanations, *alignment] if parts.attention_layers(self.model) else []
            return [*self.own_views, *shown, *self.mechanisms]
        boxes = ["queries", "boxes"] if self.answers == "boxes" else []
        own = boxes or (["words"] if self.generation and self.row_sequence else [])
        windows = ["windows"] if any(layer.windows is not None for layer in self.grids.values()) else []
        on_grid = ["heads", "rollout"] if self.grids else []
        return list(dict.fromkeys([*own, *on_grid, *windows, *self.explanations, *self.mechanisms]))

    # ---- outputs -------------------------------------------------------------------------------------------------

    @cached_property
    def direction(self) -> Float[Tensor, "D"]:
        """The encoder's vector for this input, normalised to length 1."""
        with torch.no_grad():
            vector = self.run(self.inputs)[0, 0].cpu()
        return vector / vector.norm()

    def logits(self, inputs: dict[str, Tensor] | None = None) -> Float[Tensor, "B P V"]:
        """Return rows of logits; for an encoder one number, the product of its vector with the direction of the
        unchanged input's."""
        rows = self.run(self.inputs if inputs is None else inputs).cpu()  # all that follows is on the CPU
        return (rows @ self.direction)[..., None] if self.answers == "vector" else rows

    @cached_property
    def outputs(self) -> Outputs:
        """The outputs that are to be explained."""
        if self.chosen is not None:
            return self.chosen
        with torch.no_grad():
            return (self.choose or best_columns)(self)

    @property
    def output_names(self) -> list[str]:
        """The names of the columns that are to be explained."""
        return self.names(self.outputs.columns)

    def names(self, columns: Sequence[int]) -> list[str]:
        """The names of columns of the logits: labels, or tokens of the vocabulary."""
        if self.answers in ("vector", "number"):
            return [self.answers] * len(columns)
        if self.tokenizer is not None:
            return self.tokenizer.pieces(columns)
        return [self.labels[column] if column < len(self.labels) else str(column) for column in columns]

    def column_of(self, name: str) -> int:
        """The column of the logits with that name."""
        if self.labels:
            if name not in self.labels:
                raise ValueError(f"no label {name!r}; {nearest(name, self.labels)}")
            return list(self.labels).index(name)
        if self.tokenizer is None:
            raise ValueError("this model predicts no tokens; leave out --token")
        ids = self.tokenizer.encode(name)
        if len(ids) != 1:
            raise ValueError(f"--token is one token; {name!r} is {len(ids)}: {' '.join(self.tokenizer.pieces(ids))}")
        return ids[0]

    @torch.no_grad()
    def select(self, at: int | None = None, token: str | None = None) -> "Prepared":
        """This input with fewer outputs to explain: the one `at` a position, or the last for another token or label."""
        every = self.outputs
        if self.log_probabilities().isnan().any():
            raise ValueError("the model's output is NaN: its weights are damaged; train it again")
        count = len(every.rows)
        if at is not None and not -count <= at < count:
            raise ValueError(f"no output {at}: there are {count}, 0 to {count - 1}")
        keep = slice(-MOST_OUTPUTS if token is None else -1, None) if at is None else slice(at % count, at % count + 1)
        columns = every.columns[keep] if token is None else [self.column_of(token)]
        left_out = 0 if at is not None or token is not None else max(0, count - MOST_OUTPUTS)
        return replace(self, chosen=Outputs(every.rows[keep], columns, every.readout[keep], left_out))

    def chosen_logits(self, inputs: dict[str, Tensor] | None = None) -> Float[Tensor, "B R"]:
        """The logit of each output that is to be explained."""
        return self.logits(inputs)[:, self.outputs.rows, self.outputs.columns]

    def log_probabilities(self, inputs: dict[str, Tensor] | None = None) -> Float[Tensor, "B R"]:
        """The log-probability of each output that is to be explained; a single number stands for itself."""
        rows = self.logits(inputs)[:, self.outputs.rows]
        rows = rows if rows.shape[-1] == 1 else rows.log_softmax(-1)
        return rows[:, range(len(self.outputs.rows)), self.outputs.columns]

    def loss(self, inputs: dict[str, Tensor] | None = None) -> Float[Tensor, "B"]:
        """The mean negative log-probability of the outputs that are to be explained."""
        return -self.log_probabilities(inputs).mean(-1)

    def repeat(self, count: int) -> dict[str, Tensor]:
        """The inputs as a batch of `count` equal rows."""
        return {name: value.expand(count, *value.shape[1:]) for name, value in self.inputs.items()}

    def without_ablated(self, layer: str, weights: Float[Tensor, "H T S"]) -> Float[Tensor, "H T S"]:
        """The weights of a layer with zeros for its ablated heads."""
        heads = [head for name, head in self.ablated if name == layer]
        return weights.index_fill(0, torch.tensor(heads, device=weights.device), 0.0) if heads else weights


def best_columns(prepared: Prepared) -> Outputs:
    """Return the most probable column of each row; a row without a token of its own is attributed to the first
    token."""
    columns = prepared.logits()[0].argmax(-1).tolist()
    rows, length = list(range(len(columns))), len(prepared.sequences[prepared.row_sequence or 0])
    if prepared.row_sequence is not None:
        return Outputs(rows, columns, torch.eye(length))
    return Outputs(rows, columns, first_token(length).expand(len(rows), -1))


def first_token(length: int) -> Float[Tensor, "1 T"]:
    """Return readout weights that select the first of `length` positions."""
    return torch.eye(length)[:1]


def all_tokens(length: int) -> Float[Tensor, "1 T"]:
    """Return readout weights that average over `length` positions."""
    return torch.full((1, length), 1 / length)


def check_length(model: Any, count: int) -> None:
    """Raise an error if a text has more tokens than a model was made for, even where its positions would go on."""
    limit = getattr(model.config, "max_len", None)
    if limit is not None and count > limit:
        raise ValueError(f"the text has {count:,} tokens, the model's context is {limit:,}; give it a shorter one")


def check_tokens(model: Any, ids: Sequence[int]) -> list[int]:
    """Token ids as a list; an id that the vocabulary does not have is an error."""
    size = getattr(model.config, "vocab_size", 0)
    wrong = [id for id in ids if not 0 <= id < size]
    if wrong:
        raise ValueError(f"there is no token {wrong[0]}: the vocabulary has {size:,}, counted from 0")
    return list(ids)
