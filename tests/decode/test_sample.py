"""Greedy and sampled decoding."""

import math

import numpy as np
import pytest
import torch

from regard import decode
from regard.decode import Sampling, filter_logits
from regard.decode.sample import best_tokens, sample_token
from regard.models import Seq2Seq, Seq2SeqConfig, Transformer, TransformerConfig

BOS, EOS, VOCAB = 1, 2, 23


def generate(model, source, lengths, *, bos, force_end=True, **options):
    """From the mark of the start, with a source, to a forced end."""
    start = torch.full((len(source), 1), bos)
    return decode.generate(model, start, source=source, lengths=lengths, force_end=force_end, **options)


def transformer():
    return Transformer(TransformerConfig(dim=15, heads=3, ffn_dim=19, depth=2, decoder_depth=3, vocab_size=VOCAB))


def recurrent(score="additive", cell="gru"):
    return Seq2Seq(Seq2SeqConfig(dim=14, depth=2, vocab_size=VOCAB, score=score, cell=cell))


MODELS = {
    "transformer": transformer,
    "additive": recurrent,
    "general-lstm": lambda: recurrent("general", "lstm"),
    "dot-rnn": lambda: recurrent("dot", "rnn"),
    "one vector": lambda: recurrent("none"),
}


@pytest.fixture(params=MODELS)
def model(request):
    """Float64, where near-ties do not decide; sharper than at the start, and now and then it ends."""
    torch.manual_seed(7)
    model = MODELS[request.param]().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 1.7
    return model.eval()


def batch(count=11):
    generator = torch.Generator().manual_seed(13)
    lengths = torch.randint(1, 8, (count,), generator=generator)
    lengths[0] = 7
    return torch.randint(3, VOCAB, (count, 7), generator=generator), lengths


@torch.no_grad()
def greedy_by_full_forward(model, source, length, max_len):
    """One sentence, everything computed anew at each step."""
    ids, score = [BOS], 0.0
    for _ in range(max_len - 1):
        scores = model(source[None, :length], torch.tensor([length]), torch.tensor([ids]))[0, -1]
        log_probs = scores.log_softmax(-1)
        best = int(log_probs.argmax())
        score += float(log_probs[best])
        if best == EOS:
            break
        ids.append(best)
    return ids[1:], score


def test_greedy_is_the_repeated_full_forward(model):
    source, lengths = batch()
    got = generate(model, source, lengths, bos=BOS, eos=EOS, max_len=9)
    for row, length, one in zip(source, lengths.tolist(), got, strict=True):
        ids, score = greedy_by_full_forward(model, row, length, max_len=9)
        assert one.ids == ids
        assert one.score == pytest.approx(score, abs=1e-9)


def test_rows_end_at_different_times():
    """The compaction above is only tried where some rows leave before others."""
    torch.manual_seed(7)
    source, lengths = batch(67)
    sampled = generate(transformer(), source, lengths, bos=BOS, eos=EOS, max_len=13, sampling=Sampling())
    assert len({len(one.ids) for one in sampled}) > 5


def test_a_sample_depends_on_seed_and_row_alone(model):
    source, lengths = batch()
    options = dict(bos=BOS, eos=EOS, max_len=9)
    all_rows = generate(model, source, lengths, **options, sampling=Sampling(seed=5))
    assert generate(model, source, lengths, **options, sampling=Sampling(seed=5)) == all_rows
    other_seed = generate(model, source, lengths, **options, sampling=Sampling(seed=6))
    assert [one.ids for one in other_seed] != [one.ids for one in all_rows]
    for row in range(len(source)):
        part = slice(row, row + 1)
        alone = generate(model, source[part], lengths[part], **options, sampling=Sampling(seed=5), rows=[row])
        assert alone[0].ids == all_rows[row].ids
        assert alone[0].score == pytest.approx(all_rows[row].score, abs=1e-9)


def test_equal_sources_get_different_samples(model):
    source, lengths = batch(1)
    many = generate(
        model, source.expand(17, -1), lengths.expand(17), bos=BOS, eos=EOS, max_len=9, sampling=Sampling(seed=5)
    )
    assert len({tuple(one.ids) for one in many}) > 8


def test_one_candidate_is_greedy(model):
    source, lengths = batch()
    options = dict(bos=BOS, eos=EOS, max_len=9)
    assert generate(model, source, lengths, **options, sampling=Sampling(top_k=1)) == generate(
        model, source, lengths, **options
    )


def test_draws_follow_the_distribution():
    scores = torch.tensor([0.1, 0.0, 0.6, 0.3, 0.0]).log().expand(20_011, -1)
    drawn = sample_token(scores, torch.from_numpy(np.random.default_rng(3).random(20_011)))
    shares = drawn.bincount(minlength=5) / len(drawn)
    assert shares[1] == shares[4] == 0
    assert torch.allclose(shares, torch.tensor([0.1, 0.0, 0.6, 0.3, 0.0]), atol=0.015)
    edges = sample_token(scores[:2], torch.tensor([0.0, math.nextafter(1.0, 0.0)], dtype=torch.float64))
    assert edges.tolist() == [0, 3]


def test_limits(model):
    source, lengths = batch()
    for max_len in (1, 2):
        for one in generate(model, source, lengths, bos=BOS, eos=EOS, max_len=max_len):
            assert len(one.ids) < max_len
    banned = [token for token in range(VOCAB) if token != 5]
    forced = generate(model, source, lengths, bos=BOS, eos=EOS, max_len=6, forbidden=banned)
    assert all(one.ids == [5] * 5 for one in forced)
    unforced = generate(model, source, lengths, bos=BOS, eos=EOS, max_len=6, forbidden=banned, force_end=False)
    assert all(one.ids == [5] * 6 for one in unforced)
    assert generate(model, source[:0], lengths[:0], bos=BOS, eos=EOS, max_len=6) == []


def test_dropout_is_off_and_the_mode_comes_back(model):
    source, lengths = batch()
    calm = generate(model, source, lengths, bos=BOS, eos=EOS, max_len=9)
    model.train()
    assert generate(model, source, lengths, bos=BOS, eos=EOS, max_len=9) == calm
    assert model.training


@pytest.mark.parametrize(
    "options",
    [
        dict(temperature=0.6),
        dict(top_k=5),
        dict(top_p=0.7),
        dict(min_p=0.1),
        dict(top_p=1e-6),
        dict(top_k=500),
        dict(temperature=1.7, top_k=19, top_p=0.8, min_p=0.05),
    ],
)
def test_filters_are_those_of_transformers(options):
    warpers = pytest.importorskip("transformers").generation.logits_process
    kinds = {
        "temperature": warpers.TemperatureLogitsWarper, "top_k": warpers.TopKLogitsWarper,
        "top_p": warpers.TopPLogitsWarper, "min_p": warpers.MinPLogitsWarper,
    }  # fmt: skip
    scores = torch.randn(7, 31, dtype=torch.float64) * 2
    wanted = scores
    for name, value in options.items():
        wanted = kinds[name](value)(None, wanted)
    got = filter_logits(scores, Sampling(**options))
    assert torch.equal(got.isfinite(), wanted.isfinite()) and got.isfinite().any(-1).all()
    assert torch.allclose(got, wanted)


@pytest.mark.parametrize("vocab", [3, 64, 67, 64 * 9, 64 * 9 + 1, 1031])
@pytest.mark.parametrize("count", [1, 8])
def test_best_tokens_are_topk(vocab, count):
    scores = torch.randn(13, vocab)
    highest, places = best_tokens(scores, count)
    wanted = scores.topk(min(count, vocab))
    assert torch.equal(highest, wanted.values) and torch.equal(places, wanted.indices)


@pytest.mark.parametrize(
    "options", [dict(temperature=0.0), dict(top_k=0), dict(top_p=0.0), dict(top_p=1.1), dict(min_p=-0.1), dict(seed=-1)]
)
def test_impossible_settings_are_refused(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))}="):
        Sampling(**options)
