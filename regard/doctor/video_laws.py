"""Laws of models that read clips, as functions of a case: the order of frames is something, unless it is taken away."""

import torch

from regard.doctor.case import Case
from regard.doctor.laws import close, differs


@torch.no_grad()
def time_runs_one_way(case: Case) -> None:
    """A clip that runs backwards has another output. Without positions in time it has the same, if the family can be
    built so: nothing else tells frames apart."""
    clips = {"video": case.inputs["video"]}
    turned = {"video": clips["video"].flip(1)}
    differs(case.model(**turned), case.model(**clips), "a clip was played backwards")
    if {"times", "tubelet", "position"} <= case.fields:
        timeless = case.build(times="none", tubelet=1, position="none")
        close(timeless(**turned), timeless(**clips), "a clip was played backwards for a model without times")
