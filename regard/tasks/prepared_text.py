"""Prepared texts for encoders, language models and translators."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.decode.requests import Request
from regard.decode.sample import ends_of
from regard.models import parts
from regard.tasks.engine_task import BEAMS
from regard.tasks.prepared import (
    AHEAD,
    Generation,
    Outputs,
    Prepared,
    TokenSequence,
    all_tokens,
    best_columns,
    check_length,
    check_tokens,
    first_token,
)
from regard.train.device import device_of

LONGEST = 2048
"""The most tokens of a source text, for a model without a limit of its own."""
Target = str | Sequence[int] | None


def check_texts(task: Any, texts: Sequence[Any], most: int, target: Any = None, kept: int | None = None) -> None:
    """Raise an error if these are not one to `most` texts, or if there is more beside them than the task reads."""
    family = type(task.model).__name__
    if not 1 <= len(texts) <= most:
        unit = "text or pair" if most > 1 else "text"
        raise ValueError(f"a {family} reads one {unit} at a time, got {len(texts)}; call it once for each")
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"a {family} reads texts, got an image; choose an image model, such as a vit")
    if target:
        raise ValueError("only a translator has a --target; leave it out")
    if kept is not None:
        raise ValueError(f"kept is for language models, and a {family} is none; leave it out")


def read_encoder(
    task: Any, *texts: str, target: Target = None, kept: int | None = None, cut: bool = False, greedy: bool = False
) -> Prepared:  # fmt: skip
    """A text, or a pair of texts, as an encoder reads it; `cut` shortens it to the context."""
    check_texts(task, texts, 2, target, kept)
    model, tokenizer, answers = task.model, task.tokenizer, task.output
    pair = {} if len(texts) == 1 else {"second": texts[1]}
    limit = model.config.max_len if cut else None
    framed = tokenizer.frame(
        texts[:1], list(texts[1:]) or None, max_len=limit, **({"parse_special": True} if answers == "fill" else {})
    )[0]
    check_length(model, len(framed))
    inputs = {"ids": torch.tensor([framed.ids]), "lengths": torch.tensor([len(framed)])}
    if getattr(model.config, "types", 0) > 1:
        inputs["types"] = torch.tensor([framed.types])
    sequence = TokenSequence(
        "text", "Text", tokenizer.pieces(framed.ids), framed.ids, text="" if pair else texts[0],
        segments=list(framed.types) if pair and "types" in inputs else None,
        spans=[span if side == 0 else None for span, side in zip(framed.offsets, framed.side, strict=True)],
    )  # fmt: skip
    labels = list(getattr(model.config, "labels", ()))
    if answers == "span":  # the same token may stand at several positions
        labels = [f"{token} (token {i})" for i, token in enumerate(sequence.tokens)]

    if answers == "vector" and not hasattr(model, "embed"):
        with torch.inference_mode():
            placed = {name: values.to(device_of(model)) for name, values in inputs.items()}
            answers = "number" if model(**placed).numel() == 1 else "vector"

    def embed(inputs: dict[str, Tensor]) -> Float[Tensor, "B D"]:
        if hasattr(model, "embed"):
            return model.embed(**inputs)
        rows = model(**inputs)
        return rows.mean(1) if rows.dim() == 3 else rows.reshape(len(rows), -1)

    def run(inputs: dict[str, Tensor]) -> Float[Tensor, "B P V"]:
        if answers == "vector":
            return embed(inputs)[:, None]
        rows = model(**inputs)
        return rows.mT if answers == "span" else rows if rows.dim() == 3 else rows.reshape(len(rows), 1, -1)

    def choose(prepared: Prepared) -> Outputs:
        return choose_of_encoder(prepared, tokenizer.mask)

    def details(logits: Tensor) -> dict[str, Any]:
        if answers == "fill" and tokenizer.mask in framed.ids:
            return {"row": framed.ids.index(tokenizer.mask)}
        return {"titles": ["begins at", "ends at"]} if answers == "span" else {}

    return Prepared(
        model=model, inputs=inputs, run=run, sequences=[sequence], answers=answers, choose=choose, labels=labels,
        row_sequence=0 if answers in ("fill", "tags") else None, tokenizer=tokenizer if answers == "fill" else None,
        embed=embed, request={"text": texts[0]} | pair, details=details, tower=parts.text_tower(model),
    )  # fmt: skip


def choose_of_encoder(prepared: Prepared, mask: int | None) -> Outputs:
    """The outputs of an encoder that are explained: hidden words, words with tags, both ends of a span, or one row."""
    sequence, length = prepared.sequences[0], len(prepared.sequences[0])
    if prepared.answers == "vector":
        mean = getattr(prepared.model.config, "pooling", "mean") == "mean"
        return Outputs([0], [0], all_tokens(length) if mean else first_token(length))
    best = best_columns(prepared)
    if prepared.answers == "span":
        return Outputs(best.rows, best.columns, torch.eye(length)[best.columns])
    if prepared.row_sequence is None:
        return best
    if prepared.answers == "fill":
        rows = [i for i, id in enumerate(sequence.ids or ()) if id == mask]
        if not rows:
            raise ValueError("the text has no [MASK]; write it where a word is to be filled in")
    else:
        rows = [i for i, span in enumerate(sequence.spans or ()) if span is not None]
    return Outputs(rows, [best.columns[row] for row in rows], best.readout[rows])


def read_prompt(
    task: Any, *texts: str, target: Target = None, kept: int | None = None, cut: bool = False, greedy: bool = False
) -> Prepared:  # fmt: skip
    """Prepare a text for a language model, followed by `target` tokens; `kept` cuts the text to its first tokens."""
    check_texts(task, texts, 1, isinstance(target, str))
    model, tokenizer, (text,) = task.model, task.tokenizer, texts
    front, target = list(task.front), check_tokens(model, list(target or ()))  # type: ignore[arg-type]
    whole = [*front, *tokenizer.encode(text)][: model.config.max_len if cut else None]
    first = max(1, len(front))
    if kept is not None and not first <= kept <= len(whole):
        raise ValueError(f"of {len(whole)} tokens {kept} cannot be kept; keep {first} to {len(whole)}")
    ids = [*whole[:kept], *target]
    if len(ids) <= len(front):
        raise ValueError(
            f"the example {text!r} has no tokens; leave it out, or give it some words"
            if cut else "the text is empty; give it some words"
        )  # fmt: skip
    check_length(model, len(ids))
    read = tokenizer.decode(whole[len(front) : kept]) if kept is not None and kept < len(whole) else text
    framed = tokenizer.frame([text])[0]
    spans = [*[None] * len(front), *(
        span for span, side in zip(framed.offsets, framed.side, strict=True) if side is not None
    )]  # fmt: skip
    spans = [*spans[: len(whole[:kept])], *[None] * len(target)]
    sequence = TokenSequence(
        "text", "Text", tokenizer.pieces(ids), ids, prefix=len(front), spans=spans,
        text=text if not target and read == text else "",
    )  # fmt: skip

    def choose(prepared: Prepared) -> Outputs:
        last = int(prepared.logits()[0, -1].argmax())
        return Outputs(list(range(len(ids))), [*ids[1:], last], torch.eye(len(ids)))

    forbidden, room = task.generation["forbidden"], (model.config.max_len or LONGEST) - len(ids)
    return Prepared(
        model=model, inputs={"ids": torch.tensor([ids])}, run=lambda inputs: model(**inputs), sequences=[sequence],
        choose=choose, tokenizer=tokenizer, forbidden=forbidden, fixed=first, tower=parts.text_tower(model),
        request={"text": text, "target": target, "kept": kept, "read": read},
        generation=Generation(
            prefix=ids, room=room, ahead=AHEAD, ends=task.ends, forbidden=forbidden,
            decode=lambda new: task.continuation(ids, [id for id in new if id not in task.ends]),
            search=(lambda: task.request(ids, max_new_tokens=AHEAD, beams=BEAMS)) if room > 0 else None,
        ),
    )  # fmt: skip


def read_source(
    task: Any, *texts: str, target: Target = None, kept: int | None = None, cut: bool = False, greedy: bool = False
) -> Prepared:  # fmt: skip
    """A text as a translator reads it, and its translation: the `target`, or the model's own, `greedy` or by beams."""
    check_texts(task, texts, 1, kept=kept)
    model, tokenizer, (text,) = task.model, task.tokenizer, texts
    if not text.strip():
        raise ValueError("the text is empty; give it some words")
    limit = getattr(model.config, "max_len", None) or LONGEST
    source = task.encode([text], len(text) + 8 if cut else LONGEST)[0][: limit if cut else None]
    check_length(model, len(source))
    context = {"source": torch.tensor([source]), "lengths": torch.tensor([len(source)])}
    return continued(
        task, context, TokenSequence("source", "Source", tokenizer.pieces(source), source, text=text),
        TokenSequence("target", "Target", [], prefix=len(task.start)), task.start, target,
        most=min(2 * len(source) + 16, task.generation.get("max_length", LONGEST), limit),
        own=None if greedy else lambda: task.translate([text])[0][0].ids, search=lambda: task.request(source),
        request={"text": text}, tower=parts.text_tower(model),
    )  # fmt: skip


def continued(
    task: Any, context: dict[str, Tensor], read: TokenSequence, written: TokenSequence, start: Sequence[int],
    target: Target, *, most: int, own: Any, search: Callable[[], Request], request: dict[str, Any],
    **fields: Any,
) -> Prepared:  # fmt: skip
    """Prepare a context and a decoder's output after `start`: the `target`, else its own output, greedy or from
    `own()`."""
    model, tokenizer, forbidden = task.model, task.tokenizer, task.generation["forbidden"]
    ends = list(ends_of(task.generation["eos"]))
    output = tokenizer.encode(target) if isinstance(target, str) else target
    prefix = [*start, *check_tokens(model, output or ())]
    check_length(model, len(prefix))
    room = most - len(prefix)

    def searched() -> Request:
        whole = search()
        left = max(1, whole.max_len - (len(prefix) - len(start)))
        return replace(whole, prompt=prefix, max_len=left, beams=whole.beams if whole.beams > 1 else BEAMS)

    generation = Generation(
        prefix=prefix, room=room, ends=ends, forbidden=forbidden, inputs=context,
        search=searched if room > 0 else None,
        decode=lambda new: tokenizer.decode([id for id in new if id not in ends]),
    )  # fmt: skip
    if output is None:
        output = own() if own is not None else [id for id in generation.write(model) if id not in ends]
    ids = [*start, *output]
    written.tokens, written.ids = tokenizer.pieces(ids), ids

    def choose(prepared: Prepared) -> Outputs:
        return Outputs(list(range(len(ids))), [*ids[1:], ends[0]], torch.eye(len(ids)))

    return Prepared(
        model=model, inputs=context | {"target": torch.tensor([ids])}, run=lambda inputs: model(**inputs),
        sequences=[read, written], row_sequence=1, choose=choose, tokenizer=tokenizer, forbidden=forbidden,
        fixed=len(start), generation=generation, request=request | {"target": list(output)}, **fields,
    )  # fmt: skip
