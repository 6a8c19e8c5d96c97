"""The laws as plain functions of a model and example inputs; what is broken is raised as an AssertionError.

`inputs` are the keyword arguments of `model.forward`. `sequence` names the one that is written from left to
right, `padded` the one whose true lengths are `inputs["lengths"]`; where that is `ids`, the model answers for each of
its tokens, and what it says about padding means nothing. Exact laws are meant for float64.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Inputs = dict[str, Tensor]
TOKENS = ("source", "target", "ids")
"""Inputs that hold tokens."""
BESIDE = {"ids": ("types",)}
"""Inputs that say something about each token of another one."""


def close(got: Tensor, wanted: Tensor, what: str, tolerance: float = 1e-9) -> None:
    assert got.shape == wanted.shape, f"{what}: shapes {tuple(got.shape)} and {tuple(wanted.shape)}"
    error = (got - wanted).abs().max().item() if got.numel() else 0.0
    assert error <= tolerance, f"{what}: off by {error:.2e}, allowed are {tolerance:.0e}"


def differs(got: Tensor, other: Tensor, what: str) -> None:
    assert (got - other).abs().max().item() > 1e-6, f"{what}, but nothing changed: this law could not fail"


# ---- what a position may see ----------------------------------------------------------------------------------


def hides_the_future(model: Any, inputs: Inputs, sequence: str) -> None:
    """Other tokens from position t on change no output before t."""
    ids = inputs[sequence]
    out = model(**inputs)
    for t in range(1, ids.shape[1]):
        changed = ids.clone()
        changed[:, t:] = (changed[:, t:] + 1) % model.config.vocab_size
        other = model(**inputs | {sequence: changed})
        close(other[:, :t], out[:, :t], f"position {t} of {sequence!r} was changed, earlier outputs moved")
        differs(other[:, t:], out[:, t:], f"position {t} of {sequence!r} was changed")


def future_has_no_gradient(model: Any, inputs: Inputs, sequence: str, *, past: bool = True) -> None:
    """The features at t have a gradient with respect to the tokens up to t, and exactly none beyond.

    Without `past` only their own token must have one: a kernel may choose what it looks at.
    Every token is used once, so that its row of the embedding tells which position a gradient came through.
    """
    vocab = model.config.vocab_size
    unique = all_different({k: v[:1] for k, v in inputs.items()}, vocab)
    ids = unique[sequence][0]
    features = model.features(**unique)
    for t in range(len(ids)):
        reach = reach_of_tokens(model, (features[0, t] * direction(features)).sum(), vocab)
        assert reach[ids[t + 1 :]].eq(0).all(), f"position {t} of {sequence!r} has a gradient from its future"
        assert reach[ids[0 if past else t : t + 1]].gt(0).all(), (
            f"position {t} of {sequence!r} has no gradient from its past"
        )


def padding_changes_nothing(model: Any, inputs: Inputs, padded: str) -> None:
    """Neither what is in the padding nor how much there is of it; and nothing flows back into it."""
    ids, lengths, vocab = inputs[padded], inputs["lengths"], model.config.vocab_size
    hidden = torch.arange(ids.shape[1]) >= lengths[:, None]
    assert hidden.any() and not hidden.all(), "the example has no padding: this law could not fail"

    def answer(**changes: Tensor) -> Tensor:
        return of_real_tokens(model(**inputs | changes), hidden, padded)

    out = answer()
    junk = torch.where(hidden, (ids + 1) % vocab, ids)
    close(answer(**{padded: junk}), out, f"other tokens in the padding of {padded!r}")
    wider = {name: torch.cat([inputs[name], inputs[name][:, :3]], dim=1) for name in with_beside(inputs, padded)}
    close(answer(**wider), out, f"three more columns of padding in {padded!r}")
    seen = torch.where(hidden, ids, (ids + 1) % vocab)
    differs(answer(**{padded: seen}), out, f"the real tokens of {padded!r} were changed")

    unique = all_different(inputs, vocab)
    features = of_real_tokens(model.features(**unique), hidden, padded)
    reach = reach_of_tokens(model, (features * direction(features)).sum(), vocab)
    assert reach[unique[padded][hidden]].eq(0).all(), f"a gradient flows into the padding of {padded!r}"
    assert reach[unique[padded][~hidden]].gt(0).all(), f"some real token of {padded!r} has no gradient"


def batch_equals_single(model: Any, inputs: Inputs, padded: str | None) -> None:
    """A row computed alone, without its padding, is that row of the batch."""
    out = model(**inputs)
    for row in range(len(out)):
        alone = {name: value[row : row + 1] for name, value in inputs.items()}
        if padded is not None:
            for name in with_beside(inputs, padded):
                alone[name] = alone[name][:, : int(inputs["lengths"][row])]
        got = model(**alone)
        close(got, out[row : row + 1, : got.shape[1]], f"row {row} by itself")


def order_is_unknown(encode, ids: Tensor, lengths: Tensor) -> None:
    """Without positions, permuted in = permuted out (`encode` gives a vector for each token)."""
    order = torch.randperm(ids.shape[1])
    full = torch.full_like(lengths, ids.shape[1])
    differs(ids[:, order].double(), ids.double(), "the tokens were permuted")
    close(encode(ids[:, order], full), encode(ids, full)[:, order], "permuted tokens")


# ---- decoding -------------------------------------------------------------------------------------------------


def cached_equals_uncached(model: Any, inputs: Inputs, sequence: str) -> None:
    """`prefill` and any number of `step`s give the scores that one pass over everything gives."""
    ids, rest = split(inputs, sequence)
    out = model(**inputs)
    for begin in {1, 2, ids.shape[1]}:
        cache = model.new_cache(ids.shape[1])
        close(model.prefill(ids[:, :begin], cache, **rest), out[:, begin - 1], f"prefill of {begin}")
        assert cache.length == begin, f"the cache says length {cache.length} after a prefill of {begin}"
        for t in range(begin, ids.shape[1]):
            close(model.step(ids[:, t], cache), out[:, t], f"step {t} after a prefill of {begin}")


def beams_equal_copies(model: Any, inputs: Inputs, sequence: str, beams: int = 2) -> None:
    """Rows of a cache may be repeated, reordered and dropped; each goes on as if it had been alone."""
    ids, rest = split(inputs, sequence)
    B, T = ids.shape
    cache = model.new_cache(T)
    model.prefill(ids[:, :1], cache, **rest)
    rows = torch.arange(B).repeat_interleave(beams)
    cache.select(rows)
    tails = torch.randint(model.config.vocab_size, (B * beams, T - 1))
    written = torch.cat([ids[rows, :1], tails], dim=1)
    out = model(**{name: value[rows] for name, value in rest.items()}, **{sequence: written})
    close(model.step(written[:, 1], cache), out[:, 1], "a step of several beams")

    swapped = rows * beams + torch.arange(beams).flip(0).repeat(B)  # within each sentence
    cache.select(swapped)
    written, out = written[swapped], out[swapped]
    close(model.step(written[:, 2], cache), out[:, 2], "a step of reordered beams")

    kept = torch.tensor([B - 1, 0])  # sentences that are not finished
    keep = (kept[:, None] * beams + torch.arange(beams)).flatten()
    cache.select(keep, kept)
    close(model.step(written[keep, 3], cache), out[keep, 3], "a step after sentences were dropped")


# ---- learning -------------------------------------------------------------------------------------------------


def every_parameter_learns(model: Any, inputs: Inputs) -> None:
    model.zero_grad(set_to_none=True)
    out = model(**inputs)
    (out * direction(out)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} takes no part"
        assert parameter.grad.isfinite().all(), f"{name} has a gradient that is not finite"
        assert parameter.grad.abs().max() > 0, f"{name} has no gradient"


def stays_finite(model: Any, inputs: Inputs, dtype: torch.dtype) -> None:
    model.to(dtype).zero_grad(set_to_none=True)
    out = model(**inputs)
    assert out.dtype == dtype, f"{dtype} in, {out.dtype} out"
    assert out.isfinite().all(), f"outputs are not finite in {dtype}"
    out.float().square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), f"{name} has a gradient that is not finite in {dtype}"


def starts_at_chance(model: Any, inputs: Inputs) -> None:
    """Before training no token (or label) is likelier than another: the loss, averaged over all of them, is ln V.

    Scores of unit variance add ½ to it (E ln Σ exp of normal scores is ln V + ½), hence the tolerance.
    """
    with torch.no_grad():
        scores = model(**inputs)
    chance, loss = math.log(scores.shape[-1]), -scores.log_softmax(-1).mean().item()
    assert abs(loss - chance) < 0.6, f"the loss starts at {loss:.2f}, chance is {chance:.2f}"


def one_batch_can_be_overfitted(model: Any, inputs: Inputs, targets: Tensor, *, steps: int, lr: float) -> None:
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    first = loss = torch.tensor(math.inf)
    for step in range(steps):
        loss = F.cross_entropy(model(**inputs).flatten(0, -2), targets.flatten())
        if loss.item() < 0.05:
            return
        first = loss.detach() if step == 0 else first
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    raise AssertionError(
        f"after {steps} steps on one batch the loss is {loss.item():.3f}, it began at {first.item():.2f}"
    )


def saved_is_loaded(model: Any, inputs: Inputs, save, load, directory) -> None:
    """`save(model, directory)`, then `load(directory)`: the same class, config, parameters and outputs."""
    save(model, directory)
    again = load(directory).eval()
    assert type(again) is type(model) and again.config == model.config
    kept, found = model.state_dict(), again.state_dict()
    assert kept.keys() == found.keys(), f"names differ: {kept.keys() ^ found.keys()}"
    for name in kept:
        assert kept[name].dtype == found[name].dtype and torch.equal(kept[name], found[name]), f"{name} changed"
    shared, shared_again = (len(set(map(id, m.parameters()))) for m in (model, again))
    assert shared == shared_again, "matrices that were tied are not tied any more, or the reverse"
    assert torch.equal(model(**inputs), again(**inputs)), "the loaded model answers differently"


# ---- small parts ----------------------------------------------------------------------------------------------


def split(inputs: Inputs, sequence: str) -> tuple[Tensor, Inputs]:
    return inputs[sequence], {name: value for name, value in inputs.items() if name != sequence}


def with_beside(inputs: Inputs, sequence: str) -> list[str]:
    """A sequence and what is said about its tokens."""
    return [sequence, *(name for name in BESIDE.get(sequence, ()) if name in inputs)]


def of_real_tokens(out: Tensor, hidden: Tensor, padded: str) -> Tensor:
    """What a model says, without what it says about padding."""
    return out if padded != "ids" else out[:, : hidden.shape[1]][~hidden]


def direction(x: Tensor) -> Tensor:
    """Fixed noise over the last axis: a plain sum behind a norm has no gradient at all."""
    return torch.randn(x.shape[-1], generator=torch.Generator().manual_seed(5)).to(x)


def all_different(inputs: Inputs, vocab: int) -> Inputs:
    """The same shapes, with a token of its own at every position of every sequence of ids."""
    sequences = [name for name in inputs if name in TOKENS]
    needed = sum(inputs[name].numel() for name in sequences)
    assert needed <= vocab, f"the example has {needed} tokens, the vocabulary only {vocab}"
    fresh = iter(torch.randperm(vocab)[:needed].split([inputs[name].numel() for name in sequences]))
    return {name: next(fresh).view_as(value) if name in sequences else value for name, value in inputs.items()}


def reach_of_tokens(model: Any, scalar: Tensor, vocab: int) -> Tensor:
    """How much of a gradient each token receives, over all matrices with a row for each token."""
    tables = [p for p in model.parameters() if p.dim() == 2 and len(p) == vocab]
    grads = torch.autograd.grad(scalar, tables, retain_graph=True, allow_unused=True)
    return torch.stack([grad.abs().sum(1) for grad in grads if grad is not None]).sum(0)
