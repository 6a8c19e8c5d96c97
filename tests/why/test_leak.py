"""The arms that are no settings: what they change, and nothing else."""

import torch

from regard.why import find_component
from regard.why.attention_parts import OwnFraction
from regard.why.run import new_model


def arms(name):
    component = find_component(name)
    return component, {arm.name: new_model(component, arm, 0).eval() for arm in component.arms}


def test_a_leaking_decoder_sees_the_next_token():
    _, models = arms("mask")
    ids = torch.randint(128, (1, 9))
    other = ids.clone()
    other[0, 6] = (ids[0, 6] + 1) % 128
    seen = {name: not torch.allclose(model(ids)[:, 5], model(other)[:, 5]) for name, model in models.items()}
    assert seen == {"masked": False, "leaking": True}


def test_without_a_feedforward_layer_and_without_its_activation():
    component, models = arms("ffn")
    x = torch.randn(2, 3, 48)
    block = models["without"].decoder.blocks[0]
    assert torch.equal(block.feedforward(x), torch.zeros_like(x))
    linear = models["linear"].decoder.blocks[0].feedforward
    assert torch.allclose(linear(x) + linear(-x), 2 * linear(0 * x), atol=1e-5)
    whole = models["with"].decoder.blocks[0].feedforward
    assert not torch.allclose(whole(x) + whole(-x), 2 * whole(0 * x), atol=1e-3)


def test_fractions_of_the_texts_own_length():
    _, models = arms("position")
    position = models["fraction"].embedding.position
    assert isinstance(position, OwnFraction)
    x = torch.zeros(1, 5, 48)
    assert torch.allclose(position.embed(x)[0], torch.arange(5)[:, None] / 5 * position.direction)
