"""Whole-number weights: their formats, their products, and every family with them."""

import copy
import gc
import math
import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from regard.data.sets.batches import IGNORE, Batch
from regard.decode import generate
from regard.doctor.laws import close
from regard.hub.checkpoint import export_model, save_model
from regard.native import quantized
from regard.native.quantized import (
    QuantizedLinear,
    QuantizedRecurrent,
    apply,
    is_quantized,
    pack,
    quantize,
    rows_of,
    size_of,
    whole_numbers,
)
from regard.native.record import weight_of
from regard.nn.embeddings import Embedding, Head
from regard.nn.lora import LowRank, add_low_rank
from regard.nn.recurrent import Recurrent
from regard.objectives.masked import masked_tokens
from regard.objectives.next_token import next_token
from regard.registry import models
from tests.laws.cases import CASES, example, has, make

KINDS = ["int8", "int4"]
SHAPES = [(1, 1), (7, 31), (5, 32), (11, 33), (3, 4097), (701, 389)]
EVERYTHING = slice(None)


@pytest.fixture(params=["plain", "compiled"])
def way(request, monkeypatch):
    """With the compiled kernels and without them."""
    if request.param == "plain":
        monkeypatch.setattr(quantized.compiled, "available", lambda: False)
    elif not quantized.compiled.available():
        pytest.skip("the kernels are not compiled here")


def naive_int8(row):
    scale = np.float32(max(abs(value) for value in row)) / np.float32(127)
    return [round(float(np.float32(value) / scale)) if scale else 0 for value in row], scale


def nibbles(row):
    """Column i of a group in the low half of its byte i, column i + 16 in the high half of the same byte."""
    found = []
    for group in range(0, len(row), 16):
        numbers = row[group : group + 16].tolist()
        found += [(byte & 15) - 8 for byte in numbers] + [(byte >> 4) - 8 for byte in numbers]
    return found


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_int8_is_the_nearest_whole_number_of_each_row(rows, columns):
    matrix = torch.randn(rows, columns) * torch.rand(rows, 1) * 3
    packed = pack(matrix, "int8")
    padded = math.ceil(columns / 32) * 32
    assert packed.values.dtype == torch.int8 and packed.values.shape == (rows, padded)
    assert packed.scales.dtype == torch.float32 and packed.scales.shape == (rows,)
    assert (packed.rows, packed.columns, packed.format) == (rows, columns, "int8")
    for row in range(min(rows, 11)):
        numbers, scale = naive_int8(matrix[row].numpy())
        assert packed.values[row].tolist() == numbers + [0] * (padded - columns)
        assert packed.scales[row].item() == scale


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_int4_bytes_hold_two_columns_and_the_scale_fits_better_than_the_plain_one(rows, columns):
    matrix = torch.randn(rows, columns)
    packed = pack(matrix, "int4")
    padded = math.ceil(columns / 32) * 32
    assert packed.values.dtype == torch.uint8 and packed.values.shape == (rows, padded // 2)
    assert packed.scales.dtype == torch.float32 and packed.scales.shape == (rows, padded // 32)
    whole = np.array([nibbles(row) for row in packed.values])
    assert np.array_equal(whole_numbers(packed, EVERYTHING).numpy(), whole)
    assert whole.min() >= -8 and whole.max() <= 7 and not whole[:, columns:].any()
    dense = whole * packed.scales.numpy().repeat(32, axis=1)
    close(rows_of(packed, EVERYTHING), torch.tensor(dense[:, :columns]).float(), "unpacked", 1e-7)

    groups = F.pad(matrix, (0, padded - columns)).view(-1, 32)
    scale = groups.abs().amax(1, keepdim=True) / 7
    plain = ((groups / scale).round() * scale - groups).square().sum(1)
    ours = (torch.tensor(dense).view(-1, 32) - groups).square().sum(1)
    assert (ours <= plain + 1e-9).all()
    if len(groups) > 100:
        assert ours.sum() < 0.8 * plain.sum()


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_of_zeros_and_an_extreme_value(kind):
    matrix = torch.zeros(3, 40)
    matrix[1, 3], matrix[2] = -8.0, torch.linspace(-1e-42, 1e-42, 40)
    packed = pack(matrix, kind)
    close(rows_of(packed, EVERYTHING), matrix, "as it was", 1e-6)
    x = torch.randn(2, 40)
    x[0] = 0
    close(apply(packed, x), x @ matrix.T, "products", 1e-2)
    assert not apply(packed, x)[0].any()


def test_int4_uses_the_eighth_number_below_zero_whatever_the_sign():
    for sign in (1, -1):
        group = sign * torch.tensor([[float(i) for i in range(-8, 8)] * 2])
        close(rows_of(pack(group, "int4"), EVERYTHING), group, "sixteen numbers", 1e-6)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "columns"), [*SHAPES, (3, 9001)])
def test_products_against_float64(kind, rows, columns):
    """On the packed numbers; only the activations' 12 bits are between the two."""
    layer = QuantizedLinear(pack(torch.randn(rows, columns), kind), torch.randn(rows)).eval()
    x = torch.randn(2, 5, columns) * torch.rand(2, 5, 1)
    sizes = x.double().abs().amax(-1, keepdim=True) / 2047
    matrix, bias = rows_of(layer.packed, EVERYTHING).double(), layer.bias.double()
    rounded = (x.double() / sizes).round() * sizes
    found = layer(x)
    assert found.shape == (2, 5, rows) and found.dtype == torch.float32
    size = (x.double() @ matrix.T).abs().max().item()
    close(
        found.double(), rounded @ matrix.T + bias, "with rounded activations", 3e-6 * math.sqrt(columns) + 1e-4 * size
    )
    far = (found.double() - (x.double() @ matrix.T + bias)).norm() / (x.double() @ matrix.T + bias).norm()
    assert far < 2e-3
    assert layer(x[:0]).shape == (0, 5, rows)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_does_not_depend_on_its_batch(kind):
    layer = QuantizedLinear(pack(torch.randn(701, 389), kind), torch.randn(701)).eval()
    x = torch.randn(533, 389) * torch.logspace(-3, 3, 533)[:, None]
    together = layer(x)
    for rows in (slice(0, 1), slice(5, 8), slice(17, 50), slice(100, 533)):
        assert torch.equal(layer(x[rows]), together[rows])


def test_plain_sums_are_exact():
    """Of the largest numbers there are, where float32 alone would round."""
    K = 4096 + 31
    packed = pack(torch.full((3, K), 127.0), "int8")
    x = torch.full((1, K), 2047.0)
    x[0, ::3] = 2046.0
    block = sum(int(v) * 127 for v in x[0, :4096]), sum(int(v) * 127 for v in x[0, 4096:])
    wanted = np.float32(block[0]) + np.float32(block[1])
    assert apply(packed, x)[0].tolist() == [float(wanted)] * 3


FLOATS = ("bilstm", "skipgram")
"""Families whose weights, a clipped LSTM or a table alone, stay in floating point."""
READS = [case for case in CASES if not has(case[0], "image") and case[0] not in FLOATS]
"""Families that read text; the others are small beside their convolutions and norms."""


@pytest.mark.parametrize(("family", "number"), [case for case in CASES if has(case[0], "image")])
def test_every_family_of_images(family, number):
    model = make(family, number)
    inputs, before = example(model), size_of(model)
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    matrices = any(linear.in_features >= quantized.NARROW for linear in linears)  # convolutions alone have none
    with torch.no_grad():
        wanted = model(**inputs)
        found = quantize(model, "int8")(**inputs)
    assert is_quantized(model) == matrices and (size_of(model) < before) == matrices
    assert F.cosine_similarity(wanted.flatten(0, -2), found.flatten(0, -2), dim=-1).min() > 0.98


@pytest.mark.parametrize(("family", "number"), READS)
def test_every_family(family, number):
    model = make(family, number)
    inputs, before = example(model), size_of(model)
    with torch.no_grad():
        wanted = model(**inputs)
        assert quantize(model, "int8") is model
        found = model(**inputs)
    assert is_quantized(model) and size_of(model) < 0.75 * before
    likeness = F.cosine_similarity(wanted.flatten(0, -2), found.flatten(0, -2), dim=-1)
    assert likeness.min() > 0.99
    kept = [part for part in model.modules() if type(part) in (nn.Linear, Head, Embedding, Recurrent)]
    assert all(type(part) is nn.Linear and part.in_features < quantized.NARROW for part in kept)
    close(model(**inputs), found, "the same without no_grad", 1e-2)


@pytest.mark.parametrize(("family", "number"), [case for case in CASES if case[0] in FLOATS])
def test_families_that_stay_in_floats(family, number):
    model = make(family, number)
    inputs, before = example(model), size_of(model)
    with torch.no_grad():
        wanted = model(**inputs)
        found = quantize(model, "int8")(**inputs)
    assert size_of(model) <= before
    assert F.cosine_similarity(wanted.flatten(0, -2), found.flatten(0, -2), dim=-1).min() > 0.99


@pytest.mark.parametrize(("family", "number"), READS)
def test_every_family_in_int4(family, number):
    model = make(family, number, dim=32)
    larger = quantize(copy.deepcopy(model), "int8")
    inputs = example(model)
    with torch.no_grad():
        wanted = model(**inputs)
        quantize(model, "int4")
        likeness = F.cosine_similarity(wanted.flatten(0, -2), model(**inputs).flatten(0, -2), dim=-1)
    assert likeness.mean() > 0.9
    assert size_of(model) < size_of(larger)
    formats = {name: part.format for name, part in model.named_modules() if hasattr(part, "packed")}
    assert {format_ for name, format_ in formats.items() if "embedding" in name or "head" in name} <= {"int8"}
    assert "int4" in formats.values()
    assert "int4" not in {
        formats[name] for name in formats if "encoder" in name and name.endswith((".up", "key_value"))
    }


@pytest.mark.parametrize(("family", "number"), [case for case in READS if hasattr(models[case[0]], "prefill")])
def test_writing_with_a_cache_is_writing_without(family, number):
    model = quantize(make(family, number), "int4")
    inputs = example(model)
    given = {name: value for name, value in inputs.items() if name not in ("ids", "target")}
    prefix = torch.randint(97, (3, 2))
    found = generate(model, prefix, eos=None, max_len=5, **given)
    written = prefix
    with torch.no_grad():
        for _ in range(5):
            scores = model(**given, **{"target" if given else "ids": written})[:, -1]
            written = torch.cat([written, scores.argmax(-1, keepdim=True)], dim=1)
    assert [one.ids for one in found] == written[:, 2:].tolist()


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("lengths", [None, torch.tensor([3, 7, 1, 5])])
def test_recurrent_layers_step_as_pytorch_does(cell, bidirectional, lengths):
    """With the packed numbers put back into PyTorch's own layers; what is left are the activations' 12 bits."""
    layers = Recurrent(cell, 13, 11, depth=2, dropout=0.3, bidirectional=bidirectional).eval()
    with torch.no_grad():
        for name, parameter in layers.named_parameters():
            if "weight" in name:
                parameter.copy_(rows_of(pack(parameter, "int8"), EVERYTHING))
        fast = QuantizedRecurrent(layers, lambda matrix: pack(matrix, "int8")).eval()
        x = torch.randn(4, 7, 13)
        state = [torch.randn(2 + 2 * bidirectional, 4, 11) * 0.5 for _ in range(layers.parts)]
        for given in (None, state):
            wanted, found = layers(x, given, lengths), fast(x, given, lengths)
            close(found[0], wanted[0], "outputs", 2e-3)
            assert len(found[1]) == layers.parts
            for one, other in zip(found[1], wanted[1], strict=True):
                close(one, other, "state", 2e-3)
        if lengths is not None:
            assert not found[0][0, 3:].any()
            noise = x + (torch.arange(7) >= lengths[:, None])[:, :, None] * 9
            close(fast(noise, None, lengths)[0], fast(x, None, lengths)[0], "padding is never read", 0.0)


def test_tied_matrices_are_packed_once():
    model = quantize(make("transformer"), "int4")
    tensors = [part.packed.values for part in (model.head, model.source_embedding, model.target_embedding)]
    assert len({tensor.data_ptr() for tensor in tensors}) == 1
    assert weight_of(model.head).values is weight_of(model.target_embedding).values
    own = {id(t): t.nbytes for t in [*model.parameters(), *model.buffers()]}
    assert size_of(model) == sum(own.values())
    apart = quantize(make("transformer", 2), "int8")
    assert apart.head.values.data_ptr() != apart.target_embedding.values.data_ptr()
    shared = quantize(make("bert", 2), "int8")
    assert len({id(block.attention.query) for block in shared.encoder.blocks}) == 1


def test_the_floating_point_matrices_are_gone():
    for family in ("gpt", "lstm", "bert"):
        model = make(family)
        kept = [weakref.ref(parameter) for name, parameter in model.named_parameters() if parameter.dim() == 2]
        seen = [parameter.shape for parameter in model.parameters() if parameter.dim() == 2]
        quantize(model, "int8")
        gc.collect()
        alive = [ref().shape for ref in kept if ref() is not None]
        tables = {"position.table", "embedding.types"}
        assert len(alive) == sum(name.endswith(tuple(tables)) for name, _ in model.named_parameters()) < len(seen)


def test_low_rank_detours_become_part_of_the_matrix():
    model = make("gpt")
    add_low_rank(model, 3)
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, LowRank):
                part.wide.normal_(std=0.2)
        inputs = example(model)
        wanted = model(**inputs)
        found = quantize(model, "int8")(**inputs)
    assert F.cosine_similarity(wanted.flatten(0, -2), found.flatten(0, -2), dim=-1).min() > 0.99


def test_losses_are_those_of_the_scores():
    for family in ("gpt", "bert"):
        model = quantize(make(family), "int8")
        inputs = {name: value for name, value in example(model).items()}
        targets = torch.randint(97, (3, 7))
        targets[0, 4:] = IGNORE
        loss, count = (next_token if family == "gpt" else masked_tokens)(model, Batch(inputs, targets, ()))
        wanted = F.cross_entropy(model(**inputs).flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum")
        close(loss, wanted, "loss", 1e-4)
        assert count == 18


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_precisions(dtype):
    model = make("gpt")
    inputs = example(model)
    wanted = model(**inputs)
    found = quantize(model.to(dtype), "int8")(**inputs)
    assert found.dtype == torch.float32 and F.cosine_similarity(wanted, found, dim=-1).min() > 0.99
    close(model.double()(**inputs).float(), found, "in float64", 1e-2)


def test_what_cannot_be_done_says_so(tmp_path):
    model = quantize(make("gpt"), "int8")
    ids = torch.randint(97, (1, 3))
    with pytest.raises(ValueError, match="quantised already"):
        quantize(model, "int4")
    with pytest.raises(ValueError, match="'int3' is not known; use bfloat16, int8, int4 or none"):
        quantize(make("gpt"), "int3")
    for part in (model.head, model.embedding, model.decoder.blocks[0].attention.query):
        with pytest.raises(ValueError, match="this matrix is int8, .* load without --quantize"):
            _ = part.weight
    for write in (save_model, export_model):
        with pytest.raises(ValueError, match="are not saved; load the model without --quantize"):
            write(model, tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="cannot be trained; load without --quantize"):
        model.head(torch.randn(1, 3, 20, requires_grad=True))
    model.train()
    with pytest.raises(ValueError, match="cannot be trained; load without --quantize"):
        model(ids)
    assert isinstance(model.embedding, Embedding)
