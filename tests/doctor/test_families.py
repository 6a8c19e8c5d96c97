"""The laws on families of a user's own: what is broken is named, what is not declared is one line."""

import json

import pytest

from regard.registry import models
from tests.cli.calling import call, fails
from tests.doctor.test_kernels import here  # noqa: F401  a directory of the user's

MINE = """
from dataclasses import dataclass
from typing import ClassVar
import torch
from torch import nn
from regard.registry import register_model

@dataclass(frozen=True)
class Sizes:
    vocab_size: int = 500
    dim: int = 12
    image: int = 8
    channels: int = 2

class Family(nn.Module):
    config_class = Sizes
    presets: ClassVar = {"tiny": {}, "wide": {"dim": 24}}

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.dim)
        self.mix = nn.Linear(config.dim, config.dim)
        self.head = nn.Linear(config.dim, 1)

@register_model("regressor")
class Regressor(Family):
    def forward(self, ids, lengths):
        real = torch.arange(ids.shape[1]) < lengths[:, None]
        x = self.mix(self.embed(ids)).tanh() * real[..., None]
        return self.head(x.sum(1) / lengths[:, None])[:, 0]

@register_model("leaky-mean")
class LeakyMean(Regressor):
    def forward(self, ids, lengths):
        return self.head(self.mix(self.embed(ids)).tanh().mean(1))[:, 0]

@register_model("mixer")
class Mixer(nn.Module):
    config_class, presets = Sizes, {"tiny": {}}

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(128, 16), nn.GELU(), nn.Linear(16, 5))

    def forward(self, pixels):
        return self.layers(pixels)

@register_model("graphs")
class Graphs(Family):
    def forward(self, nodes):
        return self.head(self.mix(nodes))

@register_model("own-example")
class OwnExample(Mixer):
    def forward(self, nodes):
        return self.layers(nodes)

    def example(self, rows):
        return {"nodes": torch.randn(rows, 2, 64)}

@register_model("failing")
class Failing(Family):
    def forward(self, ids):
        raise RuntimeError("not yet")

@register_model("headless")
class Headless(Family):
    def __init__(self, config):
        super().__init__(config)
        self.head = nn.Linear(config.dim, 0)

    def forward(self, ids):
        return self.head(self.embed(ids).mean(1))

@register_model("sizeless")
class Sizeless(nn.Module):
    pass
"""


@pytest.fixture
def mine(here, monkeypatch):  # noqa: F811
    monkeypatch.setattr(models, "_entries", dict(models._entries))
    (here / "mine.py").write_text(MINE)


def examine(capsys, name):
    """Exit code, and each law with its verdict and what was found."""
    with pytest.raises(SystemExit) as stop:
        call("--plugin", "mine", "doctor", name, "--json")
    report = json.loads(capsys.readouterr().out)
    assert report["family"] == name
    return stop.value.code, {law["law"]: (law["verdict"], law["found"]) for law in report["laws"]}


@pytest.mark.parametrize("name", ["regressor", "regressor:wide", "mixer", "own-example"])
def test_a_family_of_ones_own_keeps_the_laws(mine, capsys, name):
    code, laws = examine(capsys, name)
    assert code == 0 and {verdict for verdict, _ in laws.values()} == {"ok", "not claimed"}
    assert laws["batch equals single"][0] == laws["one batch can be overfitted"][0] == "ok"
    padding = ("ok", "") if "regressor" in name else ("not claimed", "it takes no lengths of source or ids")
    assert laws["padding changes nothing: outputs"] == padding
    assert laws["hides the future: outputs"] == ("not claimed", "it has no output for each token of target or ids")
    if "regressor" in name:
        assert laws["padding changes nothing: gradients"] == ("not claimed", "it declares no features()")


def test_a_broken_family_is_an_exit_code(mine, capsys):
    code, laws = examine(capsys, "leaky-mean")
    assert code == 1 and laws["padding changes nothing: outputs"][0] == "broken"
    assert "other tokens in the padding of 'ids'" in laws["padding changes nothing: outputs"][1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("graphs", "Graphs.forward takes 'nodes', for which no example is known; declare example(rows), which returns"),
        ("failing", "family 'failing' fails on its example: RuntimeError: not yet (mine.py, line"),
        (
            "headless",
            "family 'headless' has an empty output, (3, 0); without labels let forward return vectors, as embed",
        ),
        ("sizeless", "family 'sizeless' cannot be built: AttributeError"),
        ("mixer:hugh", "mixer has no preset 'hugh'; known: tiny"),
        ("mixr", "'mixr' is no run and no registered family (ast, bert, bilstm, captioner,"),
    ],
)
def test_mistakes_are_one_line(mine, capsys, name, message):
    assert message in fails(capsys, "--plugin", "mine", "doctor", name)


def test_a_family_of_regards_own_is_examined_by_its_name(capsys):
    with pytest.raises(SystemExit) as stop:
        call("doctor", "gru")
    lines = capsys.readouterr().out.splitlines()
    assert stop.value.code == 0 and lines[0] == "gru" and "broken" not in lines[-1]
    assert "  ok           cached equals uncached" in lines
    assert "--causal goes with a module of yours" in fails(capsys, "doctor", "gru", "--causal")
