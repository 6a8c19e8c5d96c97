"""ResNet-50 and LR-Net-50 by arithmetic, against networks that were really built."""

import dataclasses
import json

import pytest
import torch
from click.testing import CliRunner
from torch import nn
from transformers import ResNetConfig, ResNetForImageClassification

from regard.cli.inside import cost as command
from regard.cost import CONVNETS, ConvNetConfig, convnet_cost
from regard.nn.convolution import LocalRelation


def measured(model, side):
    """Multiply–adds of convolutions, linear layers and relations, as the shapes of their outputs say."""
    work = {}

    def count(name):
        def hook(module, inputs, output):
            if isinstance(module, LocalRelation):  # its convolutions are counted by themselves
                work[name] = (module.groups + inputs[0].shape[1]) * module.kernel_size**2 * output[0, 0].numel()
            elif isinstance(module, nn.Conv2d):
                work[name] = module.weight.numel() * output[0, 0].numel()
            else:
                work[name] = module.weight.numel()

        return hook

    inside = {part for m in model.modules() if isinstance(m, LocalRelation) for part in m.prior}
    for name, module in model.named_modules():
        if isinstance(module, (nn.Conv2d, nn.Linear, LocalRelation)) and module not in inside:
            module.register_forward_hook(count(name))
    model(torch.empty(1, 3, side, side, device="meta"))
    return sum(parameter.numel() for parameter in model.parameters()), sum(work.values())


@pytest.mark.parametrize("side", [224, 97])
def test_resnet_50_is_the_one_of_transformers(side):
    with torch.device("meta"):
        theirs = ResNetForImageClassification(ResNetConfig(num_labels=1000))
    found = convnet_cost(dataclasses.replace(CONVNETS["resnet-50"], side=side))
    assert (found.parameters, found.multiply_adds) == measured(theirs, side)
    assert found.parameters == 25_557_032
    assert [stage.side for stage in found.stages[:-1]] == ([112, 56, 28, 14, 7] if side == 224 else [49, 25, 13, 7, 4])


def test_its_stages_are_theirs():
    with torch.device("meta"):
        theirs = ResNetForImageClassification(ResNetConfig(num_labels=1000))
    parts = [theirs.resnet.embedder, *theirs.resnet.encoder.stages, theirs.classifier]
    wanted = [sum(parameter.numel() for parameter in part.parameters()) for part in parts]
    assert [stage.parameters for stage in convnet_cost(CONVNETS["resnet-50"]).stages] == wanted


class Bottleneck(nn.Module):
    """1 × 1, relation, 1 × 1, with a norm behind each."""

    def __init__(self, inputs, inner, outer, stride):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            LocalRelation(inner, inner, 7, stride=stride, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, outer, 1, bias=False), nn.BatchNorm2d(outer),
        )  # fmt: skip
        self.beside = None
        if inputs != outer:
            self.beside = nn.Sequential(nn.Conv2d(inputs, outer, 1, stride=stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x):
        return (self.layers(x) + (x if self.beside is None else self.beside(x))).relu()


def lr_net(blocks, inner, outer, classes):
    """The lecture's column on the right, from our layer."""
    layers = [
        nn.Conv2d(3, 64, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        LocalRelation(64, 64, 7, stride=2, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    width = 64
    for stage, (times, narrow, wide) in enumerate(zip(blocks, inner, outer, strict=True)):
        for block in range(times):
            layers.append(Bottleneck(width, narrow, wide, 2 if stage and not block else 1))
            width = wide
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


@pytest.mark.parametrize(
    "changes", [{}, dict(blocks=(1, 2), inner=(20, 36), outer=(48, 96), side=37, classes=7)], ids=["50", "small"]
)
def test_lr_net_is_the_one_built_from_our_layer(changes):
    config = dataclasses.replace(CONVNETS["lr-net-50"], **changes)
    with torch.device("meta"):
        model = lr_net(config.blocks, config.inner, config.outer, config.classes)
    found = convnet_cost(config)
    assert (found.parameters, found.multiply_adds) == measured(model, config.side)


def test_the_small_one_runs():
    model = lr_net((1, 1), (12, 20), (16, 24), 5)
    assert model(torch.randn(2, 3, 21, 21)).shape == (2, 5)


def test_batches_multiply_work_only():
    one, eight = (convnet_cost(CONVNETS["lr-net-50"], batch=batch) for batch in (1, 8))
    assert eight.multiply_adds == 8 * one.multiply_adds and eight.parameters == one.parameters


def test_the_command():
    shown = CliRunner().invoke(command, ["resnet-50"])
    assert shown.exit_code == 0 and "25,557,032" in shown.output and "4.09 G" in shown.output
    shown = CliRunner().invoke(command, ["lr-net-50"])
    for wanted in ("56 × 56", "[1×1 100, 7×7 relation 100, 1×1 256] × 3", "8 does not divide 100", "none 20.29 M"):
        assert wanted in shown.output
    read = json.loads(CliRunner().invoke(command, ["lr-net-50", "--transform", "none", "--json"]).output)
    assert read["parameters"] == sum(stage["parameters"] for stage in read["stages"]) == 20_286_171
    assert [stage["side"] for stage in read["stages"]] == [112, 56, 28, 14, 7, 1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["resnet-5"], "did you mean 'resnet-50'"),
        (["resnet-50", "--length", "3"], "reads images"),
        (["resnet-50", "--training"], "reads images"),
        (["lr-net-50", "--share", "0"], "share=0 must be at least 1"),
        (["lr-net-50", "--kernel-size", "4"], "kernel_size=4 must be odd; use 5"),
        (["lr-net-50", "--blocks", "3,4"], "need an entry a stage"),
        (["lr-net-50", "--blocks", "3,0,2,1"], "must all be at least 1"),
        (["lr-net-50", "--transform", "later"], "transform takes after|before|none"),
    ],
)
def test_mistakes_carry_the_cure(words, message):
    failed = CliRunner().invoke(command, words)
    assert isinstance(failed.exception, ValueError) and message in str(failed.exception)


def test_names_count_the_layers():
    assert convnet_cost(ConvNetConfig(blocks=(3, 4, 23, 3))).config.name == "ResNet-101"
    with pytest.raises(ValueError, match="batch=0"):
        convnet_cost(ConvNetConfig(), batch=0)
