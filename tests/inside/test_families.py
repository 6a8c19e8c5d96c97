"""What is seen inside the families that read one text, beside what `transformers` says of the same weights."""

import pytest
import torch

from regard.hub.checkpoint import load_model
from regard.inside.capture.states import stack_states
from regard.inside.capture.weights import look
from regard.models import GPT, LSTM, T5, Bert, BertConfig, GPTConfig, T5Config
from regard.models.recurrent import LSTMConfig
from regard.nn.weights import find_kernels

transformers = pytest.importorskip("transformers")

V, B, T = 61, 3, 7
SMALL = dict(vocab_size=V, dim=24, heads=6, ffn_dim=29, depth=3, max_len=32, dropout=0.0)
LENGTHS = torch.tensor([7, 3, 5])
THEIRS = dict(vocab_size=V, hidden_size=24, num_attention_heads=6, intermediate_size=29, max_position_embeddings=32)


def gpt(**changes):
    return GPT(GPTConfig(**SMALL | changes)).eval()


def bert(**changes):
    return Bert(BertConfig(**SMALL | dict(task="mask", pooler=False) | changes)).eval()


def albert(**changes):
    return bert(shared=True, embedding_dim=10, **changes)


def given(model):
    ids = torch.randint(V, (B, T))
    return dict(ids=ids, lengths=LENGTHS) if isinstance(model, Bert) else dict(ids=ids)


MODELS = {
    "gpt": gpt,
    "gpt, shared keys": lambda: gpt(kv_heads=2),
    "gpt, alibi": lambda: gpt(position="alibi"),
    "gpt, normalized": lambda: gpt(kernel="normalized"),
    "bert": bert,
    "albert": albert,
}


@pytest.mark.parametrize("name", MODELS)
def test_looking_changes_nothing_and_sees_every_layer(name):
    model = MODELS[name]()
    inputs = given(model)
    without = model(**inputs)
    with look(model) as seen:
        within = model(**inputs)
    assert torch.equal(without, within)
    side = "encoder" if isinstance(model, Bert) else "decoder"
    assert seen.names == [f"{side}.blocks.{i}.attention" for i in range(3)] == seen.names_of("self")
    assert seen.names_of(side) == seen.names and not seen.names_of("cross")
    real = torch.ones(T, T).tril()[None] if side == "decoder" else (torch.arange(T) < LENGTHS[:, None])[:, None]
    for weights in seen.of("self"):
        torch.testing.assert_close(weights.sum(-1), torch.ones(B, 6, T))
        assert not weights.masked_select(real[:, None] == 0).any()


def test_layers_of_one_shared_block_are_told_apart():
    model = albert()
    inputs = given(model)
    apart = bert(embedding_dim=10)
    apart.load_state_dict(model.state_dict())  # the same weights, three blocks of their own
    with torch.no_grad(), look(model) as seen, look(apart) as wanted:
        model(**inputs)
        apart(**inputs)
    assert len(find_kernels(model)) == 3 and len(set(find_kernels(model).values())) == 1
    for name in wanted.names:
        torch.testing.assert_close(seen.attention[name], wanted.attention[name])
    assert not torch.allclose(seen.attention[0], seen.attention[1])
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_some_layers_of_a_shared_block():
    model = albert()
    inputs = given(model)
    with torch.no_grad():
        with look(model) as every:
            model(**inputs)
        with look(model, layers=[1], heads=[4, 2]) as some:
            model(**inputs)
            model(**inputs)
    assert some.names == ["encoder.blocks.1.attention"] and len(some.passes(1)) == 2
    for weights in some.passes(1):
        torch.testing.assert_close(weights, every.attention[1][:, [4, 2]])


def test_one_attention_under_two_names_is_one_layer():
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = gpt().decoder.blocks[0].attention
            self.second = self.first

    assert list(find_kernels(Twice())) == ["first"]


def test_cached_decoding_of_a_decoder_joins_to_the_full_forward():
    model = gpt().double()
    ids = torch.randint(V, (B, T))
    with torch.no_grad():
        with look(model) as whole:
            model(ids)
        with look(model) as steps:
            cache = model.new_cache(T)
            model.prefill(ids[:, :2], cache)
            for t in range(2, T):
                model.step(ids[:, t], cache)
    for name in whole.names:
        torch.testing.assert_close(steps.attention[name], whole.attention[name])


def test_t5_has_three_kinds():
    model = T5(T5Config(**SMALL)).eval()
    ids = torch.randint(V, (B, T))
    with torch.no_grad(), look(model) as seen:
        model(ids, LENGTHS, ids[:, :5])
    assert [len(seen.of(kind)) for kind in ("encoder", "decoder", "cross")] == [3, 3, 3]


def test_a_recurrent_model_has_nothing_to_look_at():
    with (
        pytest.raises(ValueError, match="LSTM has no attention to look at"),
        look(LSTM(LSTMConfig(vocab_size=V, dim=8))),
    ):
        pass


def random_model(cls, config):
    model = cls(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    model.set_attn_implementation("eager")
    return model


PEERS = {
    "bert": lambda: random_model(
        transformers.BertModel, transformers.BertConfig(**THEIRS, num_hidden_layers=3, pad_token_id=0)
    ),
    "albert": lambda: random_model(
        transformers.AlbertModel, transformers.AlbertConfig(**THEIRS, num_hidden_layers=3, embedding_size=10)
    ),
    "gpt2": lambda: random_model(
        transformers.GPT2LMHeadModel,
        transformers.GPT2Config(
            vocab_size=V, n_embd=24, n_head=6, n_layer=3, n_inner=29, n_positions=32, bos_token_id=0, eos_token_id=1
        ),
    ),
}


@pytest.mark.parametrize("kind", PEERS)
def test_weights_and_states_are_those_of_transformers(kind, tmp_path):
    theirs = PEERS[kind]()
    theirs.save_pretrained(tmp_path)
    model = load_model(tmp_path)
    ids, mask = torch.randint(2, V, (B, T)), torch.arange(T) < LENGTHS[:, None]
    causal = kind == "gpt2"
    inputs = dict(ids=ids) if causal else dict(ids=ids, lengths=LENGTHS)
    stack = model.decoder if causal else model.encoder
    with torch.no_grad(), look(model) as seen, stack_states(stack) as states:
        model.features(**inputs)
        wanted = theirs(
            ids, attention_mask=None if causal else mask.long(), output_attentions=True, output_hidden_states=True
        )
    real = torch.ones_like(mask) if causal else mask
    assert len(seen.names) == len(wanted.attentions) == 3 and len(states) == len(wanted.hidden_states) == 4
    for got, right in zip(seen.of("self"), wanted.attentions, strict=True):
        torch.testing.assert_close(got.transpose(1, 2)[real], right.transpose(1, 2)[real], atol=1e-5, rtol=0)
    for got, right in zip(states, wanted.hidden_states, strict=True):
        torch.testing.assert_close(got[real], right[real], atol=2e-5, rtol=0)
