"""The lectures' table: what is measured must be what follows from each layer's reach."""

import math

import pytest
import torch

from regard.bench import architectures as table
from regard.bench.architectures import (
    Architecture,
    ArchitecturesConfig,
    architectures,
    chain_length,
    growth,
    measure_architectures,
    path_length,
)

LENGTHS = (8, 16, 37, 64)
SMALL = ArchitecturesConfig(lengths=LENGTHS, dim=8, radius=4, width=3, repeats=1)
REACH = {
    "self-attention": lambda n: 1,
    "restricted to ±4": lambda n: math.ceil((n - 1) / 4),
    "recurrent (GRU)": lambda n: 1,
    "convolution, 3 wide": lambda n: math.ceil((n - 1) / 2),
    "dilated convolution": lambda n: next(L for L in range(n) if 3**L >= n),
}


@pytest.fixture(scope="module")
def measured():
    return measure_architectures(SMALL)


def test_paths_and_steps(measured):
    assert measured["architectures"].keys() == REACH.keys()
    for name, part in measured["architectures"].items():
        recurrent = name == "recurrent (GRU)"
        for point in part["points"]:
            n = point["length"]
            assert point["layers"] == REACH[name](n), (name, n)
            assert point["steps"] == (n if recurrent else 1), (name, n)
            assert point["path"] == point["layers"] * point["steps"] and point["seconds"] > 0
        assert part["time"]["from"] == 8 and part["time"]["to"] == 64
    grows = {name: (part["steps"], part["path"]) for name, part in measured["architectures"].items()}
    assert grows["self-attention"] == ("constant", "constant")
    assert grows["recurrent (GRU)"] == ("n^1.00", "n^1.00")
    assert grows["convolution, 3 wide"][1] in ("n^0.99", "n^1.00", "n^1.01")
    assert grows["dilated convolution"][1].endswith("·log_3 n")


@pytest.mark.parametrize("name", REACH)
def test_the_path_is_that_of_a_real_stack(name):
    """The whole stack at once: the gradient is there with so many layers, and exactly zero with one less."""
    n, kind = 16, architectures(SMALL)[name]
    far = path_length(kind, SMALL, n)
    for depth in (far - 1, far):
        layers = [kind.build(SMALL, n, i, torch.float64) for i in range(depth)]
        x = torch.randn(1, n, SMALL.dim, dtype=torch.float64, requires_grad=True)
        out = x
        for layer in layers:
            out = layer(out)
        (gradient,) = torch.autograd.grad(out[:, -1].sum(), x)
        assert bool(gradient[0, 0].any()) is (depth == far)


def test_a_chain_is_counted_by_what_waits():
    def looped(config, length, depth, dtype):
        def layer(x):
            out = x[:, :1]
            for _ in range(length):
                out = out * 2
            return out

        return layer

    kind = Architecture(("", "", ""), looped)
    assert chain_length(kind, SMALL, 9) - chain_length(kind, SMALL, 4) == 5
    wide = Architecture(("", "", ""), lambda *sizes: lambda x: sum(x * i for i in range(1)) + x)
    assert chain_length(wide, SMALL, 9) == chain_length(wide, SMALL, 4)


def test_growth_by_name():
    def points(value):
        return [{"length": n, "path": value(n)} for n in (256, 512, 1024, 2048, 4096)]

    assert growth(points(lambda n: 7), "path", 3) == "constant"
    assert growth(points(lambda n: n), "path", 3) == "n^1.00"
    assert growth(points(lambda n: n**2), "path", 3) == "n^2.00"
    assert growth(points(lambda n: math.log(n, 3)), "path", 3) == "1.00·log_3 n"
    assert growth(points(lambda n: n)[:3], "path", 3) == "fewer than 4 points"


def test_table_and_picture(measured, tmp_path):
    shown = table.render_architectures(measured)
    for piece in ("d = 8", "n²·d", "r·n·d", "log_k n", "16 × 1", "1 × 64", "steps that wait for each other"):
        assert piece in shown, piece
    figure = table.draw_architectures(measured, tmp_path / "table.svg")
    assert (tmp_path / "table.svg").stat().st_size > 5000 and len(figure.axes) == 2


def test_ctrl_c(monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(table, "path_length", stop)
    found = measure_architectures(SMALL)
    assert found["interrupted"] and found["architectures"] == {} and table.render_architectures(found)


def test_mistakes():
    with pytest.raises(ValueError, match="width=1 must be at least 2"):
        ArchitecturesConfig(lengths=(8,), width=1)
    with pytest.raises(ValueError, match="at least one length"):
        ArchitecturesConfig(lengths=())
