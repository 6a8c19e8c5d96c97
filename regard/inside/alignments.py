"""Pictures of a translator at work: which source tokens it looked at for each target token."""

import copy
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.inside.capture import alignment, look
from regard.inside.heads import Shown, show_heads
from regard.inside.text import check_length
from regard.inside.views import draw_alignment
from regard.tasks import Translation, Translator
from regard.tasks.translator import LONGEST_SOURCE


def align(
    translator: Translator, text: str, ids: tuple[int, ...], model: Any = None
) -> tuple[Float[Tensor, "T S"], list[str], list[str]]:
    """The alignment of a text and its translation, mean over all layers and heads of the cross-attention, with the
    pieces that were read and written. `model` is a twin of the translator's own, if that one is at work elsewhere."""
    source, target = tensors(translator, text, ids)
    with torch.inference_mode():
        weights = alignment(model or translator.model, source, torch.tensor([source.shape[1]]), target)[0]
    return weights, *labels(translator, source, ids)


def twin_of(model: nn.Module) -> nn.Module:
    """A second tree of modules over the same weights: to look into while the first one works."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared)


def draw_translation(translator: Translator, text: str, translation: Translation, path: Path) -> None:
    """The picture of an alignment."""
    draw_alignment(*align(translator, text, translation.ids), path)


def show_translation(
    translator: Translator, text: str, target: str | None = None, *, kind: str = "cross", view: str = "heads"
) -> Shown:
    """Every layer and head of one kind of attention, for the given translation or the model's own."""
    ids = translator.translate([text])[0][0].ids if target is None else tuple(translator.tokenizer.encode(target))
    source, written = tensors(translator, text, ids)
    check_length(translator.model, source.shape[1])
    with torch.no_grad(), look(translator.model, layers=kind) as seen:
        translator.model.features(source=source, lengths=torch.tensor([source.shape[1]]), target=written)
    if not seen.names:
        raise ValueError(f"this model has no {kind} attention to draw")
    read, wrote = labels(translator, source, ids)
    before = ["<bos>", *wrote[:-1]]
    rows, columns = {"cross": (wrote, read), "encoder": (read, read), "decoder": (before, before)}[kind]
    said, draw = show_heads({name: seen.attention[name][0] for name in seen.names_of(kind)}, rows, columns, view)
    return {"kind": kind} | said, draw


def tensors(translator: Translator, text: str, ids: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """The source as the encoder reads it, and the target as the decoder reads it."""
    source = translator.encode([text], LONGEST_SOURCE)
    return torch.tensor(source), torch.tensor([[translator.generation["decoder_start"], *ids]])


def labels(translator: Translator, source: torch.Tensor, ids: tuple[int, ...]) -> tuple[list[str], list[str]]:
    """Readable source pieces, and the piece that the decoder writes at each step."""
    pieces = translator.tokenizer.pieces
    return pieces(source[0].tolist()), pieces([*ids, translator.generation["eos"]])
