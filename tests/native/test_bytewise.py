"""Bytes on both sides: the packing, products to the last bit, and which matrices become such."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from regard.doctor.laws import close
from regard.native import compiled
from regard.native.bytewise import MOST_COLUMNS, suits_bytes, whole_bytes
from regard.native.program import Columns, Embed, Program, Unsupported, Weight
from regard.native.quantized import QuantizedLinear, apply, pack, quantize, rows_of, size_of, whole_numbers
from regard.nn.windows import KeysUnbiased
from tests.laws.cases import example, make

SHAPES = [(1, 1), (7, 31), (32, 32), (33, 33), (3, 4097), (141, 389)]
EVERYTHING = slice(None)


@pytest.fixture(params=["wide", "portable", "plain"])
def way(request, monkeypatch):
    """x, weight, bias → product: by what the processor offers, what every processor has, and PyTorch alone."""
    if request.param == "plain":
        return lambda x, weight, bias=None: apply(weight, x, bias)
    if not compiled.available():
        pytest.skip(compiled.why_not())
    monkeypatch.setenv("REGARD_PORTABLE", str(int(request.param == "portable")))
    return compiled.linear


def naive(row):
    """Whole numbers and scale: the larger of the sums of neighbours above zero, and of those below, becomes 127."""
    pairs = [row[i : i + 2] for i in range(0, len(row), 2)]
    above, below = (max(sum(max(sign * v, np.float32(0)) for v in pair) for pair in pairs) for sign in (1, -1))
    scale = np.float32(max(above, below)) / np.float32(127)
    return [round(float(v / scale)) if scale else 0 for v in row], scale


def bytes_of(x):
    """What a row becomes, in float64, and the size of a step."""
    x = x.double()
    low, high = x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True).clamp(min=0)
    step = (high - low) / 255
    zero = (-low / step).round()
    return ((x / step).round() + zero).clamp(0, 255) - zero, step


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_weights_are_the_nearest_whole_numbers_whose_pairs_fit(rows, columns):
    matrix = torch.randn(rows, columns) * torch.rand(rows, 1) * 3
    packed = pack(matrix, "bytes")
    strips, padded = math.ceil(rows / 32), math.ceil(columns / 32) * 32
    assert packed.values.dtype == torch.int8 and packed.values.shape == (strips, padded // 4 + 1, 32, 4)
    assert (packed.rows, packed.columns, packed.format) == (rows, columns, "bytes")
    whole = whole_numbers(packed, EVERYTHING)
    for row in range(min(rows, 35)):
        numbers, scale = naive(matrix[row].numpy())
        assert whole[row].tolist() == numbers + [0] * (padded - columns)
        assert packed.scales[row].item() == scale
        at = packed.values[row // 32, :, row % 32]  # for every four columns, behind the sum of all
        assert at[1:].flatten().tolist() == whole[row].tolist()
        assert at[0].contiguous().view(torch.int32).item() == sum(numbers)
    assert not packed.values[-1, :, (rows - 1) % 32 + 1 :].any()
    close(rows_of(packed, EVERYTHING), whole[:, :columns] * packed.scales[:, None], "unpacked", 1e-7)


def test_pairs_never_leave_sixteen_bits():
    """Rounding may add a half to both; 255 · 128 is then the most."""
    matrix = torch.cat([torch.rand(400, 64) ** power * sign for power in (0.01, 1, 8) for sign in (1, -1)])
    matrix[::3, ::2] *= -1
    pairs = whole_bytes(pack(matrix, "bytes")).int().unflatten(1, (-1, 2))
    most = max(pairs.clamp(min=0).sum(-1).max().item(), -pairs.clamp(max=0).sum(-1).min().item())
    assert 127 <= most <= 128
    assert pack(torch.full((1, 2), 63.5), "bytes").values[0, 1, 0, :2].tolist() == [64, 64]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("columns", [2, 38, 5000])
def test_the_largest_numbers_there_are(way, columns, sign):
    """All 255 times all 64, where 16 bits are nearly full and float32 alone would round the sums."""
    packed = pack(torch.full((37, columns), sign * 63.5), "bytes")
    assert (whole_bytes(packed)[:, :columns] == sign * 64).all()
    x = torch.full((5, columns), 255.0)
    x[1:3] *= -1
    x[3, 1::2] = 0.0
    found = way(x, packed)
    total = sign * 255 * 64 * columns
    scale = packed.scales[0].item()
    for row, wanted in enumerate([total, -total, -total, total // 2, total]):
        assert found[row].tolist() == [np.float32(np.float32(wanted) * np.float32(scale))] * 37


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 52, 203])
@pytest.mark.parametrize(("outputs", "columns"), SHAPES)
def test_products(way, rows, outputs, columns):
    """Against float64 with the same whole numbers, and to the last bit against PyTorch."""
    packed, bias = pack(torch.randn(outputs, columns), "bytes"), torch.randn(outputs)
    x = torch.randn(rows, columns) * torch.logspace(-3, 3, max(rows, 1))[:rows, None] + torch.randn(rows, 1)
    found = way(x, packed, bias)
    assert found.shape == (rows, outputs) and found.dtype == torch.float32
    assert torch.equal(found, apply(packed, x, bias))
    if not rows:
        return
    whole, step = bytes_of(x)
    matrix = rows_of(packed, EVERYTHING).double()
    size = (x.double().abs() @ matrix.abs().T).max(-1, keepdim=True).values
    off = (found.double() - (whole * step @ matrix.T + bias)).abs()  # a tie may be rounded the other way in float64
    assert (off < 1e-5 * (1 + size) + step * matrix.abs().max()).all()


def test_products_are_close(way):
    matrix, x = torch.randn(141, 389), torch.randn(61, 389)
    wanted = x.double() @ matrix.double().T
    assert (way(x, pack(matrix, "bytes")) - wanted).norm() / wanted.norm() < 0.015


def test_a_row_depends_on_itself_alone(way):
    packed, bias = pack(torch.randn(141, 389), "bytes"), torch.randn(141)
    x = torch.randn(533, 389) * torch.logspace(-3, 3, 533)[:, None]
    together = way(x, packed, bias)
    for rows in (slice(0, 1), slice(5, 8), slice(17, 50), slice(100, 533), torch.randperm(533)):
        assert torch.equal(way(x[rows], packed, bias), together[rows])


def test_rows_that_are_odd(way):
    """Zeros, numbers beside zero, one sign, an extreme value; what is no number spoils its own row and no other."""
    matrix = torch.randn(40, 37)
    matrix[3] = 0
    packed, bias = pack(matrix, "bytes"), torch.randn(40)
    x = torch.randn(8, 37)
    x[0], x[1], x[2], x[3] = 0, 1e-40, x[2].abs() + 5, -x[3].abs() - 5
    x[4, 5], x[5, 36], x[6, 0] = 1e30, torch.nan, torch.inf
    found = way(x, packed, bias)
    assert torch.equal(found[0], bias) and torch.equal(found[1], bias)
    assert torch.equal(found[:5, 3], bias[3].expand(5))
    for row in (2, 3, 4, 7):
        wanted = x[row].double() @ rows_of(packed, EVERYTHING).double().T + bias
        assert (found[row] - wanted).norm() / wanted.norm() < 0.02
        assert torch.equal(found[row], way(x[row : row + 1], packed, bias)[0])
    assert found[5:7].isnan().all()
    assert torch.equal(found.isnan(), apply(packed, x, bias).isnan())


def test_other_precisions():
    layer = QuantizedLinear(pack(torch.randn(19, 37), "bytes"), torch.randn(19)).eval()
    x = torch.randn(2, 5, 37)
    close(layer(x.double()).float(), layer(x), "float64", 0.05)
    assert layer(x.bfloat16()).dtype == torch.bfloat16


def wide(family):
    """With matrices that are large enough."""
    return make(family, dim=48, **({} if family == "swin" else dict(ffn_dim=72)))


def formats(model):
    return {name: part.format for name, part in model.named_modules() if hasattr(part, "packed")}


@pytest.mark.parametrize("family", ["vit", "swin", "detr", "mae"])
def test_models_of_pictures_have_bytes_in_their_blocks(family):
    model = wide(family)
    inputs, before = example(model), size_of(model)
    linear = {name: part for name, part in model.named_modules() if isinstance(part, nn.Linear)}
    large = {name for name, part in linear.items() if "blocks" in name and suits_bytes(part.weight)}
    with torch.inference_mode():
        wanted = model(**inputs)
        found = formats(quantize(model, "int8"))
        likeness = F.cosine_similarity(wanted.flatten(0, -2), model(**inputs).flatten(0, -2), dim=-1)
    assert large and all((kind == "bytes") == (name in large) for name, kind in found.items())
    assert size_of(model) < 0.8 * before and likeness.min() > 0.98


@pytest.mark.parametrize("family", ["gpt", "transformer", "t5", "lstm", "bert"])
def test_models_of_text_have_none(family):
    assert set(formats(quantize(make(family, dim=40), "int8")).values()) == {"int8"}


def test_int4_and_stacks_that_hide_the_future_have_none():
    for family in ("vit", "swin"):
        assert "bytes" not in formats(quantize(wide(family), "int4")).values()
    towers = formats(quantize(make("clip", dim=48, ffn_dim=72, text_dim=48, text_ffn_dim=72), "int8"))
    causal = [part for part in towers if "text" in part]
    assert causal and {towers[part] for part in causal} == {"int8"} and "bytes" in towers.values()


def test_matrices_that_are_small_or_have_no_room_for_their_sums():
    assert 255 * 64 * MOST_COLUMNS < 2**31
    assert not suits_bytes(torch.empty(32, MOST_COLUMNS + 1, device="meta"))
    assert suits_bytes(torch.empty(32, 32)) and not suits_bytes(torch.empty(31, 32))
    assert "bytes" not in formats(quantize(make("vit", dim=20, ffn_dim=28), "int8")).values()


@pytest.mark.skipif(not compiled.available(), reason=compiled.why_not())
def test_another_shape_is_refused():
    packed = pack(torch.randn(33, 33), "bytes")
    with pytest.raises(ValueError, match="a matrix of bytes has the shape"):
        compiled.linear(torch.randn(2, 33), Weight(packed.values[:1], 33, 33, "bytes", packed.scales))
    program = Program([Embed(Columns("x", 0, 33), packed, 1.0, None)], {"x": 33})
    with pytest.raises(Unsupported, match="an embedding cannot be stored as bytes"):
        compiled.Compiled(program, None)


def test_keys_without_a_bias_stay_without_it():
    """Cosines would feel it."""
    layer = KeysUnbiased(32, 64)
    with torch.no_grad():
        layer.bias.copy_(torch.arange(64.0))
    x = torch.randn(5, 32)
    whole = quantize(nn.ModuleList([layer]), "int8")[0](x)
    assert (whole - F.linear(x, layer.weight) - F.pad(torch.arange(32.0, 64), (32, 0))).abs().max() < 0.05
