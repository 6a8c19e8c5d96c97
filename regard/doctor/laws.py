"""The laws of models as functions of a case, a small model with example inputs; a broken law raises an AssertionError.

`sequence` names the input for each of whose tokens the model has an output, `padded` the one whose true lengths are
`inputs["lengths"]`. Laws that something has no influence at all are meant for cases in float64.
"""

import copy
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.data.sets.batches import IGNORE
from regard.doctor.case import LENGTHS, Case, Inputs, example

TOKENS = ("source", "target", "ids")
"""Inputs that hold token ids."""
BESIDE = {"ids": ("types",)}
"""Inputs with a value for each token of another one."""
MANY = 997
"""Tokens of a vocabulary where one token must not count."""


def close(got: Tensor, wanted: Tensor, what: str, tolerance: float = 1e-9) -> None:
    """Asserts that two tensors are equal up to a tolerance."""
    assert got.shape == wanted.shape, f"{what}: shapes {tuple(got.shape)} and {tuple(wanted.shape)}"
    error = (got - wanted).abs().max().item() if got.numel() else 0.0
    assert error <= tolerance, f"{what}: off by {error:.2e}, allowed are {tolerance:.0e}"


def differs(got: Tensor, other: Tensor, what: str) -> None:
    """Asserts that a change which must have an effect had one."""
    assert (got - other).abs().max().item() > 1e-6, f"{what}, but nothing changed: this law could not fail"


# ---- what a position may attend to ----------------------------------------------------------------------------------


def hides_the_future(case: Case) -> None:
    """Changing the tokens from position t on changes no output before t."""
    model, inputs, sequence, out = case.model, case.inputs, case.sequence, case.output
    ids = inputs[sequence]
    for t in range(1, ids.shape[1]):
        changed = ids.clone()
        changed[:, t:] = (changed[:, t:] + 1) % model.config.vocab_size
        other = model(**inputs | {sequence: changed})
        close(other[:, :t], out[:, :t], f"position {t} of {sequence!r} was changed, earlier outputs moved")
        differs(other[:, t:], out[:, t:], f"position {t} of {sequence!r} was changed")


def future_has_no_gradient(case: Case, *, past: bool = True) -> None:
    """The features at t have a gradient with respect to the tokens up to t, and exactly none beyond.

    Without `past` only their own token must have one: some kernels choose which keys they attend to.
    Every token is used once, so that the gradient of its embedding belongs to one position.
    """
    model, sequence, vocab = case.model, case.sequence, case.model.config.vocab_size
    unique = all_different({name: value[:1] for name, value in case.inputs.items()}, vocab)
    ids = unique[sequence][0]
    features = model.features(**unique)
    for t in range(len(ids)):
        reach = reach_of_tokens(model, (features[0, t] * direction(features)).sum(), vocab)
        assert reach[ids[t + 1 :]].eq(0).all(), f"position {t} of {sequence!r} has a gradient from its future"
        assert reach[ids[0 if past else t : t + 1]].gt(0).all(), (
            f"position {t} of {sequence!r} has no gradient from its past"
        )


def padding_changes_nothing(case: Case) -> None:
    """Neither the content nor the amount of padding changes the output."""
    inputs, padded, hidden = case.inputs, case.padded, padding_of(case)
    ids, vocab = inputs[padded], case.model.config.vocab_size

    def answer(**changes: Tensor) -> Tensor:
        out = case.model(**inputs | changes)
        return out[:, : ids.shape[1]][~hidden] if padded == case.sequence else out

    out = answer()
    junk = torch.where(hidden, (ids + 1) % vocab, ids)
    close(answer(**{padded: junk}), out, f"other tokens in the padding of {padded!r}")
    wider = {name: torch.cat([inputs[name], inputs[name][:, :3]], dim=1) for name in with_beside(inputs, padded)}
    close(answer(**wider), out, f"three more columns of padding in {padded!r}")
    changed = torch.where(hidden, ids, (ids + 1) % vocab)
    differs(answer(**{padded: changed}), out, f"the real tokens of {padded!r} were changed")


def padding_has_no_gradient(case: Case) -> None:
    """No gradient flows into padding, and some into every real token."""
    model, padded, vocab = case.model, case.padded, case.model.config.vocab_size
    hidden, unique = padding_of(case), all_different(case.inputs, vocab)
    features = model.features(**unique)
    features = features[~hidden] if features.shape[:2] == hidden.shape else features
    reach = reach_of_tokens(model, (features * direction(features)).sum(), vocab)
    assert reach[unique[padded][hidden]].eq(0).all(), f"a gradient flows into the padding of {padded!r}"
    assert reach[unique[padded][~hidden]].gt(0).all(), f"some real token of {padded!r} has no gradient"


@torch.no_grad()
def recordings_end(case: Case) -> None:
    """Neither what lies behind a recording's end nor its amount changes the output; alone it has that of the batch."""
    inputs, name, lengths = case.inputs, case.recorded, case.inputs["lengths"].tolist()
    x, out = inputs[name], case.own_vectors(case.output)
    assert min(lengths) < x.shape[1], "the example has no padding: this law could not fail"
    junk = x.clone()
    for row, length in zip(junk, lengths, strict=True):
        row[length:] = torch.randn_like(row[length:])
    wider = torch.cat([x, torch.ones_like(x[:, :7])], dim=1)
    for changed, what in ((junk, "noise behind the ends"), (wider, "seven more frames of padding")):
        for got, was in zip(case.own_vectors(case.model(**inputs | {name: changed})), out, strict=True):
            close(got, was, what)
    for row, length in enumerate(lengths):
        alone = {key: value[row : row + 1] for key, value in inputs.items()}
        alone[name] = alone[name][:, :length]
        close(case.model(**alone)[0], out[row], f"recording {row} by itself")
    shorter = inputs | {"lengths": inputs["lengths"] - 2}
    differs(
        case.own_vectors(case.model(**inputs))[0], case.model(**shorter)[0, : len(out[0])], "two frames were hidden"
    )


def batch_equals_single(case: Case) -> None:
    """A row computed alone, without its padding, is that row of the batch."""
    inputs, out = case.inputs, case.output
    for row in range(len(out)):
        alone = {name: value[row : row + 1] for name, value in inputs.items()}
        for name in with_beside(inputs, case.padded) if case.padded else ():
            alone[name] = alone[name][:, : int(inputs["lengths"][row])]
        got = case.model(**alone)
        same = out[row : row + 1, : got.shape[1]] if out.dim() > 1 else out[row : row + 1]
        close(got, same, f"row {row} by itself")


def order_is_unknown(case: Case) -> None:
    """Without positions, permuted tokens have permuted vectors."""
    case = Case(partial(case.build, position="none"))
    assert case.encoder is not None
    ids = case.inputs[case.padded]
    order, full = torch.randperm(ids.shape[1]), torch.full_like(case.inputs["lengths"], ids.shape[1])
    differs(ids[:, order].double(), ids.double(), "the tokens were permuted")
    close(case.encoder(ids[:, order], full), case.encoder(ids, full)[:, order], "permuted tokens")


# ---- decoding -------------------------------------------------------------------------------------------------


@torch.no_grad()
def cached_equals_uncached(case: Case) -> None:
    """`prefill` and any number of `step`s return the logits of one pass over the whole sequence."""
    model, rest, out = case.model, dict(case.inputs), case.output
    ids = rest.pop(case.sequence)
    for begin in {1, 2, ids.shape[1]}:
        cache = model.new_cache(ids.shape[1])
        close(model.prefill(ids[:, :begin], cache, **rest), out[:, begin - 1], f"prefill of {begin}")
        assert cache.length == begin, f"the cache reports length {cache.length} after a prefill of {begin}"
        for t in range(begin, ids.shape[1]):
            close(model.step(ids[:, t], cache), out[:, t], f"step {t} after a prefill of {begin}")


@torch.no_grad()
def beams_equal_copies(case: Case, beams: int = 2) -> None:
    """Rows of a cache can be repeated, reordered and dropped; each continues as if it had been alone."""
    model, rest = case.model, dict(case.inputs)
    ids = rest.pop(case.sequence)
    B, T = ids.shape
    cache = model.new_cache(T)
    model.prefill(ids[:, :1], cache, **rest)
    rows = torch.arange(B).repeat_interleave(beams)
    cache.select(rows)
    tails = torch.randint(model.config.vocab_size, (B * beams, T - 1))
    written = torch.cat([ids[rows, :1], tails], dim=1)
    out = model(**{name: value[rows] for name, value in rest.items()}, **{case.sequence: written})
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


def every_parameter_learns(case: Case) -> None:
    """Every parameter receives a finite gradient that is not zero."""
    case.model.zero_grad(set_to_none=True)
    gets_gradients(case.model, case.model(**case.inputs))


def gets_gradients(module: nn.Module, out: Tensor) -> None:
    """Asserts that each parameter has a finite gradient that is not zero from an output."""
    (out * direction(out)).sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, f"{name} takes no part"
        assert parameter.grad.isfinite().all(), f"{name} has a gradient that is not finite"
        assert parameter.grad.abs().max() > 0, f"{name} has no gradient"


def stays_finite(dtype: torch.dtype, case: Case) -> None:
    """Outputs and gradients are finite in a number type, and outputs keep it."""
    case = case.to(dtype)
    out = case.model(**case.inputs)
    assert out.dtype == dtype, f"{dtype} in, {out.dtype} out"
    assert out.isfinite().all(), f"outputs are not finite in {dtype}"
    out.float().square().mean().backward()
    for name, parameter in case.model.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), f"{name} has a gradient not finite in {dtype}"


@torch.no_grad()
def starts_at_chance(case: Case) -> None:
    """Before training all tokens (or labels) are about equally probable: the loss, averaged over all of them, is ln V.

    Logits of unit variance add ½ to it (E ln Σ exp of normal logits is ln V + ½), hence the tolerance.
    A tied output gives the token that was just read a logit that is √dim higher; among MANY it does not count.
    """
    model = case.build(**({"vocab_size": MANY} if case.sequence else {}))
    logits = model(**example(model, rows=len(LENGTHS)))
    expected, loss = math.log(logits.shape[-1]), -logits.log_softmax(-1).mean().item()
    assert abs(loss - expected) < 0.6, f"the loss starts at {loss:.2f}, chance is {expected:.2f}"


def one_batch_can_be_overfitted(case: Case, *, steps: int = 300, rates: Sequence[float] = (0.02, 0.005)) -> None:
    """Adam brings the loss on one batch to nearly zero at some rate: cross-entropy, or squared error of numbers."""
    inputs, shape, targets = case.inputs, case.output.shape, torch.randn(case.output.shape)
    if case.vocabulary:  # two rows that begin alike could not have different targets
        inputs = all_different(inputs, case.model.config.vocab_size)
    if len(shape) > 1 and shape[-1] > 1:
        targets = torch.randint(shape[-1], shape[:-1])
    if case.padded and case.padded == case.sequence:
        targets[padding_of(case)] = IGNORE
    elif case.recorded and hasattr(case.model, "out_lengths"):  # vectors behind a recording's end may be all alike
        counts = case.model.out_lengths(case.inputs["lengths"])
        targets[torch.arange(targets.shape[1]) >= counts[:, None]] = IGNORE
    loss = math.inf
    for rate in rates:
        for loss in descent(case.model, lambda model: error_of(model(**inputs), targets), rate, steps):
            if loss < 0.05:
                return
    raise AssertionError(f"after {steps} steps on one batch the loss is {loss:.3f}")


def descent(model: nn.Module, loss_of: Callable[[nn.Module], Tensor], rate: float, steps: int) -> Iterator[float]:
    """Trains a copy of a model by Adam; yields the loss before each step."""
    learner = copy.deepcopy(model).train()
    optimizer = torch.optim.Adam(learner.parameters(), lr=rate)
    for _ in range(steps):
        loss = loss_of(learner)
        yield loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def error_of(out: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy for targets that are classes, squared error for numbers."""
    if targets.is_floating_point():
        return F.mse_loss(out, targets.to(out))
    return F.cross_entropy(out.flatten(0, -2).float(), targets.flatten())


def saved_is_loaded(case: Case) -> None:
    """A model that is saved and loaded has the same class, config, parameters and outputs."""
    assert case.store is not None
    model, (save, load) = case.model, case.store
    with tempfile.TemporaryDirectory() as directory:
        save(model, Path(directory))
        again = load(Path(directory)).eval()
    assert type(again) is type(model) and again.config == model.config
    kept, loaded = model.state_dict(), again.state_dict()
    assert kept.keys() == loaded.keys(), f"names differ: {kept.keys() ^ loaded.keys()}"
    for name in kept:
        assert kept[name].dtype == loaded[name].dtype and torch.equal(kept[name], loaded[name]), f"{name} changed"
    shared, shared_again = (len(set(map(id, m.parameters()))) for m in (model, again))
    assert shared == shared_again, "matrices that were tied are not tied any more, or the reverse"
    assert torch.equal(model(**case.inputs), again(**case.inputs)), "the loaded model answers differently"


# ---- small parts ----------------------------------------------------------------------------------------------


def with_beside(inputs: Inputs, sequence: str) -> list[str]:
    """The names of a sequence and of the inputs with a value for each of its tokens."""
    return [sequence, *(name for name in BESIDE.get(sequence, ()) if name in inputs)]


def padding_of(case: Case) -> Tensor:
    """True where the padded sequence is padding."""
    hidden = torch.arange(case.inputs[case.padded].shape[1]) >= case.inputs["lengths"][:, None]
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
