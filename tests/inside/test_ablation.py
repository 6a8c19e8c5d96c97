"""A head that is off is as if its part of the output projection were zeros."""

import pytest
import torch

from regard.inside.capture.ablation import without
from regard.nn.weights import find_kernels
from tests.inside.test_families import LENGTHS, MODELS, SMALL, T5, T5Config, V, albert, bert, given, gpt


def cut(attention, head):
    """The columns of the output projection that read one head, set to zero."""
    size = attention.head_dim
    with torch.no_grad():
        attention.out.weight[:, head * size : (head + 1) * size] = 0


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_a_head_off_is_a_projection_without_it(name):
    model = MODELS[name]()
    inputs = given(model)
    whole = model(**inputs)
    with without(model, []):
        assert torch.equal(model(**inputs), whole)
    if name == "albert":  # one block for all layers: taken apart, each can be cut alone
        apart = bert(embedding_dim=10)
        apart.load_state_dict(model.state_dict())
    else:
        apart = model
    layer = list(find_kernels(model))[1]
    with without(model, {(layer, 0), (1, 4)}):
        found = model(**inputs)
    assert torch.equal(model(**inputs), whole) and not torch.allclose(found, whole)
    for head in (0, 4):
        cut(apart.get_submodule(layer), head)
    torch.testing.assert_close(found, apart(**inputs))
    assert not any(module._forward_hooks for module in model.modules())


@torch.no_grad()
def test_cross_attention_and_cached_steps():
    model = gpt().double()
    ids = torch.randint(V, (2, 5))
    with without(model, {(0, 1), (2, 3)}):
        whole = model(ids)
        cache = model.new_cache(5)
        model.prefill(ids[:, :4], cache)
        torch.testing.assert_close(model.step(ids[:, 4], cache), whole[:, 4])
    model = T5(T5Config(**SMALL)).eval()
    ids = torch.randint(V, (3, 7))
    before = model(ids, LENGTHS, ids[:, :5])
    with without(model, {("decoder.blocks.1.cross", 2)}):
        assert not torch.equal(model(ids, LENGTHS, ids[:, :5]), before)


def test_gradients_pass_by_a_head_that_is_off():
    model = gpt()
    with without(model, {(0, 1)}):
        model(torch.randint(V, (2, 5))).square().sum().backward()
    attention, size = model.decoder.blocks[0].attention, 4
    assert not attention.query.weight.grad[size : 2 * size].any() and attention.query.weight.grad[:size].any()


@pytest.mark.parametrize("wrong, told", [((0, 6), "has no head 6"), ((7, 0), "no attention layer 7"), (("x", 0), "x")])
def test_what_is_not_there(wrong, told):
    with pytest.raises(ValueError, match=told), without(albert(), {wrong}):
        pass
