"""The compiled kernels against PyTorch: every operation on odd sizes, whole models, and a row alone or among others."""

import gc
import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from regard.models.gpt import GPT, GPTConfig
from regard.models.t5 import T5, T5Config
from regard.models.transformer import Transformer, TransformerConfig
from regard.native import compiled
from regard.native import program as ops
from regard.native.compiled import Compiled, best, linear
from regard.native.plain import Plain
from regard.native.program import Columns, Heads, Program, Unsupported, Weight
from regard.native.quantized import apply, pack, quantize, rows_of
from regard.native.record import record_decoder, record_encoder
from regard.nn.feedforward import ACTIVATIONS
from regard.nn.positions import Rotary

pytestmark = pytest.mark.skipif(not compiled.available(), reason=compiled.why_not())
FORMATS = ["float", "int8", "int4", "bytes"]
NO_TABLE, NO_LENGTHS = np.zeros((9, 0), np.int32), np.zeros(9, np.int32)
SIZES = dict(vocab_size=101, dim=30, depth=2, heads=3, ffn_dim=43, max_len=64, dropout=0.0)


@pytest.fixture(params=["wide", "portable"])
def executor(request, monkeypatch):
    """What the processor offers, or what every processor has."""
    monkeypatch.setenv("REGARD_PORTABLE", str(int(request.param == "portable")))


def int32(numbers):
    return np.array(list(numbers), dtype=np.int32)


def batch(rows, positions=None, sequences=None, wanted=(), tables=None, **rest):
    tables = NO_TABLE if tables is None else np.array(tables, dtype=np.int32)
    rest = dict(ids=[0] * rows, source_tables=NO_TABLE[: len(tables)], source_lengths=NO_LENGTHS[: len(tables)]) | rest
    rest["ids"] = int32(rest["ids"])
    return ops.Batch(
        positions=int32(positions if positions is not None else [0] * rows),
        sequences=int32(sequences if sequences is not None else [0] * rows),
        wanted=int32(wanted), tables=tables, **rest,
    )  # fmt: skip


def run(operations, widths, given, pages=None, threads=2, values=None):
    """Buffers behind a run of some operations, from random or given ones."""
    whole = Compiled(Program(list(operations), widths), pages, max_rows=max(1, len(given.ids)), threads=threads)
    for name, buffer in whole.buffers.items():
        buffer.copy_(torch.randn(buffer.shape) if values is None or name not in values else values[name])
    before = {name: buffer.clone() for name, buffer in whole.buffers.items()}
    whole.run(given)
    return before, whole.buffers


def odd(*shape):
    """Numbers that start one behind an aligned address."""
    return torch.randn(int(np.prod(shape)) + 1)[1:].view(shape)


def weight_of(rows, columns, kind):
    matrix = odd(rows, columns)
    if kind == "float":
        return Weight(matrix, rows, columns)
    packed = pack(matrix, kind)
    values = torch.empty(packed.values.numel() + 1, dtype=packed.values.dtype)[1:].view(packed.values.shape)
    return Weight(values.copy_(packed.values), rows, columns, kind, packed.scales)


@pytest.mark.usefixtures("executor")
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 7, 53])
def test_linear(kind, rows):
    for columns, outputs in [(1, 1), (7, 3), (31, 5), (33, 18), (1031, 23), (4099, 4)]:
        weight, bias, x = weight_of(outputs, columns, kind), odd(outputs), odd(rows, columns)
        expected = apply(weight, x, bias)
        tolerance = dict(rtol=1e-4, atol=1e-4 * float(columns**0.5))
        torch.testing.assert_close(linear(x, weight, bias), expected, **tolerance)
        torch.testing.assert_close(linear(x[None], weight), expected[None] - bias, **tolerance)
        op = ops.Linear(Columns("x", 2, columns), Columns("y", 1, outputs), weight, bias, add=True)
        before, after = run([op], {"x": columns + 3, "y": outputs + 2}, batch(rows))
        y = before["y"][:rows, 1:-1] + apply(weight, before["x"][:rows, 2:-1].contiguous(), bias)
        torch.testing.assert_close(after["y"][:rows, 1:-1], y, **tolerance)
        assert torch.equal(after["y"][:, [0, -1]], before["y"][:, [0, -1]])  # columns beside it are untouched


@pytest.mark.usefixtures("executor")
@pytest.mark.parametrize("kind", FORMATS)
def test_a_row_of_a_product_does_not_depend_on_the_others(kind):
    for columns, outputs in [(37, 19), (1100, 35), (4500, 6)]:
        weight, bias, x = weight_of(outputs, columns, kind), odd(outputs), torch.randn(61, columns)
        together = linear(x, weight, bias)
        order = torch.randperm(61)
        assert torch.equal(linear(x[order], weight, bias), together[order])
        for count in (1, 2, 5):
            some = torch.randperm(61)[:count]
            assert torch.equal(linear(x[some], weight, bias), together[some])
        op = ops.Linear(Columns("x", 0, columns), Columns("y", 0, outputs), weight, bias)
        for threads in (1, 3):
            _, after = run([op], {"x": columns, "y": outputs}, batch(61), threads=threads, values={"x": x})
            assert torch.equal(after["y"], together)


@pytest.mark.usefixtures("executor")
@pytest.mark.parametrize("width", [1, 7, 8, 29, 64, 131])
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_norms(width, rows):
    x, out, weight, bias = Columns("x", 3, width), Columns("y", 0, width), odd(width), odd(width)
    before, after = run([ops.Norm(x, out, "layer", weight, bias, 1e-5)], {"x": width + 4, "y": width}, batch(rows))
    given = before["x"][:rows, 3:-1]
    torch.testing.assert_close(
        after["y"][:rows], F.layer_norm(given, (width,), weight, bias, 1e-5), rtol=1e-4, atol=1e-4
    )
    before, after = run([ops.Norm(x, x, "rms", weight, None, 1e-6)], {"x": width + 4}, batch(rows))
    expected = F.rms_norm(before["x"][:rows, 3:-1], (width,), weight, 1e-6)
    torch.testing.assert_close(after["x"][:rows, 3:-1], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("executor")
@pytest.mark.parametrize("kind", compiled.KINDS)
def test_activations(kind):
    x = torch.cat([torch.linspace(-12, 12, 997), torch.tensor([0.0, -100.0, 100.0])]).view(8, 125)
    _, after = run([ops.Activate(Columns("x", 0, 125), kind)], {"x": 125}, batch(8), values={"x": x})
    torch.testing.assert_close(after["x"], ACTIVATIONS[kind](x), rtol=1e-5, atol=1e-6)
    gate = ops.Gate(Columns("x", 1, 124), Columns("y", 0, 62), kind)
    _, after = run([gate], {"x": 125, "y": 62}, batch(8), values={"x": x})
    torch.testing.assert_close(after["y"], ACTIVATIONS[kind](x[:, 1:63]) * x[:, 63:], rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures("executor")
@pytest.mark.parametrize("kind", ["float", "int8", "int4"])
def test_embeddings(kind):
    weight, positions = weight_of(13, 37, kind), odd(6, 37)
    given = batch(4, [5, 0, 3, 3], ids=[12, 0, 7, 7])
    for table in (None, positions):
        _, after = run([ops.Embed(Columns("x", 1, 37), weight, 1.5, table)], {"x": 39}, given)
        expected = rows_of(weight, torch.from_numpy(given.ids).long()) * 1.5 + (
            0 if table is None else table[given.positions]
        )
        torch.testing.assert_close(after["x"][:, 1:-1], expected)


@pytest.mark.usefixtures("executor")
@pytest.mark.parametrize("head_dim", [2, 6, 10, 64])
def test_turns_and_lengths_of_heads(head_dim):
    angles = Rotary(dim=3 * head_dim, heads=3, head_dim=head_dim, max_len=9)
    x, given = Columns("x", 1, 3 * head_dim), batch(5, [0, 8, 3, 4, 1])
    before, after = run([ops.Rotate(x, head_dim, angles.angles)], {"x": 3 * head_dim + 2}, given)
    for row, position in enumerate(given.positions):
        heads = before["x"][row, 1:-1].view(1, 3, 1, head_dim)
        torch.testing.assert_close(after["x"][row, 1:-1].view(1, 3, 1, -1), angles.rotate(heads, int(position)))
    before, after = run([ops.Unit(x, head_dim, 1e-5)], {"x": 3 * head_dim + 2}, given)
    heads = before["x"][:, 1:-1].unflatten(1, (3, head_dim))
    torch.testing.assert_close(after["x"][:, 1:-1], F.rms_norm(heads, (head_dim,), None, 1e-5).flatten(1))


@pytest.mark.usefixtures("executor")
@pytest.mark.parametrize("size", [1, 5, 16, 40])
@pytest.mark.parametrize("head_dim", [3, 8, 20, 64, 75])
def test_attention(size, head_dim):
    """Pages in any order; what no row may see is no number at all."""
    heads, kv_heads, lengths = 6, 2, [1, 47, 18]
    room = -(-47 // size)
    tables = torch.randperm(3 * room).view(3, room).numpy().astype(np.int32)
    pages = torch.full((1, 3 * room, 2, kv_heads, size, head_dim), torch.nan)
    keys = [torch.randn(2, kv_heads, length, head_dim) for length in lengths]
    for sequence, both in enumerate(keys):
        for position in range(lengths[sequence]):
            pages[0, tables[sequence, position // size], :, :, position % size] = both[:, :, position]
    rows = [(0, 0), (1, 46), (1, 30), (2, 17), (2, 0)]
    bias, width = odd(heads, 64), heads * head_dim
    for source in (False, True):
        how = Heads(heads, kv_heads, head_dim, 0.3, None if source else bias, 0 if source else 63)
        op = ops.Attend(Columns("q", 0, width), Columns("y", 2, width), how, 0, source)
        given = batch(5, [p for _, p in rows], [s for s, _ in rows], tables=tables,
                      source_tables=tables, source_lengths=int32(lengths))  # fmt: skip
        before, after = run([op], {"q": width, "y": width + 3}, given, pages)
        for row, (sequence, position) in enumerate(rows):
            k, v = keys[sequence].repeat_interleave(heads // kv_heads, dim=1)
            length = lengths[sequence] if source else position + 1
            q = before["q"][row].view(heads, 1, head_dim)
            added = None if source else bias[:, None, 63 - position : 64]
            expected = F.scaled_dot_product_attention(q, k[:, :length], v[:, :length], added, scale=0.3)
            torch.testing.assert_close(after["y"][row, 2:-1], expected.flatten(), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("executor")
@pytest.mark.parametrize("head_dim", [3, 16, 75])
def test_attention_between_rows(head_dim):
    heads, kv_heads, lengths = 4, 2, [1, 37, 16]
    width, kv_width = heads * head_dim, kv_heads * head_dim
    bias = odd(heads, 2 * 40 + 1)
    op = ops.AttendRows(Columns("q", 0, width), Columns("kv", 0, kv_width), Columns("kv", kv_width, kv_width),
                        Columns("y", 0, width), Heads(heads, kv_heads, head_dim, 0.2, bias, 40))  # fmt: skip
    positions = [position for length in lengths for position in range(length)]
    given = batch(54, positions, np.repeat([4, 0, 2], lengths), tables=np.zeros((9, 1)))
    before, after = run([op], {"q": width, "kv": 2 * kv_width, "y": width}, given)
    for q, kv, y in zip(*(part.split(lengths) for part in (before["q"], before["kv"], after["y"])), strict=True):
        k, v = kv.view(-1, 2, kv_heads, head_dim).permute(1, 2, 0, 3).repeat_interleave(2, dim=1)
        i = torch.arange(len(q))
        added = bias[:, 40 + i[None] - i[:, None]]
        expected = F.scaled_dot_product_attention(q.view(-1, heads, head_dim).transpose(0, 1), k, v, added, scale=0.2)
        torch.testing.assert_close(y, expected.transpose(0, 1).flatten(1), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("executor")
def test_best_scores():
    for width, count in [(1, 1), (17, 17), (1009, 5), (1009, 300)]:
        scores = torch.randn(4, width + 3)[:, 1 : width + 1]
        scores[2] = scores[2].round()  # many are equal
        banned = int32([0, 3] if width > count + 1 else [])
        ids, log_probs = best(scores, count, banned)
        exact = scores.double().log_softmax(dim=-1)
        for row in range(4):
            order = sorted(set(range(width)) - set(banned.tolist()), key=lambda id: (-float(scores[row, id]), id))
            assert ids[row].tolist() == order[:count]
            torch.testing.assert_close(log_probs[row], exact[row, order[:count]].float().numpy(), rtol=1e-5, atol=1e-5)
    assert best(torch.zeros(0, 5), 2)[0].shape == (0, 2)
    ids, _ = best(torch.tensor([[torch.nan, 1.0, -torch.inf, 3.0]]), 4)
    assert ids.tolist() == [[3, 1, 0, 2]]
    with pytest.raises(ValueError, match="from 1 to 3"):
        best(torch.randn(2, 5), 4, int32([1, 2]))


MODELS = {
    "rotary": lambda: GPT(GPTConfig(**SIZES)),
    "normalized": lambda: GPT(GPTConfig(**SIZES, kernel="normalized")),
    "learned": lambda: GPT(GPTConfig(**SIZES, position="learned", activation="gelu")),
    "alibi": lambda: GPT(GPTConfig(**SIZES, position="alibi", activation="relu2")),
    "llama": lambda: GPT(
        GPTConfig(**SIZES | dict(dim=48, heads=6), kv_heads=2, norm="rms", activation="swiglu", bias=False, tie=False)
    ),
    "post-norm": lambda: Transformer(TransformerConfig(**SIZES)),
    "pre-norm": lambda: Transformer(TransformerConfig(**SIZES, norm_place="pre", head_bias=True)),
    "t5": lambda: T5(T5Config(**SIZES)),
    "t5-gated": lambda: T5(T5Config(**SIZES, activation="geglu-tanh", tie="inputs", head_scale=False)),
}


class Decoder:
    """A model, its programs, and sequences in pages of five positions."""

    def __init__(self, model, runner=Compiled, **options):
        self.model, config, parts = model.eval(), model.config, model.parts()
        attention = parts.stack.blocks[0].attention
        self.pages = torch.full((config.depth, 90, 2, attention.kv_heads, 5, attention.head_dim), torch.nan)
        self.tables = np.random.default_rng(0).permutation(45).reshape(3, 15).astype(np.int32)
        self.decoder = runner(record_decoder(parts, 64), self.pages, **options)
        self.sources = None
        if parts.source:
            self.sources = [torch.randint(101, (length,)) for length in (23, 1, 8)]
            rows = [(s, p) for s, source in enumerate(self.sources) for p in range(len(source))]
            encoder = runner(record_encoder(parts, 64), self.pages, **options)
            encoder.run(self.batch(torch.cat(self.sources).tolist(), rows, []))

    def batch(self, ids, rows, wanted):
        lengths = [0] * 3 if self.sources is None else [len(source) for source in self.sources]
        return batch(len(ids), [p for _, p in rows], [s for s, _ in rows], wanted, self.tables, ids=ids,
                     source_tables=self.tables + 45, source_lengths=int32(lengths))  # fmt: skip

    def scores(self, texts, plan):
        """Scores of all tokens, read in runs of (sequence, first, last)."""
        found = [torch.full((len(text), 101), torch.nan) for text in texts]
        for parts in plan:
            rows = [(s, p) for s, first, last in parts for p in range(first, last)]
            ids = [int(texts[s][p]) for s, p in rows]
            for (s, p), row in zip(rows, self.decoder.run(self.batch(ids, rows, range(len(rows)))), strict=True):
                found[s][p] = row
        return found


PLAN = [[(0, 0, 11), (2, 0, 1)], [(2, 1, 2), (0, 11, 12), (1, 0, 31)], [(2, 2, 40)], [(0, 12, 14)]]
ALONE = [[(0, p, p + 1)] for p in range(14)] + [[(1, 0, 31)]] + [[(2, 0, 17)], [(2, 17, 40)]]


@pytest.mark.usefixtures("executor")
@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_a_model_is_its_program(name):
    """Three sequences, read together and in parts, give what the model gives for each."""
    model, texts = MODELS[name](), [torch.randint(101, (length,)) for length in (14, 31, 40)]
    decoder = Decoder(model, max_rows=4, threads=2)
    together = decoder.scores(texts, PLAN)
    alone = decoder.scores(texts, ALONE)
    for sequence, text in enumerate(texts):
        assert torch.equal(together[sequence], alone[sequence])  # bit for bit, whoever is beside it
        if decoder.sources is None:
            expected = model(text[None])[0]
        else:
            source = decoder.sources[sequence]
            expected = model(source[None], torch.tensor([len(source)]), text[None])[0]
        close = float((together[sequence] - expected).abs().max() / expected.abs().max())
        assert close < 1e-4


@pytest.mark.usefixtures("executor")
@pytest.mark.parametrize("kind", ["int8", "int4"])
@torch.no_grad()
def test_a_quantised_model_is_its_program(kind):
    model, texts = quantize(GPT(GPTConfig(**SIZES)), kind), [torch.randint(101, (length,)) for length in (14, 31, 40)]
    decoder = Decoder(model, max_rows=4, threads=1)
    together, alone = decoder.scores(texts, PLAN), decoder.scores(texts, ALONE)
    plain = Decoder(model, Plain).scores(texts, PLAN)
    for one, other, expected in zip(together, alone, plain, strict=True):
        assert torch.equal(one, other)
        # An activation at the middle of two whole numbers may go either way.
        assert float((one - expected).abs().max() / expected.abs().max()) < 5e-3


def test_it_keeps_what_it_reads():
    weight = Weight(torch.randn(5, 7), 5, 7)
    seen = weakref.ref(weight.values)
    program = Program([ops.Linear(Columns("x", 0, 7), Columns("scores", 0, 5), weight, None)], {"x": 7, "scores": 5})
    whole = Compiled(program, None)
    del weight, program.operations[:]
    gc.collect()
    assert seen() is not None
    del whole
    gc.collect()
    assert seen() is None


def test_room_grows_with_the_batch():
    weight = Weight(torch.randn(5, 7), 5, 7)
    gathered = [
        ops.Embed(Columns("x", 0, 7), Weight(torch.randn(9, 7), 9, 7), 1.0, None),
        ops.Gather(Columns("x", 0, 7), Columns("last", 0, 7)),
        ops.Linear(Columns("last", 0, 7), Columns("scores", 0, 5), weight, None),
    ]
    whole = Compiled(Program(gathered, {"x": 7, "last": 7, "scores": 5}), None, max_rows=1)
    for rows in (1, 3, 40):
        ids = [row % 9 for row in range(rows)]
        scores = whole.run(batch(rows, ids=ids, wanted=range(0, rows, 2)))
        torch.testing.assert_close(scores, gathered[0].weight.values[ids[::2]] @ weight.values.T)
    assert whole.run(batch(0)).shape == (0, 5)


def test_what_cannot_be_is_said():
    model = GPT(GPTConfig(**SIZES))
    decoder = Decoder(model)
    good = dict(ids=[1, 2], rows=[(0, 0), (0, 1)], wanted=[1])
    for wrong, message in [
        (dict(ids=[1, 101]), "ids: 1 … 101 is not within 0 … 100"),
        (dict(ids=[-1, 1]), "ids"),
        (dict(rows=[(0, 0), (0, 64)]), "positions: 0 … 64"),
        (dict(rows=[(0, 0), (3, 1)]), "sequences"),
        (dict(wanted=[2]), "wanted"),
    ]:
        with pytest.raises(ValueError, match=message):
            decoder.decoder.run(decoder.batch(**good | wrong))
    decoder.tables[0, 0] = 90
    with pytest.raises(ValueError, match="tables: 0 … 90"):
        decoder.decoder.run(decoder.batch(**good))
    decoder.tables = decoder.tables[:, :2]
    with pytest.raises(ValueError, match="need more than 2 pages"):
        decoder.decoder.run(decoder.batch([1], [(1, 12)], [0]))
    with pytest.raises(Unsupported, match="float32"):
        Compiled(record_decoder(model.double().parts(), 64), decoder.pages)
    with pytest.raises(Unsupported, match="in one piece"):
        linear(torch.randn(2, 3), Weight(torch.randn(3, 4).T, 4, 3))
    with pytest.raises(ValueError, match="3 columns, the matrix 4"):
        linear(torch.randn(2, 3), Weight(torch.randn(4, 4), 4, 4))
    program = Program(
        [ops.Linear(Columns("x", 0, 7), Columns("x", 0, 5), Weight(torch.randn(5, 6), 5, 6), None)], {"x": 7}
    )
    with pytest.raises(ValueError, match="should have 6 columns"):
        Compiled(program, None)


def test_without_a_library_the_reason_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "compiled.py"))
    compiled._load.cache_clear()
    try:
        assert not compiled.available() and "install a C++ compiler" in compiled.why_not()
        with pytest.raises(Unsupported, match="not built"):
            Compiled(Program(), None)
        (tmp_path / "kernels.native.so").write_bytes(b"no library")
        compiled._load.cache_clear()
        assert "cannot be used" in compiled.why_not()
    finally:
        compiled._load.cache_clear()
