"""The laws of models as functions of a model and example inputs; a broken law raises an AssertionError.

`inputs` are the keyword arguments of `model.forward`. `sequence` names the one for each of whose tokens the model has
an output, `padded` the one whose true lengths are `inputs["lengths"]`. Exact laws are meant for float64.
"""

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Inputs = dict[str, Tensor]
TOKENS = ("source", "target", "ids")
"""Inputs that hold token ids."""
BESIDE = {"ids": ("types",)}
"""Inputs with a value for each token of another one."""


def close(got: Tensor, wanted: Tensor, what: str, tolerance: float = 1e-9) -> None:
    """Asserts that two tensors are equal up to a tolerance."""
    assert got.shape == wanted.shape, f"{what}: shapes {tuple(got.shape)} and {tuple(wanted.shape)}"
    error = (got - wanted).abs().max().item() if got.numel() else 0.0
    assert error <= tolerance, f"{what}: off by {error:.2e}, allowed are {tolerance:.0e}"


def differs(got: Tensor, other: Tensor, what: str) -> None:
    """Asserts that a change which must have an effect had one."""
    assert (got - other).abs().max().item() > 1e-6, f"{what}, but nothing changed: this law could not fail"


# ---- what a position may attend to ----------------------------------------------------------------------------------


def hides_the_future(model: Any, inputs: Inputs, sequence: str) -> None:
    """Changing the tokens from position t on changes no output before t."""
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

    Without `past` only their own token must have one: some kernels choose which keys they attend to.
    Every token is used once, so that the gradient of its embedding belongs to one position.
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


def padding_changes_nothing(model: Any, inputs: Inputs, padded: str, sequence: str | None) -> None:
    """Neither the content nor the amount of padding changes the output."""
    ids, vocab = inputs[padded], model.config.vocab_size
    hidden = padding_of(inputs, padded)

    def answer(**changes: Tensor) -> Tensor:
        out = model(**inputs | changes)
        return out[:, : ids.shape[1]][~hidden] if padded == sequence else out

    out = answer()
    junk = torch.where(hidden, (ids + 1) % vocab, ids)
    close(answer(**{padded: junk}), out, f"other tokens in the padding of {padded!r}")
    wider = {name: torch.cat([inputs[name], inputs[name][:, :3]], dim=1) for name in with_beside(inputs, padded)}
    close(answer(**wider), out, f"three more columns of padding in {padded!r}")
    changed = torch.where(hidden, ids, (ids + 1) % vocab)
    differs(answer(**{padded: changed}), out, f"the real tokens of {padded!r} were changed")


def padding_has_no_gradient(model: Any, inputs: Inputs, padded: str, sequence: str | None) -> None:
    """No gradient flows into padding, and some into every real token."""
    vocab = model.config.vocab_size
    hidden, unique = padding_of(inputs, padded), all_different(inputs, vocab)
    features = model.features(**unique)
    features = features[~hidden] if features.shape[:2] == hidden.shape else features
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
        same = out[row : row + 1, : got.shape[1]] if out.dim() > 1 else out[row : row + 1]
        close(got, same, f"row {row} by itself")


def order_is_unknown(encode, ids: Tensor, lengths: Tensor) -> None:
    """Without positions, permuted tokens have permuted vectors (`encode` returns a vector for each token)."""
    order = torch.randperm(ids.shape[1])
    full = torch.full_like(lengths, ids.shape[1])
    differs(ids[:, order].double(), ids.double(), "the tokens were permuted")
    close(encode(ids[:, order], full), encode(ids, full)[:, order], "permuted tokens")


# ---- decoding -------------------------------------------------------------------------------------------------


def cached_equals_uncached(model: Any, inputs: Inputs, sequence: str) -> None:
    """`prefill` and any number of `step`s return the logits of one pass over the whole sequence."""
    ids, rest = split(inputs, sequence)
    out = model(**inputs)
    for begin in {1, 2, ids.shape[1]}:
        cache = model.new_cache(ids.shape[1])
        close(model.prefill(ids[:, :begin], cache, **rest), out[:, begin - 1], f"prefill of {begin}")
        assert cache.length == begin, f"the cache reports length {cache.length} after a prefill of {begin}"
        for t in range(begin, ids.shape[1]):
            close(model.step(ids[:, t], cache), out[:, t], f"step {t} after a prefill of {begin}")


def beams_equal_copies(model: Any, inputs: Inputs, sequence: str, beams: int = 2) -> None:
    """Rows of a cache can be repeated, reordered and dropped; each continues as if it had been alone."""
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
    """Every parameter receives a finite gradient that is not zero."""
    model.zero_grad(set_to_none=True)
    out = model(**inputs)
    (out * direction(out)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} takes no part"
        assert parameter.grad.isfinite().all(), f"{name} has a gradient that is not finite"
        assert parameter.grad.abs().max() > 0, f"{name} has no gradient"


def stays_finite(model: Any, inputs: Inputs, dtype: torch.dtype) -> None:
    """Outputs and gradients are finite in a number type, and outputs keep it."""
    model.to(dtype).zero_grad(set_to_none=True)
    out = model(**inputs)
    assert out.dtype == dtype, f"{dtype} in, {out.dtype} out"
    assert out.isfinite().all(), f"outputs are not finite in {dtype}"
    out.float().square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), f"{name} has a gradient not finite in {dtype}"


def starts_at_chance(model: Any, inputs: Inputs) -> None:
    """Before training all tokens (or labels) are about equally probable: the loss, averaged over all of them, is ln V.

    Logits of unit variance add ½ to it (E ln Σ exp of normal logits is ln V + ½), hence the tolerance.
    """
    with torch.no_grad():
        logits = model(**inputs)
    expected, loss = math.log(logits.shape[-1]), -logits.log_softmax(-1).mean().item()
    assert abs(loss - expected) < 0.6, f"the loss starts at {loss:.2f}, chance is {expected:.2f}"


def one_batch_can_be_overfitted(
    model: Any, inputs: Inputs, targets: Tensor, *, steps: int = 300, rates: Sequence[float] = (0.02, 0.005)
) -> None:
    """Adam brings the loss on one batch to nearly zero at some rate: cross-entropy, or squared error of numbers."""
    loss = math.inf
    for rate in rates:
        learner = copy.deepcopy(model).train()
        optimizer = torch.optim.Adam(learner.parameters(), lr=rate)
        for _ in range(steps):
            out = learner(**inputs)
            error = (
                F.mse_loss(out, targets)
                if targets.is_floating_point()
                else F.cross_entropy(out.flatten(0, -2), targets.flatten())
            )
            loss = error.item()
            if loss < 0.05:
                return
            optimizer.zero_grad()
            error.backward()
            optimizer.step()
    raise AssertionError(f"after {steps} steps on one batch the loss is {loss:.3f}")


def saved_is_loaded(model: Any, inputs: Inputs, save, load, directory) -> None:
    """`save(model, directory)`, then `load(directory)` returns the same class, config, parameters and outputs."""
    save(model, directory)
    again = load(directory).eval()
    assert type(again) is type(model) and again.config == model.config
    kept, loaded = model.state_dict(), again.state_dict()
    assert kept.keys() == loaded.keys(), f"names differ: {kept.keys() ^ loaded.keys()}"
    for name in kept:
        assert kept[name].dtype == loaded[name].dtype and torch.equal(kept[name], loaded[name]), f"{name} changed"
    shared, shared_again = (len(set(map(id, m.parameters()))) for m in (model, again))
    assert shared == shared_again, "matrices that were tied are not tied any more, or the reverse"
    assert torch.equal(model(**inputs), again(**inputs)), "the loaded model answers differently"


# ---- small parts ----------------------------------------------------------------------------------------------


def split(inputs: Inputs, sequence: str) -> tuple[Tensor, Inputs]:
    """A sequence, and all other inputs."""
    return inputs[sequence], {name: value for name, value in inputs.items() if name != sequence}


def with_beside(inputs: Inputs, sequence: str) -> list[str]:
    """The names of a sequence and of the inputs with a value for each of its tokens."""
    return [sequence, *(name for name in BESIDE.get(sequence, ()) if name in inputs)]


def padding_of(inputs: Inputs, padded: str) -> Tensor:
    """True where a sequence is padding."""
    hidden = torch.arange(inputs[padded].shape[1]) >= inputs["lengths"][:, None]
    assert hidden.any() and not hidden.all(), "the example has no padding: this law could not fail"
    return hidden


def direction(x: Tensor) -> Tensor:
    """Fixed noise over the last axis, since a plain sum after a norm has no gradient at all."""
    return torch.randn(x.shape[-1], generator=torch.Generator().manual_seed(5)).to(x)


def all_different(inputs: Inputs, vocab: int) -> Inputs:
    """Inputs of the same shapes with a token of its own at every position of every sequence of ids."""
    sequences = [name for name in inputs if name in TOKENS]
    needed = sum(inputs[name].numel() for name in sequences)
    assert needed <= vocab, f"the example has {needed} tokens, the vocabulary only {vocab}"
    fresh = iter(torch.randperm(vocab)[:needed].split([inputs[name].numel() for name in sequences]))
    return {name: next(fresh).view_as(value) if name in sequences else value for name, value in inputs.items()}


def reach_of_tokens(model: Any, scalar: Tensor, vocab: int) -> Tensor:
    """The size of the gradient that each token receives, over all matrices with a row for each token."""
    tables = [p for p in model.parameters() if p.dim() == 2 and len(p) == vocab]
    grads = torch.autograd.grad(scalar, tables, retain_graph=True, allow_unused=True)
    return torch.stack([grad.abs().sum(1) for grad in grads if grad is not None]).sum(0)
