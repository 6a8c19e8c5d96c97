"""AdamW, and Muon for the matrices inside the blocks, or for these and the kernels of convolutions."""

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

from regard.train.parallel import Parallel


class Muon(torch.optim.Muon):
    """`torch.optim.Muon` with matrices of one shape orthogonalised together, in float32.

    The original does them one by one in bfloat16, which CPUs without bfloat16 units compute a hundred times slower.
    The kernel of a convolution is a matrix, too: a row for each output, over the inputs and their neighbourhood.
    """

    def __init__(
        self, params: list[nn.Parameter], *, lr: float, weight_decay: float, momentum: float = 0.95,
        parallel: Parallel | None = None,
    ) -> None:  # fmt: skip
        self.parallel = parallel or Parallel(nn.Module())
        matrices = [p for p in params if p.dim() == 2]
        super().__init__([{"params": matrices}], lr=lr, weight_decay=weight_decay, momentum=momentum)
        if kernels := [p for p in params if p.dim() > 2]:
            self.add_param_group({"params": kernels})  # the original checks for matrices before this

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            # Matrices of which each process has a part come together for the orthogonalisation alone.
            by_shape: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    by_shape[self.parallel.shape(p)].append(p)
            for shape, params in by_shape.items():
                self._step_together(group, shape, params)

    def _step_together(self, group: dict[str, Any], shape: torch.Size, params: list[nn.Parameter]) -> None:
        local, momentum = self.parallel.local, group["momentum"]
        grads = [local(p.grad) for p in params]
        buffers = [local(self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))) for p in params]
        torch._foreach_lerp_(buffers, grads, 1 - momentum)
        updates = torch._foreach_lerp(grads, buffers, momentum) if group["nesterov"] else buffers
        whole = [self.parallel.matrix(p, update) for p, update in zip(params, updates, strict=True)]
        matrices = torch.stack(whole).flatten(2)
        orthogonal = orthogonalize(matrices, group["ns_coefficients"], group["ns_steps"], group["eps"])
        steps = [
            local(self.parallel.part(p, matrix))
            for p, matrix in zip(params, orthogonal.unflatten(2, shape[1:]).unbind(), strict=True)
        ]
        # 0.2·√max matches the size of AdamW's updates, so that one learning rate serves both.
        weights = [local(p) for p in params]
        torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_sub_(weights, steps, alpha=group["lr"] * 0.2 * max(matrices.shape[1:]) ** 0.5)


def orthogonalize(x: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Each matrix of the batch with its singular values brought near 1, by Newton–Schulz iterations."""
    a, b, c = coefficients
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=eps)
    if x.shape[-1] < 2 * x.shape[-2]:
        for _ in range(steps):
            gram = x @ x.mT
            x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    else:  # a step is x ← P x with a polynomial P of x xᵀ, so all steps can be taken on the small square matrices
        gram, product = x @ x.mT, None
        for step in range(steps):
            factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
            factor.diagonal(dim1=-2, dim2=-1).add_(a)
            product = factor if product is None else factor @ product
            gram = factor @ gram @ factor if step < steps - 1 else gram
        x = x if product is None else product @ x
    return x.mT if tall else x


def build_optimizers(
    model: nn.Module,
    *,
    name: str,
    lr: float,
    betas: tuple[float, float],
    weight_decay: float,
    parallel: Parallel | None = None,
) -> list[torch.optim.Optimizer]:
    """AdamW for all parameters, or Muon for the blocks' matrices and AdamW for the rest. Only matrices decay.

    "muon-conv" is Muon for the kernels of the blocks' convolutions as well, but for those of single channels.

    The learning rate of a parameter with an attribute `pace` is multiplied by it: its values are of another scale.
    """
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    inside = [p for n, p in named if ".blocks." in f".{n}"]
    inner = [p for p in inside if not hasattr(p, "pace") and for_muon(p, name)]
    known = set(map(id, inner))
    rest = [p for _, p in named if id(p) not in known]
    plain = [p for p in rest if not hasattr(p, "pace")]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in plain if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in plain if p.dim() < 2], "weight_decay": 0.0},
    ]
    groups += [{"params": [p], "weight_decay": 0.0, "pace": p.pace} for p in rest if hasattr(p, "pace")]
    fused = not any(p.is_meta for p in rest)
    optimizers: list[torch.optim.Optimizer] = [torch.optim.AdamW(groups, lr=lr, betas=betas, fused=fused)]
    if inner:
        optimizers.append(Muon(inner, lr=lr, weight_decay=weight_decay, momentum=0.95, parallel=parallel))
    return optimizers


def for_muon(parameter: Tensor, name: str) -> bool:
    """Whether the optimizer of that name updates a parameter of the blocks by Muon."""
    kernel = name == "muon-conv" and parameter.dim() > 2 and parameter.shape[1] > 1
    return kernel or (name != "adamw" and parameter.dim() == 2)
