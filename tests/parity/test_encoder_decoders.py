"""Against Hugging Face's T5 (plain and gated) and BART: hidden states, scores, loss, greedy tokens, the way back.

Marian, with beams, has its own file.
"""

import pytest
import torch
import torch.nn.functional as F

from regard.decode import generate
from regard.hub import export_model, load_generation, load_model
from regard.models import T5, T5Config, Transformer, TransformerConfig
from tests.parity.peers import (
    CLOSE,
    EOS,
    PAD,
    VOCAB,
    bart,
    batch,
    change_config,
    change_tensors,
    far,
    learn,
    saved,
    t5,
)

transformers = pytest.importorskip("transformers")


def untied(**changes):
    """T5 1.1: gated layers, and an output of its own that is not scaled."""
    model = t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False, **changes)
    model.lm_head.weight = torch.nn.Parameter(0.3 * torch.randn(VOCAB, model.config.d_model))
    return model


CASES = [
    (t5, {}),
    (t5, dict(feed_forward_proj="gated-silu", layer_norm_epsilon=1e-3, num_decoder_layers=4)),
    (t5, dict(tie_word_embeddings=False)),  # tied all the same, but not scaled
    (untied, {}),
    (untied, dict(relative_attention_num_buckets=16, relative_attention_max_distance=9, d_kv=7)),
    (bart, {}),
    (bart, dict(scale_embedding=True, activation_function="relu", decoder_layers=1)),
]


def targets(rows):
    ids, _, attention = batch(rows, 11, seed=9)
    labels = ids.masked_fill(attention == 0, -100)
    return labels, ids


def shifted(theirs, labels):
    """What their decoders read: the start, then the labels with padding for what is not counted."""
    start = torch.full((len(labels), 1), theirs.config.decoder_start_token_id)
    return torch.cat([start, labels[:, :-1].masked_fill(labels[:, :-1] == -100, PAD)], dim=1)


@pytest.mark.parametrize("make, changes", CASES)
def test_hidden_states_scores_and_loss(tmp_path, make, changes):
    theirs = make(**changes)
    ours = saved(theirs, tmp_path)
    source, lengths, attention = batch()
    labels, _ = targets(len(source))
    target = shifted(theirs, labels)
    with torch.no_grad():
        inputs = dict(input_ids=source, attention_mask=attention, output_hidden_states=True)
        wanted = theirs(**inputs, labels=labels)
        memory, _ = ours.encode(source, lengths)
        assert far(memory, wanted.encoder_last_hidden_state, attention) <= CLOSE
        scale = 22**-0.5 if getattr(theirs.config, "scale_decoder_outputs", False) else 1.0
        assert far(ours.features(source, lengths, target) / scale, wanted.decoder_hidden_states[-1]) <= CLOSE
        scores = ours(source, lengths, target)
        assert far(scores, wanted.logits) <= CLOSE
        loss = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-100)
        assert loss.item() == pytest.approx(wanted.loss.item(), abs=CLOSE)


def shift_by_seven(model, step):
    """Every id 7 further, then the end."""
    source, lengths, attention = batch(32, 11, seed=100 + step)
    labels = torch.cat([(3 + (source + 4) % (VOCAB - 3)).masked_fill(attention == 0, -100), lengths[:, None]], dim=1)
    labels[:, -1] = -100
    labels[torch.arange(32), lengths] = EOS
    return model(input_ids=source, attention_mask=attention, labels=labels).loss


@pytest.mark.parametrize("make, rate", [(t5, 1e-2), (untied, 1e-2), (bart, 5e-3)])
def test_greedy_tokens(tmp_path, make, rate):
    theirs = learn(make(), shift_by_seven, 100, rate).double()
    ours = saved(theirs, tmp_path)
    source, lengths, attention = batch(100, 11)
    forced = load_generation(tmp_path)["force_end"]
    assert forced == (make is bart)
    wanted = theirs.generate(
        input_ids=source, attention_mask=attention, num_beams=1, do_sample=False, max_length=15
    )[:, 1:].tolist()  # fmt: skip
    prefix = torch.full((100, 1), load_generation(tmp_path)["decoder_start"])
    got = generate(ours, prefix, eos=EOS, max_len=14, force_end=forced, source=source, lengths=lengths)
    assert [one.ids for one in got] == [row[: row.index(EOS)] if EOS in row else row for row in wanted]
    assert len({len(one.ids) for one in got}) > 4 and len({tuple(one.ids) for one in got}) > 40


@pytest.mark.parametrize("make, changes", CASES)
def test_there_and_back(tmp_path, make, changes):
    theirs = make(**changes)
    ours = saved(theirs, tmp_path / "theirs")
    start = theirs.config.decoder_start_token_id
    export_model(ours, tmp_path / "ours", bos=start, eos=EOS, pad=PAD, max_len=17)
    again, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    assert type(again) is type(theirs) and again.config.architectures == [type(theirs).__name__]
    assert (again.config.decoder_start_token_id, again.generation_config.max_length) == (start, 18)
    source, _, attention = batch()
    labels, _ = targets(len(source))
    with torch.no_grad():
        inputs = dict(input_ids=source, attention_mask=attention, labels=labels)
        one, other = again.eval()(**inputs), theirs(**inputs)
        assert far(one.logits, other.logits) <= CLOSE and abs(one.loss - other.loss) <= CLOSE
    assert load_model(tmp_path / "ours").config == ours.config


SIZES = dict(vocab_size=VOCAB, dim=20, depth=2, decoder_depth=1, heads=5, ffn_dim=29, max_len=31)
OURS = [
    T5(T5Config(**SIZES)),
    T5(T5Config(**SIZES, head_dim=3, activation="geglu-tanh", tie="inputs", head_scale=False, dropout=0.0)),
    Transformer(TransformerConfig(**SIZES, position="learned", norm_place="post", embedding_norm=True)),
    Transformer(TransformerConfig(**SIZES, position="learned", norm_place="post", embedding_norm=True, head_bias=True)),
]


@pytest.mark.parametrize("ours", OURS)
def test_a_model_from_here_opens_there(tmp_path, ours):
    export_model(ours.eval(), tmp_path, bos=PAD, eos=EOS, pad=PAD)
    theirs, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    assert theirs.config.model_type == ("t5" if isinstance(ours, T5) else "bart")
    source, lengths, attention = batch()
    labels, _ = targets(len(source))
    with torch.no_grad():
        wanted = theirs.eval()(input_ids=source, attention_mask=attention, labels=labels).logits
        assert far(ours(source, lengths, shifted(theirs, labels)), wanted) <= CLOSE


def test_the_first_t5(tmp_path):
    """Published with copies of its one matrix, a bias that is not used, and settings without today's names."""
    ours = saved(t5(), tmp_path)

    def age(tensors):
        shared = tensors.pop("shared.weight")
        names = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
        tensors |= {name: shared.clone() for name in names}
        unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
        return tensors | {unused: torch.zeros(8, 3)}

    change_tensors(tmp_path, age)
    change_config(
        tmp_path, scale_decoder_outputs=..., tie_word_embeddings=..., is_gated_act=..., dense_act_fn=...,
        decoder_start_token_id=..., bos_token_id=...,
    )  # fmt: skip
    again = load_model(tmp_path)
    assert again.config == ours.config and again.config.tie == "all" and again.config.head_scale
    assert all(torch.equal(one, two) for one, two in zip(again.parameters(), ours.parameters(), strict=True))
    (tmp_path / "generation_config.json").unlink()
    assert load_generation(tmp_path)["decoder_start"] == PAD


def test_bart_may_force_its_first_token(tmp_path):
    theirs = bart()
    theirs.generation_config.forced_bos_token_id = 0
    theirs.save_pretrained(tmp_path)
    assert load_generation(tmp_path)["forced_bos"] == 0


@pytest.mark.parametrize(
    "make, changes, fragment",
    [
        (t5, dict(feed_forward_proj="gated-relu"), "feed_forward_proj='gated-relu'"),
        (bart, dict(decoder_ffn_dim=41), "encoder_ffn_dim=37 and decoder_ffn_dim=41 differ"),
        (bart, dict(decoder_attention_heads=7), "decoder_attention_heads=7 differ"),
        (bart, dict(activation_function="tanh"), "activation_function='tanh'"),
        (bart, dict(tie_word_embeddings=False), "tie_word_embeddings=False"),
    ],
)
def test_settings_that_cannot_be_read(tmp_path, make, changes, fragment):
    make().save_pretrained(tmp_path)
    change_config(tmp_path, **changes)
    with pytest.raises(ValueError, match=f"config.json: .*{fragment}"):
        load_model(tmp_path)


def test_what_t5_cannot_express(tmp_path):
    config = T5Config(
        **SIZES, activation="geglu", tie="none", position="relative:inside_scale=true", kernel="normalized"
    )
    with pytest.raises(ValueError) as error:
        export_model(T5(config), tmp_path, bos=PAD, eos=EOS, pad=PAD)
    for fragment in (
        "kernel='normalized' would",
        "activation='geglu' would",
        "tie='none' would",
        "without inside_scale",
    ):
        assert fragment in str(error.value)
