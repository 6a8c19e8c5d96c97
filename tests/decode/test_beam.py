"""Beam search, against greedy decoding and against a search through everything."""

import itertools

import pytest
import torch

from regard import decode
from regard.models import Seq2Seq, Seq2SeqConfig, Transformer, TransformerConfig

BOS, EOS = 1, 2


def generate(model, source, lengths, *, bos, force_end=True, **options):
    """From the mark of the start, with a source, to a forced end."""
    start = torch.full((len(source), 1), bos)
    return decode.generate(model, start, source=source, lengths=lengths, force_end=force_end, **options)


def beam_search(model, source, lengths, *, bos, force_end=True, **options):
    """From the mark of the start, with a source, to a forced end."""
    start = torch.full((len(source), 1), bos)
    return decode.beam_search(model, start, source=source, lengths=lengths, force_end=force_end, **options)


def models(vocab):
    torch.manual_seed(11)
    made = {"transformer": Transformer(TransformerConfig(dim=15, heads=3, ffn_dim=19, depth=2, vocab_size=vocab))}
    for score in ("additive", "general", "none"):
        made[score] = Seq2Seq(Seq2SeqConfig(dim=14, vocab_size=vocab, score=score, cell="lstm"))
    for model in made.values():
        model.double().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter *= 1.7
    return made


KINDS = ["transformer", "additive", "general", "none"]


def batch(count, vocab):
    lengths = torch.randint(1, 8, (count,))
    lengths[0] = 7
    return torch.randint(3, vocab, (count, 7)), lengths


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_one_beam_is_greedy(kind, length_penalty):
    model, (source, lengths) = models(23)[kind], batch(13, 23)
    options = dict(bos=BOS, eos=EOS, max_len=11)
    beams = beam_search(model, source, lengths, beams=1, length_penalty=length_penalty, **options)
    for (got,), wanted in zip(beams, generate(model, source, lengths, **options), strict=True):
        assert got.ids == wanted.ids
        assert got.score == pytest.approx(wanted.score / (len(got.ids) + 1) ** length_penalty, abs=1e-9)


@torch.no_grad()
def everything(model, source, length, vocab, max_len, length_penalty):
    """All sequences of at most `max_len` tokens, the last of them the end, best first."""
    found = []
    words = [token for token in range(vocab) if token != EOS]
    for size in range(max_len):
        every = list(itertools.product(words, repeat=size))
        target = torch.tensor([[BOS, *ids] for ids in every])
        sources = source[None, :length].expand(len(every), -1)
        log_probs = model(sources, torch.full((len(every),), length), target).log_softmax(-1)
        for ids, row in zip(every, log_probs, strict=True):
            score = sum(row[t, token].item() for t, token in enumerate(ids))
            if size < max_len - 1:  # the end that is forced is free
                score += row[size, EOS].item()
            found.append((score / (size + 1) ** length_penalty, list(ids)))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length_penalty", [0.0, 0.7])
def test_many_beams_find_the_best_of_everything(kind, length_penalty):
    """With a beam for every beginning there is (4³ of them), and a stopping rule that is safe, nothing is missed."""
    vocab, max_len, n_best = 5, 4, 7
    model, (source, lengths) = models(vocab)[kind], batch(3, vocab)
    got = beam_search(
        model, source, lengths, bos=BOS, eos=EOS, max_len=max_len, beams=67, n_best=n_best,
        length_penalty=length_penalty, early_stopping="never",
    )  # fmt: skip
    for row, length, best in zip(source, lengths.tolist(), got, strict=True):
        wanted = everything(model, row, length, vocab, max_len, length_penalty)[:n_best]
        assert [one.ids for one in best] == [ids for _, ids in wanted]
        assert [one.score for one in best] == pytest.approx([score for score, _ in wanted], abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_batch_is_single(kind):
    """Sentences that finish leave; the others do not notice. Some do finish early here."""
    model, (source, lengths) = models(23)[kind], batch(17, 23)
    with torch.no_grad():  # the end wants to come at once for some sources, and never for others
        model.head.weight[EOS] *= 3
    options = dict(bos=BOS, eos=EOS, max_len=13, beams=3, n_best=3)
    together = beam_search(model, source, lengths, **options)
    for row in range(17):
        alone = beam_search(model, source[row : row + 1, : lengths[row]], lengths[row : row + 1], **options)[0]
        assert [one.ids for one in alone] == [one.ids for one in together[row]]
        assert [one.score for one in alone] == pytest.approx([one.score for one in together[row]], abs=1e-9)
        assert [one.score for one in alone] == sorted((one.score for one in alone), reverse=True)
    if kind == "transformer":
        assert len({len(best[0].ids) for best in together}) > 2


def test_forbidden_tokens_and_limits():
    model, (source, lengths) = models(23)["transformer"], batch(5, 23)
    options = dict(bos=BOS, eos=EOS, beams=4, n_best=4)
    free = beam_search(model, source, lengths, max_len=9, **options)
    used = {id for best in free for one in best for id in one.ids}
    banned = sorted(used)[:3]
    strict = beam_search(model, source, lengths, max_len=9, forbidden=banned, **options)
    assert not {id for best in strict for one in best for id in one.ids} & set(banned)
    short = beam_search(model, source, lengths, max_len=2, **options)
    assert all(len(one.ids) <= 1 for best in short for one in best)
    assert beam_search(model, source, lengths, max_len=1, **options)[0][0].ids == []
    open_end = beam_search(model, source, lengths, max_len=3, force_end=False, forbidden=[EOS], **options)
    assert all(len(one.ids) == 3 for best in open_end for one in best)
    assert beam_search(model, source[:0], lengths[:0], max_len=9, **options) == []


def test_impossible_settings_are_refused():
    model, (source, lengths) = models(23)["transformer"], batch(2, 23)
    with pytest.raises(ValueError, match="n_best=5 is not between 1 and beams=4"):
        beam_search(model, source, lengths, bos=BOS, eos=EOS, max_len=9, n_best=5)
    with pytest.raises(ValueError, match="max_len=0"):
        beam_search(model, source, lengths, bos=BOS, eos=EOS, max_len=0)
