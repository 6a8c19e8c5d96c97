"""Attention along the edges of a graph: exact for any mask, in time and memory that grow with the pairs it allows."""

import warnings
from functools import cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.nn.kernels.full import Full, repeat_heads
from regard.nn.masks import Mask, conjuncts, everything, neighbours
from regard.nn.positions import Bias
from regard.registry import register_kernel

SPARSE = ("cpu", "cuda")
"""Devices with sparse matrices; on others a vector is kept for each pair."""


class Pairs(NamedTuple):
    """The pairs of queries and keys that a mask allows, sorted by query; the rows of a batch are one large graph."""

    queries: Int[Tensor, "E"]
    keys: Int[Tensor, "E"]
    sizes: tuple[int, int]
    """The numbers of queries and of keys, of all rows together."""
    starts: Int[Tensor, "N"]
    """Where the pairs of each query begin, and the number of all."""
    order: Int[Tensor, "E"]
    """The pairs sorted by key."""
    key_starts: Int[Tensor, "N"]

    @classmethod
    def of(cls, mask: Mask, B: int, T: int, S: int, device: torch.device) -> "Pairs":
        """The pairs that a mask allows, from its list of edges if it has one, else from a matrix."""
        rules, listed = conjuncts(mask), listed_edges(mask)
        if listed is None:
            allowed = mask.dense(T, S, device)[:, 0].expand(B, T, S).reshape(B * T, S)
            queries, keys = allowed.nonzero().unbind(1)
            keys = keys + queries // T * S
        else:
            pairs = listed.pairs.to(device)
            rows = torch.arange(B, device=device)[:, None].expand(pairs.shape[:2])
            i, j = pairs.unbind(-1)
            real = (i >= 0) & (i < T) & (j < S)
            flat = torch.unique(((rows * T + i) * S + j)[real])  # sorted, each once
            queries, keys = flat // S, flat // (T * S) * S + flat % S
            for rule in (rule for rule in rules if rule is not listed):
                seen = rule.dense(T, S, device)[:, 0].expand(B, T, S)[keys // S, queries % T, keys % S]
                queries, keys = queries[seen], keys[seen]
        order = torch.argsort(keys, stable=True)
        return cls(queries, keys.int(), (B * T, B * S), starts_of(queries, B * T), order, starts_of(keys, B * S))

    def repeated(self, heads: int) -> "Pairs":
        """These pairs once for each head, as one graph whose parts do not meet."""
        (T, S), E, each = self.sizes, len(self.keys), torch.arange(heads, device=self.keys.device)[:, None]

        def shifted(x: Tensor, by: int) -> Tensor:
            return (x + each.to(x.dtype) * by).flatten()

        def joined(starts: Tensor) -> Tensor:
            return torch.cat([shifted(starts[:-1], E), starts.new_tensor([heads * E])])

        return Pairs(
            shifted(self.queries, T), shifted(self.keys, S), (heads * T, heads * S), joined(self.starts),
            shifted(self.order, E), joined(self.key_starts),
        )  # fmt: skip

    def mixed(self, values: Float[Tensor, "E"], x: Float[Tensor, "M C"]) -> Float[Tensor, "N C"]:
        """The sum of the keys' vectors for each query, each times the value of the pair."""
        if x.device.type not in SPARSE:
            return x.new_zeros(self.sizes[0], x.shape[1]).index_add(0, self.queries, values[:, None] * x[self.keys])
        return sparse(self.starts, self.keys, values, self.sizes) @ x

    def returned(self, values: Float[Tensor, "E"], x: Float[Tensor, "N C"]) -> Float[Tensor, "M C"]:
        """The sum of the queries' vectors for each key, each times the value of the pair."""
        if x.device.type not in SPARSE:
            return x.new_zeros(self.sizes[1], x.shape[1]).index_add(0, self.keys, values[:, None] * x[self.queries])
        return sparse(self.key_starts, self.queries[self.order].int(), values[self.order], self.sizes[::-1]) @ x


def listed_edges(mask: Mask) -> neighbours | None:
    """The rule of a mask that lists the pairs it allows, if there is one."""
    return next((rule for rule in conjuncts(mask) if isinstance(rule, neighbours) and not rule.start), None)


def starts_of(numbers: Int[Tensor, "E"], size: int) -> Int[Tensor, "N"]:
    """Where each number below `size` begins in the sorted list."""
    counts = torch.bincount(numbers, minlength=size).cumsum(0)
    return torch.cat([counts.new_zeros(1), counts]).int()


@cache
def quiet() -> None:
    """Make a first sparse tensor, of which PyTorch says once that the layout is a beta."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.tensor([], dtype=torch.long), torch.tensor([]), size=(1, 1))


def sparse(starts: Tensor, columns: Tensor, values: Tensor, size: tuple[int, int]) -> Tensor:
    """A matrix in compressed rows."""
    quiet()
    return torch.sparse_csr_tensor(starts, columns, values, size=size, check_invariants=False)


def products(pairs: Pairs, a: Float[Tensor, "N K"], b: Float[Tensor, "M K"], scale: float) -> Float[Tensor, "E"]:
    """The scaled dot product of the vectors of each pair."""
    if a.device.type not in SPARSE:
        return (a[pairs.queries] * b[pairs.keys]).sum(-1) * scale
    empty = sparse(pairs.starts, pairs.keys, a.new_zeros(len(pairs.keys)), pairs.sizes)
    return torch.sparse.sampled_addmm(empty, a, b.mT, beta=0.0, alpha=scale).values()


def softmax(pairs: Pairs, scores: Float[Tensor, "E"]) -> Float[Tensor, "E"]:
    """The softmax over the pairs of each query."""
    if scores.device.type in SPARSE:
        starts = pairs.starts.long()
        top = torch.segment_reduce(scores, "max", offsets=starts, unsafe=True)
        weights = (scores - top[pairs.queries]).exp()
        total = torch.segment_reduce(weights, "sum", offsets=starts, unsafe=True)
    else:
        nothing = scores.new_zeros(pairs.sizes[0])
        top = nothing.scatter_reduce(0, pairs.queries, scores, "amax", include_self=False)
        weights = (scores - top[pairs.queries]).exp()
        total = nothing.index_add(0, pairs.queries, weights)
    return weights / total[pairs.queries]


class _Attend(torch.autograd.Function):
    """Mixed values of sparse pairs; neither pass keeps a vector for each pair."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, pairs: Pairs, scale: float
    ) -> Float[Tensor, "N C"]:
        scores = products(pairs, q, k, scale)
        weights = softmax(pairs, scores if bias is None else scores + bias)
        out = pairs.mixed(weights, v)
        ctx.save_for_backward(q, k, v, weights, out)
        ctx.pairs, ctx.scale = pairs, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (q, k, v, weights, out), pairs, scale = ctx.saved_tensors, ctx.pairs, ctx.scale
        grad = grad.contiguous()
        mean = (grad * out).sum(-1)  # Σ over a query's keys of weight · gradient of the weight
        inner = weights * (products(pairs, grad, v, 1.0) - mean[pairs.queries])
        dq, dk = pairs.mixed(inner, k) * scale, pairs.returned(inner, q) * scale
        return dq, dk, pairs.returned(weights, grad), inner if ctx.needs_input_grad[3] else None, None, None


@register_kernel("edges")
class Edges(Full):
    """softmax over the pairs that the mask allows: O(edges) time and memory for the mask `neighbours`, exact for all.

    Of any other mask the pairs are found in a matrix. Weights that are asked for are computed as a matrix, too.
    """

    drops = False

    def forward(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B G S K"],
        v: Float[Tensor, "B G S C"],
        *,
        mask: Mask | None = None,
        bias: Bias | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
        weights: bool = False,
    ) -> tuple[Float[Tensor, "B H T C"], Float[Tensor, "B H T S"] | None]:
        mask = everything() if mask is None else mask
        if weights or (q.is_meta and listed_edges(mask) is None):  # there is nothing to find the pairs in on `meta`
            return super().forward(q, k, v, mask=mask, bias=bias, scale=scale, weights=weights)
        (B, H, T, K), S = q.shape, k.shape[2]

        def found() -> tuple[Pairs, Pairs]:
            one = Pairs.of(mask, B, T, S, q.device)
            return one, one.repeated(H)

        one, pairs = mask.kept(("pairs", B, H, T, S, q.device), found)
        kind, shift = torch.promote_types(q.dtype, torch.float32), None
        if bias is not None:
            rows, i, j = one.queries // T, one.queries % T + bias.start, one.keys.long() % S
            # Keeping the pairs beside their values keeps the id from being given to others.
            shift = bias.kept(("pairs", id(one)), lambda: (one, bias.at_pairs(rows, i, j)))[1].to(kind).flatten()
        joined = [x.transpose(0, 1).flatten(0, 2).to(kind) for x in (q, repeat_heads(k, H), repeat_heads(v, H))]
        out = _Attend.apply(*joined, shift, pairs, K**-0.5 if scale is None else scale)
        return out.view(H, B, T, -1).transpose(0, 1).to(q.dtype), None
