"""Against Hugging Face's Marian, with random weights: the same scores, the same tokens, and the way back."""

import pytest
import torch
from torch import Tensor

from regard import decode
from regard.hub import export_model, load_generation, load_model
from regard.hub.maps.marian import MARIAN
from regard.models import Transformer

transformers = pytest.importorskip("transformers")

PAD, EOS, VOCAB, LONGEST = 96, 0, 97, 11


def generate(model, source, lengths, *, bos, force_end=True, **options):
    """From the mark of the start, with a source, to a forced end."""
    start = torch.full((len(source), 1), bos)
    return decode.generate(model, start, source=source, lengths=lengths, force_end=force_end, **options)


def beam_search(model, source, lengths, *, bos, force_end=True, **options):
    """From the mark of the start, with a source, to a forced end."""
    start = torch.full((len(source), 1), bos)
    return decode.beam_search(model, start, source=source, lengths=lengths, force_end=force_end, **options)


def marian(**changes):
    fields = dict(
        vocab_size=VOCAB, d_model=24, encoder_layers=2, decoder_layers=3, encoder_attention_heads=3,
        decoder_attention_heads=3, encoder_ffn_dim=37, decoder_ffn_dim=37, max_position_embeddings=41,
        pad_token_id=PAD, decoder_start_token_id=PAD, eos_token_id=EOS, forced_eos_token_id=EOS,
        activation_function="swish", scale_embedding=True, init_std=0.4,
    )  # fmt: skip
    return transformers.MarianConfig(**(fields | changes))


def reference(**changes):
    """A model with random weights, biases and norms."""
    torch.manual_seed(3)
    return perturbed(transformers.MarianMTModel(marian(**changes)).eval())


def perturbed(model):
    """The model with random biases and norms, which are constant in a new one."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.2 * torch.randn_like(parameter)
        model.final_logits_bias += 0.3 * torch.randn_like(model.final_logits_bias)
    return model


def half_trained(model):
    """A few steps towards shifting every id by 7: outputs of all lengths, and beams that compete.

    Random weights alone repeat one token for ever, or end at once.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(110):
        source, lengths, attention = sources(48, seed=100 + step)
        end = torch.full((48, 1), -100)
        wanted = torch.cat([((source + 7) % PAD).masked_fill(attention == 0, -100), end], dim=1)
        wanted[torch.arange(48), lengths] = EOS
        given = torch.cat([torch.full((48, 1), PAD), wanted[:, :-1].clamp(min=0)], dim=1)
        scores = model(input_ids=source, attention_mask=attention, decoder_input_ids=given).logits
        torch.nn.functional.cross_entropy(scores.flatten(0, 1), wanted.flatten(), ignore_index=-100).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Theirs and ours, in float64, where near-ties do not decide."""
    directory = tmp_path_factory.mktemp("marian")
    theirs = half_trained(reference(init_std=0.1)).double()
    theirs.save_pretrained(directory)
    return theirs, load_model(directory)


def sources(count: int, seed: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 14, (count,), generator=generator)
    ids = torch.randint(1, PAD, (count, 13), generator=generator)
    attention = (torch.arange(13) < lengths[:, None]).long()
    return ids.masked_fill(attention == 0, PAD), lengths, attention


def cut(row: list[int]) -> list[int]:
    """Their output without its start, its end and what comes after it."""
    row = row[1:]
    return row[: row.index(EOS)] if EOS in row else row


@pytest.mark.parametrize("activation", ["relu", "gelu", "swish"])
@pytest.mark.parametrize("scaled", [True, False])
def test_logits(tmp_path, activation, scaled):
    theirs = reference(activation_function=activation, scale_embedding=scaled)
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    source, lengths, attention = sources(7)
    target = torch.randint(0, VOCAB, (7, 11), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = theirs(input_ids=source, attention_mask=attention, decoder_input_ids=target).logits
        got = ours(source, lengths, target)
    assert wanted.std() > 0.5
    assert (got - wanted).abs().max() <= 1e-5


@pytest.mark.parametrize("width, length", [(24, 41), (512, 257)])
def test_waves_are_theirs_to_the_last_bit(width, length):
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

    from regard.nn.positions import SinusoidalHalves

    theirs = MarianSinusoidalPositionalEmbedding(length, width).create_weight()
    ours = SinusoidalHalves(dim=width, heads=1, head_dim=width, max_len=length).table
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("forbidden", [(), (PAD,)])
def test_greedy_tokens(pair, forbidden):
    theirs, ours = pair
    source, lengths, attention = sources(200)
    wanted = theirs.generate(
        input_ids=source, attention_mask=attention, num_beams=1, do_sample=False, max_length=LONGEST + 1,
        bad_words_ids=[[id] for id in forbidden] or None, return_dict_in_generate=True, output_logits=True,
    )  # fmt: skip
    got = generate(ours, source, lengths, bos=PAD, eos=EOS, max_len=LONGEST, forbidden=forbidden)
    assert [one.ids for one in got] == [cut(row) for row in wanted.sequences.tolist()]
    reached = {len(one.ids) for one in got}
    assert len(reached) > 8 and LONGEST - 1 in reached  # all lengths, and some are cut off
    log_probs = torch.stack(wanted.logits, 1).double().log_softmax(-1)
    for one, row in zip(got, log_probs, strict=True):
        ended = len(one.ids) + 1 < LONGEST  # the forced end is free
        ids = torch.tensor(one.ids + [EOS] * ended, dtype=torch.long)
        assert one.score == pytest.approx(row[: len(ids)].gather(1, ids[:, None]).sum().item(), abs=1e-4)


@pytest.mark.parametrize(
    "count, penalty, early, forbidden, forced",
    [
        (200, 1.0, False, (PAD,), True),
        (41, 0.6, False, (), True),
        (41, 2.0, False, (PAD,), True),
        (41, 0.0, "never", (PAD,), True),
        (41, 1.3, "never", (PAD,), True),
        (41, 1.0, True, (PAD,), True),
        (41, 1.0, False, (PAD,), False),
    ],
)
def test_beams_tokens_and_scores(pair, count, penalty, early, forbidden, forced):
    theirs, ours = pair
    source, lengths, attention = sources(count)
    wanted = theirs.generate(
        input_ids=source, attention_mask=attention, num_beams=4, num_return_sequences=3, do_sample=False,
        max_length=LONGEST + 1, length_penalty=penalty, early_stopping=early,
        bad_words_ids=[[id] for id in forbidden] or None, return_dict_in_generate=True, output_scores=True,
        **({} if forced else {"forced_eos_token_id": None}),
    )  # fmt: skip
    got = beam_search(
        ours, source, lengths, bos=PAD, eos=EOS, max_len=LONGEST, beams=4, length_penalty=penalty, n_best=3,
        early_stopping=early, forbidden=forbidden, force_end=forced,
    )  # fmt: skip
    flat = [one for best in got for one in best]
    assert [one.ids for one in flat] == [cut(row) for row in wanted.sequences.tolist()]
    # They add in float32 whatever the model's type.
    assert torch.allclose(torch.tensor([one.score for one in flat]), wanted.sequences_scores, rtol=1e-6, atol=1e-6)
    assert len({len(best[0].ids) for best in got}) > 8


def test_there_and_back(pair, tmp_path):
    theirs, ours = pair
    export_model(ours, tmp_path, bos=PAD, eos=EOS, pad=PAD, max_len=LONGEST)
    again = transformers.MarianMTModel.from_pretrained(tmp_path, dtype=torch.float64).eval()
    assert again.dtype == torch.float64
    source, lengths, attention = sources(5)
    target = torch.randint(0, VOCAB, (5, 11), generator=torch.Generator().manual_seed(1))
    inputs = dict(input_ids=source, attention_mask=attention, decoder_input_ids=target)
    with torch.no_grad():
        assert (again(**inputs).logits - theirs(**inputs).logits).abs().max() <= 1e-12
    wanted = again.generate(input_ids=source, attention_mask=attention)  # beams and limits from the directory
    got = beam_search(ours, source, lengths, bos=PAD, eos=EOS, max_len=LONGEST, forbidden=[PAD])
    assert [best[0].ids for best in got] == [cut(row) for row in wanted.tolist()]


def test_a_model_from_here_loads_there(tmp_path):
    """Without a bias on the scores, and with a shallower decoder."""
    ours = Transformer(MARIAN.read_config(marian(encoder_layers=3, decoder_layers=2).to_dict(), {})).eval()
    assert ours.head.bias is None
    export_model(ours, tmp_path, bos=PAD, eos=EOS, pad=PAD)
    theirs, info = transformers.MarianMTModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["unexpected_keys"] and not info["mismatched_keys"]
    source, lengths, attention = sources(5)
    target = torch.randint(0, VOCAB, (5, 11), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = theirs.eval()(input_ids=source, attention_mask=attention, decoder_input_ids=target).logits
        assert (ours(source, lengths, target) - wanted).abs().max() <= 1e-5


def test_generation_defaults(tmp_path):
    theirs = reference()
    theirs.generation_config.bad_words_ids = [[PAD]]
    theirs.generation_config.num_beams = 6
    theirs.generation_config.max_length = 29
    theirs.save_pretrained(tmp_path)
    assert load_generation(tmp_path) == dict(
        bos=None, eos=EOS, ends=[EOS], pad=PAD, decoder_start=PAD, forced_bos=None, forbidden=[PAD], num_beams=6,
        length_penalty=1.0, force_end=True, max_length=29, prompt_end="",
    )  # fmt: skip


@pytest.mark.parametrize(
    "changes, fragment",
    [
        (dict(decoder_ffn_dim=41), "decoder_ffn_dim=41"),
        (dict(decoder_attention_heads=6), "decoder_attention_heads=6"),
        (dict(share_encoder_decoder_embeddings=False), "share_encoder_decoder_embeddings"),
        (dict(activation_function="tanh"), "activation_function='tanh'"),
    ],
)
def test_what_cannot_be_read_is_said(changes, fragment):
    with pytest.raises(ValueError, match=fragment):
        MARIAN.read_config(marian(**changes).to_dict(), {})
