"""Stacks: one block's weights at every depth, and what such a stack saves."""

import copy

import pytest
import torch
from safetensors.torch import load_file

from regard.doctor.laws import close, differs
from regard.files import own_tensors
from regard.hub.checkpoint import load_model, save_model
from regard.models import Bert, BertConfig
from regard.nn.block import BlockConfig
from regard.nn.cache import Cache, KeyValues
from regard.nn.masks import causal, everything
from regard.nn.stack import Stack, build_position, zero_output_init

B, T, D, DEPTH = 2, 5, 12, 3
CONFIG = BlockConfig(dim=D, heads=3, ffn_dim=29, max_len=11, dropout=0.0, position="rotary")


def stack(*, shared, causal=False):
    made = Stack(CONFIG, build_position(CONFIG), depth=DEPTH, causal=causal, final_norm=True, shared=shared)
    return made.double()


def test_a_shared_stack_is_one_block_run_several_times():
    shared, x = stack(shared=True), torch.randn(B, T, D, dtype=torch.float64)
    y = x
    for _ in range(DEPTH):
        y = shared.blocks[0](y, mask=everything())
    close(shared(x, mask=everything()), shared.norm(y), "the same block, three times")
    apart = stack(shared=False)
    for block in apart.blocks:
        block.load_state_dict(shared.blocks[0].state_dict())
    apart.norm.load_state_dict(shared.norm.state_dict())
    close(apart(x, mask=everything()), shared(x, mask=everything()), "copies of that block")

    apart(x, mask=everything()).square().sum().backward()
    shared(x, mask=everything()).square().sum().backward()
    for name, parameter in shared.blocks[0].named_parameters():
        sums = sum(block.get_parameter(name).grad for block in apart.blocks)
        close(parameter.grad, sums, f"the gradient of {name} is the sum over depths")


def test_layers_of_a_shared_stack_remember_their_own_keys():
    shared, x = stack(shared=True, causal=True), torch.randn(B, T, D, dtype=torch.float64)
    cache = Cache([KeyValues(T) for _ in range(DEPTH)])
    parts = [shared(part, mask=causal(), cache=cache) for part in x.split([2, 1, 2], dim=1)]
    close(torch.cat(parts, dim=1), shared(x, mask=causal()), "in parts")
    assert not torch.equal(cache.own[0].k, cache.own[1].k)


@pytest.mark.parametrize("shared", [True, False])
def test_shared_weights_are_saved_and_loaded_once(tmp_path, shared):
    sizes = dict(vocab_size=17, dim=D, heads=3, ffn_dim=29, max_len=11, depth=DEPTH, task="mask", pooler=False)
    model = Bert(BertConfig(**sizes, shared=shared))
    names = [name for name in own_tensors(model) if ".blocks." in name]
    assert {name.split(".")[2] for name in names} == ({"0"} if shared else {"0", "1", "2"})
    save_model(model, tmp_path)
    assert load_file(tmp_path / "model.safetensors").keys() == own_tensors(model).keys()
    again = load_model(tmp_path)
    assert (again.encoder.blocks[0] is again.encoder.blocks[2]) is shared
    ids, lengths = torch.randint(17, (B, T)), torch.tensor([T, 2])
    assert torch.equal(again(ids, lengths), model.eval()(ids, lengths))


def test_a_silenced_stack_adds_nothing_and_learns():
    made, x = stack(shared=False), torch.randn(B, T, D, dtype=torch.float64)
    loud = copy.deepcopy(made)
    for one in (made, loud):
        one.norm = torch.nn.Identity()
    for block in made.blocks:  # as `glorot` leaves them
        for part in (block.attention.out, block.feedforward.down):
            torch.nn.init.zeros_(part.bias)
    zero_output_init(made)
    assert torch.equal(made(x, mask=everything()), x)
    differs(loud(x, mask=everything()), x, "the blocks start with weights")
    made(x, mask=everything()).square().sum().backward()
    assert all(block.feedforward.down.weight.grad.abs().max() > 0 for block in made.blocks)
