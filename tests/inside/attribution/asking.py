"""Questions to models that have no tokenizer."""

import torch

from regard.inside.attribution import Question


def question(model, ids, outputs=None):
    """The next token of a text at each place, or at some; behind the last it is token 0."""
    T = ids.shape[1]
    outputs = list(range(T)) if outputs is None else outputs
    right = [*ids[0, 1:].tolist(), 0]
    return Question(
        model=model, inputs={"ids": ids}, says=lambda inputs: model(**inputs), tokens=[str(i) for i in ids[0].tolist()],
        outputs=outputs, choices=[right[i] for i in outputs], reads=torch.eye(T)[outputs], spell=str,
    )  # fmt: skip
