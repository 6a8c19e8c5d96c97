"""From a loaded model and what it reads to the question that views answer."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from regard.config import nearest
from regard.inside.alignments import tensors
from regard.inside.attribution.pictures import ask_picture
from regard.inside.attribution.question import Question
from regard.inside.text import check_length, read
from regard.tasks import (
    EntityTagger,
    ImageCaptioner,
    ImageEncoder,
    LanguageModel,
    MaskFiller,
    QuestionAnswerer,
    TextClassifier,
    Translator,
)

MOST_OUTPUTS = 64
"""Of a longer text only the last ones are asked about."""


@torch.no_grad()
def ask(
    loaded: Any, text: Any, second: str | None = None, *, target: str | Sequence[int] | None = None,
    at: int | None = None, token: str | None = None,
) -> Question:  # fmt: skip
    """A question to a loaded model about a text (or a pair, or a picture): of all outputs, or of the one at `at`.

    `token` asks about another token, or label, than the model's own; `target` about another translation, or, as
    tokens, about what a writer has behind the text.
    """
    takers = Translator if isinstance(target, str) else Translator | LanguageModel | ImageCaptioner
    if target is not None and not isinstance(loaded, takers):
        raise ValueError("only a translator has a --target; leave it out")
    if second is not None and isinstance(loaded, Translator):
        raise ValueError("a translator reads one text; leave out the second")
    if isinstance(loaded, ImageEncoder):
        asked = ask_picture(loaded, text, target)
    elif isinstance(loaded, Translator):
        asked = ask_translator(loaded, text, target)
    else:
        asked = ask_reader(loaded, text, second, behind=() if isinstance(target, str) else target or ())
    if asked.picture is None:
        check_length(asked.model, len(asked.tokens))
    if asked.chances().isnan().any():
        raise ValueError("the model's answer is no number: its weights are broken; train it again")
    if at is None:
        keep = slice(-MOST_OUTPUTS if token is None else -1, None)
    elif -len(asked.outputs) <= at < len(asked.outputs):
        keep = slice(at % len(asked.outputs), at % len(asked.outputs) + 1)
    else:
        raise ValueError(f"no output {at}: there are {len(asked.outputs)}, 0 to {len(asked.outputs) - 1}")
    choices = asked.choices[keep] if token is None else [find_token(loaded, token)]
    left_out = 0 if at is not None or token is not None else max(0, len(asked.outputs) - MOST_OUTPUTS)
    return replace(asked, outputs=asked.outputs[keep], choices=choices, reads=asked.reads[keep], left_out=left_out)


def find_token(loaded: Any, token: str) -> int:
    """The score that a token, or a label, has."""
    labels = getattr(loaded.model.config, "labels", ())
    if labels:
        if token not in labels:
            raise ValueError(f"no label {token!r}; {nearest(token, labels)}")
        return labels.index(token)
    if not isinstance(loaded, Translator | LanguageModel | MaskFiller):
        raise ValueError("this model says no tokens; leave out --token")
    ids = loaded.tokenizer.encode(token)
    if len(ids) != 1:
        raise ValueError(f"--token is one token; {token!r} is {len(ids)}: {' '.join(loaded.tokenizer.pieces(ids))}")
    return ids[0]


def ask_translator(loaded: Translator, text: str, target: str | Sequence[int] | None) -> Question:
    """What it writes at each place, <eos> too; the translation is the model's own or the given one."""
    given = loaded.tokenizer.encode(target) if isinstance(target, str) else target
    ids = loaded.translate([text])[0][0].ids if given is None else tuple(given)
    source, written = tensors(loaded, text, ids)
    pieces = loaded.tokenizer.pieces
    count = written.shape[1]
    return Question(
        model=loaded.model, says=lambda inputs: loaded.model(**inputs),
        inputs={"source": source, "lengths": torch.tensor([source.shape[1]]), "target": written},
        tokens=pieces(source[0].tolist()), before=pieces(written[0].tolist()), outputs=list(range(count)),
        choices=[*ids, loaded.generation["eos"]], reads=torch.eye(count), spell=lambda id: pieces([id])[0],
    )  # fmt: skip


def ask_reader(loaded: Any, text: str, second: str | None, behind: Sequence[int] = ()) -> Question:
    """Of a model that reads one text: what comes next, its label, its hidden words, or its vector."""
    model, one = loaded.model, read(loaded, text, second, parse_special=isinstance(loaded, MaskFiller))
    if behind:
        whole = [*one.inputs["ids"][0].tolist(), *behind]
        one = replace(one, inputs={"ids": torch.tensor([whole])}, labels=loaded.tokenizer.pieces(whole))
    ids, labels = one.inputs["ids"][0], getattr(model.config, "labels", ())
    T = len(ids)

    def spell(choice: int) -> str:
        return labels[choice] if labels else loaded.tokenizer.pieces([choice])[0]

    how: dict[str, Any] = dict(model=model, inputs=one.inputs, tokens=one.labels, spell=spell)
    if isinstance(loaded, TextClassifier):
        said = model(**one.inputs)
        how["says"] = lambda inputs: model(**inputs)[:, None]
        return Question(**how, outputs=[0], choices=said.argmax(-1).tolist(), reads=torch.eye(T)[:1])
    if isinstance(
        loaded, QuestionAnswerer
    ):  # two outputs, where the answer begins and ends; their scores are for places
        ends = model(**one.inputs)[0].argmax(0).tolist()
        how |= dict(says=lambda inputs: model(**inputs).mT, spell=lambda place: one.labels[place])
        return Question(**how, outputs=[0, 1], choices=ends, reads=torch.eye(T)[ends])
    if not isinstance(loaded, LanguageModel | MaskFiller | EntityTagger):
        return ask_vector(how)
    how["says"] = lambda inputs: model(**inputs)
    best = model(**one.inputs)[0].argmax(-1).tolist()
    places = list(range(T))
    if isinstance(loaded, LanguageModel):
        best = [*ids[1:].tolist(), best[-1]]
    elif isinstance(loaded, MaskFiller):
        places = [place for place in places if ids[place] == loaded.tokenizer.mask]
        if not places:
            raise ValueError("the text has no [MASK]; write it where a word is to be filled in")
    else:
        places = [place for place, span in enumerate(one.spans) if span is not None]
    return Question(**how, outputs=places, choices=[best[place] for place in places], reads=torch.eye(T)[places])


def ask_vector(how: dict[str, Any]) -> Question:
    """Of an encoder without a task: how far its vector points to where it points now."""
    model, inputs = how["model"], how["inputs"]
    T, vector = inputs["ids"].shape[1], model.embed(**inputs)[0]
    way = vector / vector.norm()
    reads = torch.full((1, T), 1 / T) if model.config.pooling == "mean" else torch.eye(T)[:1]
    how |= dict(says=lambda inputs: (model.embed(**inputs) @ way)[:, None, None], spell=lambda choice: "vector")
    return Question(**how, outputs=[0], choices=[0], reads=reads)
