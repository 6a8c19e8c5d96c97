"""Inputs of models that have no tokenizer."""

import torch

from regard.tasks.prepared import Outputs, Prepared, TokenSequence


class Numbers:
    """Tokens that are called by their numbers."""

    def pieces(self, ids):
        return [str(i) for i in ids]


def question(model, ids, rows=None, columns=None):
    """The next token of a text at each position, or at some; behind the last it is token 0."""
    T = ids.shape[1]
    rows = list(range(T)) if rows is None else rows
    right = [*ids[0, 1:].tolist(), 0]
    outputs = Outputs(rows, columns or [right[i] for i in rows], torch.eye(T)[rows])
    text = TokenSequence("text", "Text", [str(i) for i in ids[0].tolist()], ids[0].tolist())
    return Prepared(
        model=model, inputs={"ids": ids}, run=lambda inputs: model(**inputs), sequences=[text], chosen=outputs,
        tokenizer=Numbers(),
    )  # fmt: skip
