"""Reversible stacks: the layers undone, the gradients of ordinary autograd, and memory that stays as depth grows."""

import copy
import os
import subprocess
import sys

import pytest
import torch

from regard.doctor.laws import close, differs, direction
from regard.hub.maps.gpt2 import GPT2
from regard.inside.capture.states import stack_states
from regard.inside.capture.weights import look
from regard.models import GPT, Bert, BertConfig, GPTConfig
from regard.nn.block import BlockConfig
from regard.nn.lora import add_low_rank
from regard.nn.masks import causal, padding
from regard.nn.reversible import Streams, Tape
from regard.nn.stack import Stack, build_position
from tests.cost.test_activation_memory import kept_bytes

B, T, S, D = 2, 7, 5, 12
SIZES = dict(dim=D, heads=3, ffn_dim=29, max_len=31, reversible=True)
CASES = {
    "plain": dict(dropout=0.0),
    "dropout everywhere": dict(dropout=0.3, attention_dropout=0.2, ffn_dropout=0.1),
    "rotary": dict(position="rotary", heads=6, kv_heads=2, norm="rms", activation="swiglu", bias=False),
    "alibi": dict(position="alibi"),
    "relative": dict(position="relative", attention_dropout=0.2),
    "general, window": dict(kernel="window:radius=2,chunk=3", cross_kernel="general"),
}
every_case = pytest.mark.parametrize("changes", CASES.values(), ids=CASES)


def stack(*, depth=3, cross=True, shared=False, **changes):
    config = BlockConfig(**SIZES | changes)
    made = Stack(
        config, build_position(config), depth=depth, causal=True, cross=cross, final_norm=True, shared=shared
    ).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=0.3)
    return made


def vectors(length=T):
    return torch.randn(B, length, D, dtype=torch.float64, requires_grad=True)


def rules():
    return dict(mask=causal(), context_mask=padding(torch.tensor([S, 2])))


def by_hand(stack, x, context, *, mask, context_mask):
    """The same with ordinary autograd, each part with random numbers of its own."""
    bias, seed, a, b, place = stack.position.bias(causal=True), int(torch.randint(1 << 62, ())), x, x, 0
    for block in stack.blocks:
        layers = {"attention": lambda y, block=block: block.attention(y, mask=mask, bias=bias)}
        if block.cross is not None:
            layers["cross"] = lambda y, block=block: block.cross(y, context, mask=context_mask)
        for name, layer in (layers | {"feedforward": block.feedforward}).items():
            with torch.random.fork_rng([]):
                torch.manual_seed(seed + place)
                a, b, place = b, a + block.drops[name](layer(block.norms[name](b))), place + 1
    return stack.norm((a + b) / 2)


def gradients(run, stack, x, context, how):
    """The output, and the gradients of the inputs and of all parameters, by name."""
    torch.manual_seed(3)
    out = run(x, context, **how)
    named = {"x": x, "context": context} | dict(stack.named_parameters())
    named = {name: one for name, one in named.items() if one is not None and one.requires_grad}
    found = torch.autograd.grad((out * direction(out)).sum(), list(named.values()))
    return out, dict(zip(named, found, strict=True))


def compare(made, x, context, how, tolerance):
    wanted, expected = gradients(lambda *args, **kwargs: by_hand(made, *args, **kwargs), made, x, context, how)
    out, got = gradients(made, made, x, context, how)
    close(out, wanted, "the output", tolerance)
    assert got.keys() == expected.keys()
    for name in expected:
        error, size = (got[name] - expected[name]).norm(), expected[name].norm()
        assert error <= tolerance * size, f"the gradient of {name} is off by {error / size:.1e} of itself"


@every_case
@pytest.mark.parametrize("cross", [False, True])
def test_gradients_are_those_of_ordinary_autograd(changes, cross):
    made, x, context = stack(cross=cross, **changes), vectors(), vectors(S) if cross else None
    how = rules() if cross else dict(mask=causal(), context_mask=None)
    compare(made, x, context, how, 1e-10)
    made.float()
    x, context = (None if one is None else one.detach().float().requires_grad_() for one in (x, context))
    compare(made, x, context, how, 1e-4)


def test_one_block_at_every_depth():
    compare(stack(shared=True, depth=4, dropout=0.2, position="relative"), vectors(), vectors(S), rules(), 1e-10)


def test_a_deep_stack_in_float32():
    made, x = stack(cross=False, depth=24).float(), vectors().detach().float().requires_grad_()
    compare(made, x, None, dict(mask=causal(), context_mask=None), 1e-4)


@every_case
def test_layers_are_undone(changes):
    made, x, context = stack(**changes), vectors(), vectors(S)
    bias = made.position.bias(causal=True)
    tape = Tape(made, x, bias, [context, *made.position.parameters()])
    y, passed = Streams(x, x, tape), []
    for block in made.blocks:
        passed.append(y)
        y = block(y, context, **rules(), bias=bias)
    differs(y.a, y.b, "the two streams part")
    tape.rewind((y.a, y.b))
    for before in reversed(passed):
        for _ in range(3):
            tape.undo(len(tape.parts) - 1, torch.zeros_like(x))
            tape.parts.pop()
        close(tape.streams[0], before.a, "the first stream before a layer", 1e-12)
        close(tape.streams[1], before.b, "the second stream before a layer", 1e-12)


def test_without_gradients_and_with_a_cache_it_is_the_same():
    made, x, context = stack(position="relative").eval(), vectors(), vectors(S)
    out = made(x, context, **rules())
    with torch.no_grad():
        assert torch.equal(made(x, context, **rules()), out)
    alone = stack(cross=False, position="relative").eval()
    cache = alone.new_cache(T)
    parts = [alone(part, mask=causal(), cache=cache) for part in x.split([3, 1, 3], dim=1)]
    close(torch.cat(parts, dim=1), alone(x, mask=causal()), "in parts")


def test_random_numbers_outside_go_on_as_they_were():
    made, x = stack(cross=False, dropout=0.5), vectors()
    torch.manual_seed(5)
    out = made(x, mask=causal())
    after = torch.get_rng_state()
    out.sum().backward()
    assert torch.equal(torch.get_rng_state(), after)
    torch.manual_seed(5)
    torch.randint(1 << 62, ())
    assert torch.equal(torch.get_rng_state(), after)
    assert not torch.equal(made(x, mask=causal()), out)


# ---- ways to train --------------------------------------------------------------------------------------------


def test_gradients_add_up_and_a_graph_can_be_kept():
    made, x = stack(cross=False), vectors()
    torch.manual_seed(3)
    out = made(x, mask=causal())
    loss = (out * direction(out)).sum()
    once = torch.autograd.grad(loss, list(made.parameters()), retain_graph=True)
    loss.backward(retain_graph=True)
    loss.backward()
    for (name, parameter), grad in zip(made.named_parameters(), once, strict=True):
        close(parameter.grad, 2 * grad, f"two backward passes, {name}")
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_frozen_weights_and_detours():
    model = GPT(GPTConfig(vocab_size=17, depth=3, **SIZES)).double()
    add_low_rank(model, 2)
    stack, x = model.decoder, vectors().detach()  # nothing before the stack learns, either
    with torch.no_grad():
        for name, parameter in stack.named_parameters():
            parameter.normal_(std=0.3)
            parameter.requires_grad_("narrow" in name and "blocks.0" not in name)
    _, got = gradients(stack, stack, x, None, dict(mask=causal()))
    how = dict(mask=causal(), context_mask=None)
    _, wanted = gradients(lambda *args, **kwargs: by_hand(stack, *args, **kwargs), stack, x, None, how)
    assert len(got) == 4
    for name in wanted:
        close(got[name], wanted[name], name, 1e-10)
    stack(x, mask=causal()).sum().backward()
    assert all((parameter.grad is not None) == parameter.requires_grad for parameter in stack.parameters())


@pytest.mark.parametrize("inside", [True, False])
def test_autocast(inside):
    """The second run has the number format of the first, also if backward() comes after its block, or within."""
    made = stack(cross=False, dropout=0.0).float()
    x = vectors().detach().float().requires_grad_()

    def learn(run):
        made.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = run(x).square().mean()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        return [parameter.grad for parameter in made.parameters()]

    wanted = learn(lambda x: by_hand(made, x, None, mask=causal(), context_mask=None))
    for got, grad in zip(learn(lambda x: made(x, mask=causal())), wanted, strict=True):
        assert got.dtype == torch.float32
        assert (got - grad).norm() < 0.05 * grad.norm()


def test_what_changed_before_the_way_back_is_noticed():
    made, x = stack(cross=False, dropout=0.1), vectors()
    loss = made(x, mask=causal()).sum()
    made.eval()
    with pytest.raises(ValueError, match="from train.. to eval.., or back, before backward"):
        loss.backward()
    loss = made(x, mask=causal()).sum()
    with torch.no_grad():
        made.blocks[1].feedforward.up.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_norms_behind_the_sum_cannot_be_undone():
    with pytest.raises(ValueError, match="got norm_place=post; use norm_place=pre"):
        BertConfig(reversible=True)


# ---- who looks on ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
def test_looking_sees_each_layer_once(shared):
    config = BertConfig(
        vocab_size=17, depth=3, norm_place="pre", task="none", pooler=False, shared=shared, **SIZES | dict(dropout=0.2)
    )
    model, inputs = Bert(config), dict(ids=torch.randint(17, (B, T)), lengths=torch.tensor([T, 3]))
    torch.manual_seed(3)
    unseen = model(**inputs)
    torch.manual_seed(3)
    with look(model) as seen:
        out = model(**inputs)
        out.sum().backward()
    assert torch.equal(out, unseen)
    assert seen.names == [f"encoder.blocks.{i}.attention" for i in range(3)]
    assert all(seen.attention[name].shape == (B, 3, T, T) for name in seen.names)
    model.eval()
    with look(model) as plain, torch.no_grad():
        model(**inputs)
    with look(model) as again:
        model(**inputs).sum().backward()
    for name in plain.names:
        assert torch.equal(plain.attention[name], again.attention[name])
    differs(plain.attention[0], plain.attention[1], "layers see differently")


def test_features_are_not_redrawn_by_the_second_run():
    made = stack(cross=False, kernel="performer:redraw=2,features=8")
    kernel = made.blocks[1].attention.kernel
    for passes in (1, 2, 3):
        out = made(vectors(), mask=causal())
        drawn = kernel.directions
        out.sum().backward()
        assert kernel.passes == passes and kernel.directions is drawn


@pytest.mark.parametrize("shared", [False, True])
def test_features_redrawn_before_the_way_back_are_noticed(shared):
    made = stack(cross=False, kernel="performer:redraw=1,features=8", shared=shared)
    out = made(vectors(), mask=causal())
    if not shared:  # one block at every depth is drawn anew within a single pass
        made(vectors(), mask=causal())
    with pytest.raises(ValueError, match="redrawn before backward.*redraw=0"):
        out.sum().backward()


@torch.no_grad()
def test_what_leaves_a_block_is_the_mean_of_the_streams():
    made, x = stack(cross=False, dropout=0.0), vectors()
    with stack_states(made) as states:
        made(x, mask=causal())
    first = copy.copy(made)
    first.blocks, first.norm = made.blocks[:1], torch.nn.Identity()
    assert len(states) == 4 and torch.equal(states[1], first(x, mask=causal()))


def test_no_foreign_layout_has_two_streams():
    sizes = dict(position="learned", bias=True)
    assert GPT2.misfits(GPTConfig(**sizes)) == []
    assert GPT2.misfits(GPTConfig(**sizes, reversible=True)) == ["reversible=True would have to be False"]


# ---- memory ---------------------------------------------------------------------------------------------------


def test_autograd_keeps_the_same_at_every_depth():
    sizes = dict(vocab_size=61, dim=48, heads=4, ffn_dim=112, max_len=200)
    for position in ("rotary", "relative", "alibi"):
        kept = {
            depth: kept_bytes(GPT(GPTConfig(**sizes, position=position, reversible=True, depth=depth)))
            for depth in (3, 9)
        }
        assert kept[3] == kept[9]
        ordinary = kept_bytes(GPT(GPTConfig(**sizes, position=position, depth=3)))
        assert kept[3] < ordinary / 4


PEAK = """
import ctypes, sys, torch
from regard.models import GPT, GPTConfig
depth, reversible = int(sys.argv[1]), sys.argv[2] == "reversible"
model = GPT(GPTConfig(vocab_size=64, dim=192, heads=4, ffn_dim=768, depth=depth, reversible=reversible))
optimizer = torch.optim.AdamW(model.parameters())
def learn(batch, length):
    model(torch.randint(64, (batch, length))).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
def status(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key))
learn(1, 8)  # weights, gradients and moments are there
ctypes.CDLL(None).malloc_trim(0)
open("/proc/self/clear_refs", "w").write("5")  # the highest mark from here on
before = status("VmRSS")
learn(8, 256)
print(status("VmHWM") - before)
"""


def peak(depth, kind):
    """Kilobytes of one step of training, beside weights, gradients and moments."""
    # A fixed threshold: otherwise glibc keeps what is freed, and the mark shows how the heap was cut up.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    run = subprocess.run(
        [sys.executable, "-c", PEAK, str(depth), kind], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return int(run.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux's marks of memory")
def test_peak_memory_does_not_grow_with_depth():
    shallow, deep = peak(6, "reversible"), peak(24, "reversible")
    assert deep <= 1.2 * shallow, f"{deep} kB at depth 24, {shallow} kB at depth 6"
    assert peak(6, "ordinary") > 3 * shallow
