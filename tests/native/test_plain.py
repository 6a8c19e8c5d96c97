"""A program run by PyTorch gives the scores of the model that it was recorded from, however its rows are cut."""

import numpy as np
import pytest
import torch
from torch import nn

from regard.native.plain import Plain
from regard.native.program import Batch, Unsupported
from regard.native.quantized import quantize
from regard.native.record import record_decoder, record_encoder
from tests.decode.texts import BY_PAGES, VOCAB, build_model, model_of, reads_source
from tests.laws.cases import make

SIZE, ROOM, LONGEST = 3, 8, 24
"""Of a page, of a table, of a text."""
LENGTHS, SOURCES = [11, 1, 17], [5, 9, 1]


class Texts:
    """Three texts in pages that lie anywhere; what is in no text is no number."""

    def __init__(self, model, dtype=torch.float64, seed=0):
        self.model, self.dtype = model, dtype
        self.random = np.random.default_rng(seed)
        self.texts = [self.random.integers(VOCAB, size=length).tolist() for length in LENGTHS]
        self.sources = [self.random.integers(VOCAB, size=length).tolist() for length in SOURCES]
        self.parts = model.parts()
        attention = self.parts.stack.blocks[0].attention
        layers, count = len(self.parts.stack.blocks), 2 * len(LENGTHS) * ROOM
        self.pool = torch.full((layers, count, 2, attention.kv_heads, SIZE, attention.head_dim), torch.nan, dtype=dtype)
        pages = self.random.permutation(count).astype(np.int32).reshape(2, len(LENGTHS), ROOM)
        self.tables = dict(tables=pages[0], source_tables=pages[1], source_lengths=np.array(SOURCES, dtype=np.int32))
        self.decoder = Plain(record_decoder(self.parts, LONGEST), self.pool)
        if self.parts.source is not None:
            read = [(number, 0, length) for number, length in enumerate(SOURCES)]
            assert Plain(record_encoder(self.parts, LONGEST), self.pool).run(self.batch(read, self.sources, [])) is None

    def batch(self, pieces, texts, wanted):
        """Pieces are (text, from, to)."""
        rows = [(number, place) for number, start, end in pieces for place in range(start, end)]
        return Batch(
            ids=np.array([texts[number][place] for number, place in rows], dtype=np.int32),
            positions=np.array([place for _, place in rows], dtype=np.int32),
            sequences=np.array([number for number, _ in rows], dtype=np.int32),
            wanted=np.array(wanted, dtype=np.int32), **self.tables,
        )  # fmt: skip

    def run(self, *pieces):
        """Scores of all rows."""
        count = sum(end - start for _, start, end in pieces)
        return self.decoder.run(self.batch(pieces, self.texts, range(count))).clone()

    @torch.inference_mode()
    def wanted(self, number):
        """The model's own scores of a whole text."""
        text = torch.tensor([self.texts[number]])
        if self.parts.source is None:
            return self.model(text)[0]
        source = torch.tensor([self.sources[number]])
        return self.model(source, torch.tensor([source.shape[1]]), text)[0]


@pytest.mark.parametrize("case", BY_PAGES)
def test_scores_are_the_models_own(case):
    """Texts one after the other, or in pieces of any size side by side, which come in any order."""
    texts = Texts(model_of(case))
    wanted = [texts.wanted(number) for number in range(3)]
    np.testing.assert_allclose(texts.run((1, 0, 1), (2, 0, 17)), torch.cat([wanted[1], wanted[2]]), atol=1e-6)
    texts = Texts(model_of(case))
    reached, found = [0, 0, 0], [[], [], []]
    while reached != LENGTHS:
        pieces = []
        for number in texts.random.permutation(3).tolist():
            end = min(LENGTHS[number], reached[number] + int(texts.random.integers(5)))
            pieces += [(number, reached[number], end)] if end > reached[number] else []
            reached[number] = end
        if pieces:
            scores = texts.run(*pieces).split([end - start for _, start, end in pieces])
            for (number, _, _), part in zip(pieces, scores, strict=True):
                found[number].append(part)
    for number in range(3):
        np.testing.assert_allclose(torch.cat(found[number]), wanted[number], atol=1e-6)


def test_only_what_is_wanted_and_no_rows_at_all():
    texts = Texts(model_of("gpt-3"))
    every = texts.run((0, 0, 11), (2, 0, 4))
    some = texts.decoder.run(texts.batch([(0, 0, 11), (2, 0, 4)], texts.texts, [14, 3, 3]))
    np.testing.assert_allclose(some, every[[14, 3, 3]], atol=1e-12)
    assert texts.decoder.run(texts.batch([(0, 0, 2)], texts.texts, [])).shape == (0, VOCAB)
    assert texts.decoder.run(texts.batch([], texts.texts, [])).shape == (0, VOCAB)


def test_later_positions_are_not_seen():
    """Reading on and then reading a piece again gives what it gave before: guesses that were wrong are written over."""
    texts = Texts(model_of("gpt-2"))
    texts.run((2, 0, 9))
    wrong, right = texts.texts[2][9:13], [5, 5, 5, 5]
    texts.texts[2][9:13] = right
    texts.run((2, 9, 13))
    texts.texts[2][9:13] = wrong
    np.testing.assert_allclose(texts.run((2, 9, 11)), texts.wanted(2)[9:11], atol=1e-9)


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("case", ["gpt-1", "gpt-4", "transformer-1", "t5-0"])
def test_quantised_models_are_programs_too(case, kind):
    """Up to numbers that lie between two whole ones, which the last bit may round either way."""
    texts = Texts(quantize(build_model(case), kind), torch.float32)
    for number in range(3):
        np.testing.assert_allclose(texts.run((number, 0, LENGTHS[number])), texts.wanted(number), atol=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_precisions(dtype):
    """Within what their digits allow."""
    exact = Texts(build_model("gpt-3").double()).run((0, 0, 11))
    found = Texts(build_model("gpt-3").to(dtype), dtype).run((0, 0, 11))
    assert found.dtype == dtype
    error = (found.double() - exact).abs().max() / exact.abs().max()
    assert error < 20 * torch.finfo(dtype).eps


def adapted(model):
    model.decoder.blocks[0].attention.query = nn.Sequential(model.decoder.blocks[0].attention.query)
    return model


@pytest.mark.parametrize(
    "model, why",
    [
        (lambda: make("gpt", 5), "reversible layers have two streams"),
        (
            lambda: make("gpt", 0, kernel="linear"),
            "Linear attention cannot be recorded as a program; full, dot and normalized",
        ),
        (lambda: make("gpt", 0, kernel="window:radius=2"), "Window attention cannot be recorded"),
        (lambda: adapted(make("gpt", 0)), "Sequential is not a plain linear layer"),
        (lambda: make("gpt", 8), "OneMatrix projects or scales in another way than programs do"),
        (lambda: make("transformer", 7), "TwoMatrices projects or scales in another way"),
    ],
)
def test_what_is_no_program_says_why(model, why):
    with pytest.raises(Unsupported, match=why):
        record_decoder(model().parts(), LONGEST)


def test_nobody_is_left_out_who_looks():
    model = make("gpt", 0)
    handle = model.decoder.blocks[1].attention.kernel.register_forward_hook(lambda *_: None)
    with pytest.raises(Unsupported, match="forward hooks"):
        record_decoder(model.parts(), LONGEST)
    handle.remove()
    assert record_decoder(model.parts(), LONGEST).operations


def test_programs_hold_the_weights_themselves():
    """What is trained on is what is run: nothing is copied but tables."""
    model = build_model("gpt-3")
    texts = Texts(model, torch.float32)
    before = texts.run((0, 0, 11))
    with torch.no_grad():
        model.head.weight *= 2
    np.testing.assert_allclose(texts.run((0, 0, 11)), 2 * before, rtol=1e-5, atol=1e-5)
    assert not reads_source(model)
