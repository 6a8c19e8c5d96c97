"""Against Hugging Face's GPT-2 and Llama: hidden states, scores, loss, greedy tokens, and the way back."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from regard.decode import Engine, Request, generate
from regard.hub import export_model, load_generation, load_model
from regard.models import GPT, GPTConfig
from tests.parity.peers import CLOSE, EOS, PAD, VOCAB, batch, change_config, far, gpt2, learn, llama, saved

transformers = pytest.importorskip("transformers")

LLAMA3 = dict(
    rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=2.0, original_max_position_embeddings=17
)
CASES = [
    (gpt2, {}),
    (gpt2, dict(n_inner=None, tie_word_embeddings=False, layer_norm_epsilon=1e-3)),
    (gpt2, dict(activation_function="relu2", n_head=7)),
    (llama, {}),
    (llama, dict(tie_word_embeddings=True, attention_bias=True, mlp_bias=True, hidden_act="gelu_pytorch_tanh")),
    (llama, dict(rope_parameters=dict(rope_type="default", rope_theta=500.0), num_key_value_heads=None)),
    (llama, dict(rope_parameters=dict(rope_type="linear", factor=2.5, rope_theta=10000.0), hidden_act="gelu")),
    (llama, dict(rope_parameters=LLAMA3 | dict(rope_theta=50.0), head_dim=None, hidden_size=24)),
]


@pytest.mark.parametrize("penalty", [1.0, 0.0])
def test_beams_of_a_language_model(tmp_path, penalty):
    """The same n-best continuations of a prompt as theirs, with their scores."""
    theirs = gpt2()
    learn(theirs, next_after, 30)
    ours = saved(theirs, tmp_path).double()
    theirs = theirs.double()
    prompt = torch.tensor([[5, 9, 7]])
    wanted = theirs.generate(
        prompt, num_beams=4, num_return_sequences=3, max_new_tokens=9, do_sample=False, length_penalty=penalty,
        eos_token_id=EOS, pad_token_id=PAD, return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    request = Request(prompt=[5, 9, 7], max_len=9, ends=(EOS,), beams=4, n_best=3, length_penalty=penalty)
    (ticket,) = Engine(ours).serve([request])
    for hypothesis, row, score in zip(ticket.hypotheses, wanted.sequences, wanted.sequences_scores, strict=True):
        ids = row[3:].tolist()
        assert list(hypothesis.ids) == (ids[: ids.index(EOS)] if EOS in ids else ids)
        assert abs(hypothesis.score - score.item()) < 1e-5


@pytest.mark.parametrize("make, changes", CASES)
def test_hidden_states_scores_and_loss(tmp_path, make, changes):
    theirs = make(**changes)
    ours = saved(theirs, tmp_path)
    ids, _, attention = batch()
    labels = ids.masked_fill(attention == 0, -100)
    with torch.no_grad():
        wanted = theirs(input_ids=ids, attention_mask=attention, labels=labels, output_hidden_states=True)
        assert far(ours.features(ids), wanted.hidden_states[-1], attention) <= CLOSE
        scores = ours(ids)
        assert far(scores, wanted.logits, attention) <= CLOSE
        loss = F.cross_entropy(scores[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
        assert loss.item() == pytest.approx(wanted.loss.item(), abs=CLOSE)


def next_after(model, step):
    """Most of the time the token that stands 7 further; the end after some."""
    start = torch.randint(3, VOCAB, (64, 1), generator=torch.Generator().manual_seed(step))
    ids = 3 + (start - 3 + 7 * torch.arange(12)) % (VOCAB - 3)
    ids = ids.masked_fill((ids > 90).cumsum(1) > 0, EOS)
    return model(input_ids=ids, labels=ids).loss


@pytest.mark.parametrize("make", [gpt2, llama])
def test_greedy_tokens(tmp_path, make):
    theirs = learn(make(initializer_range=0.05), next_after, 60).double()
    ours = saved(theirs, tmp_path)
    assert next(ours.parameters()).dtype == torch.float64
    lengths = set()
    for length in (1, 3, 7, 11):  # 100 prompts, those of one length together
        ids = torch.randint(3, VOCAB, (25, length), generator=torch.Generator().manual_seed(length))
        wanted = theirs.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=20, pad_token_id=PAD
        )[:, length:].tolist()
        got = generate(ours, ids, eos=EOS, max_len=20)
        assert [one.ids for one in got] == [row[: row.index(EOS)] if EOS in row else row for row in wanted]
        lengths |= {len(one.ids) for one in got}
    assert len(lengths) > 8


@pytest.mark.parametrize("make, changes", CASES)
def test_there_and_back(tmp_path, make, changes):
    theirs = make(**changes)
    ours = saved(theirs, tmp_path / "theirs")
    kind = theirs.config.model_type
    export_model(ours, tmp_path / "ours", bos=0, eos=EOS, pad=PAD)
    again, info = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    assert again.config.model_type == kind and type(again) is type(theirs)
    assert (again.config.bos_token_id, again.config.eos_token_id, again.config.pad_token_id) == (0, EOS, PAD)
    assert load_generation(tmp_path / "ours") == load_generation(tmp_path / "theirs") | {"forbidden": [PAD]}
    ids, _, attention = batch()
    with torch.no_grad():
        inputs = dict(input_ids=ids, attention_mask=attention)
        assert far(again.eval()(**inputs).logits, theirs(**inputs).logits) <= CLOSE
    assert load_model(tmp_path / "ours").config == ours.config


SIZES = dict(vocab_size=VOCAB, dim=20, depth=2, heads=5, ffn_dim=29, max_len=31)
OURS = {
    "gpt2": GPTConfig(**SIZES, position="learned", activation="silu"),
    "llama": GPTConfig(
        **SIZES, position="rotary:base=777,stretch=3,trained=11", activation="swiglu", norm="rms", bias=False,
        head_dim=6, kv_heads=1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", OURS)
def test_a_model_from_here_opens_there(tmp_path, kind):
    ours = GPT(OURS[kind]).eval()
    export_model(ours, tmp_path, bos=None, eos=None, pad=PAD)
    theirs, info = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()) and theirs.config.model_type == kind
    ids, _, attention = batch()
    with torch.no_grad():
        assert far(ours(ids), theirs.eval()(input_ids=ids, attention_mask=attention).logits, attention) <= CLOSE


def test_half_precision_keeps_its_type(tmp_path):
    ours = saved(gpt2().bfloat16(), tmp_path / "theirs")
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.bfloat16}
    export_model(ours, tmp_path / "ours", bos=0, eos=EOS, pad=PAD)
    assert transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours").dtype == torch.bfloat16


def test_what_no_kind_can_express(tmp_path):
    config = replace(OURS["gpt2"], activation="relu2", kernel="normalized", position="rotary")
    with pytest.raises(ValueError) as error:
        export_model(GPT(config), tmp_path, bos=0, eos=1, pad=2)
    assert "gpt2 cannot express" in str(error.value) and "\n" not in str(error.value)
    assert "position='rotary' would have to be 'learned'" in str(error.value)
    assert "kernel='normalized' would have to be 'full'" in str(error.value)
    assert "activation" not in str(error.value)  # they have that one
    with pytest.raises(ValueError, match="llama cannot .* norm='layer' would .* activation='relu2' would .* swiglu"):
        export_model(GPT(config), tmp_path, kind="llama", bos=0, eos=1, pad=2)
    with pytest.raises(ValueError, match="kind='bert' is no gpt model; known: gpt2, llama"):
        export_model(GPT(config), tmp_path, kind="bert", bos=0, eos=1, pad=2)
    odd = replace(OURS["llama"], dim=21, heads=5)
    with pytest.raises(ValueError, match="heads=5 would have to divide dim=21"):
        export_model(GPT(odd), tmp_path, bos=0, eos=1, pad=2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "make, changes, fragment",
    [
        (gpt2, dict(scale_attn_by_inverse_layer_idx=True), "scale_attn_by_inverse_layer_idx=True"),
        (gpt2, dict(scale_attn_weights=False), "scale_attn_weights=False"),
        (gpt2, dict(activation_function="mish"), "activation_function='mish' is not known; known: relu"),
        (gpt2, dict(n_layer="many"), r"depth takes a whole number, got 'many' \(depth is n_layer there\)"),
        (gpt2, dict(n_head=4), r"heads=4 does not divide dim=21.* \(dim is n_embd, heads is n_head there\)"),
        (llama, dict(hidden_act="relu"), "hidden_act='relu'"),
        (llama, dict(mlp_bias=True), "mlp_bias"),
        (llama, dict(rope_scaling={"type": "dynamic", "factor": 2.0}), "rope_type='dynamic' is not known"),
        (llama, dict(rope_scaling={"rope_type": "linear"}), "rope_type='linear' needs factor"),
        (llama, dict(partial_rotary_factor=0.5), "partial_rotary_factor"),
    ],
)
def test_settings_that_cannot_be_read(tmp_path, make, changes, fragment):
    make().save_pretrained(tmp_path)
    change_config(tmp_path, **changes)
    with pytest.raises(ValueError, match=f"config.json: .*{fragment}"):
        load_model(tmp_path)


def test_old_names_of_rotary_settings(tmp_path):
    """As Llama 3.1 was published."""
    theirs = llama(rope_parameters=LLAMA3 | dict(rope_theta=50.0))
    ours = saved(theirs, tmp_path)
    told = dict(LLAMA3)
    told["type"] = told.pop("rope_type")
    change_config(tmp_path, rope_parameters=..., rope_theta=50.0, rope_scaling=told)
    assert load_model(tmp_path).config == ours.config
