"""A model directory, written and read; and what is said when it is not one."""

import json
import os
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.hub import export_model, load_generation, load_model, save_generation, save_model
from regard.models import Seq2Seq, Seq2SeqConfig, Transformer, TransformerConfig
from tests.hub.test_llama2c import run, write_model

SMALL = dict(dim=15, heads=3, ffn_dim=19, depth=2, decoder_depth=1, vocab_size=23)
MARIAN = TransformerConfig(**SMALL, position="sinusoidal-halves", norm_place="post")


def same(one, other):
    theirs = other.state_dict()
    return one.state_dict().keys() == theirs.keys() and all(
        tensor.dtype == theirs[name].dtype and torch.equal(tensor, theirs[name])
        for name, tensor in one.state_dict().items()
    )


@pytest.fixture
def saved(tmp_path):
    save_model(Transformer(TransformerConfig(**SMALL)), tmp_path)
    return tmp_path


@pytest.mark.parametrize("tie", ["all", "output", "none"])
def test_save_and_load_is_the_identity(tmp_path, tie):
    model = Transformer(TransformerConfig(**SMALL, tie=tie, kv_heads=1, position="learned", head_bias=True))
    save_model(model, tmp_path / "new" / "run")
    again = load_model(tmp_path / "new" / "run")
    assert same(model, again) and again.config == model.config and not again.training
    assert sorted(os.listdir(tmp_path / "new" / "run")) == ["config.json", "model.safetensors"]
    matrices = sum(
        tuple(t.shape) == (23, 15) for t in load_file(tmp_path / "new" / "run" / "model.safetensors").values()
    )
    assert matrices == {"all": 1, "output": 2, "none": 3}[tie]
    assert (again.head.weight is again.target_embedding.weight) == (tie != "none")
    source, target, lengths = torch.randint(0, 23, (3, 7)), torch.randint(0, 23, (3, 5)), torch.tensor([7, 2, 5])
    with torch.no_grad():
        assert torch.equal(model.eval()(source, lengths, target), again(source, lengths, target))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_types_are_kept_or_chosen(tmp_path, dtype):
    model = Seq2Seq(Seq2SeqConfig(dim=14, vocab_size=23, cell="lstm", score="general")).to(dtype)
    save_model(model, tmp_path)
    assert same(model, load_model(tmp_path))
    assert {p.dtype for p in load_model(tmp_path, dtype=torch.float32).parameters()} == {torch.float32}


def test_loading_leaves_the_dice_alone(saved):
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    load_model(saved)
    assert torch.equal(torch.rand(3), wanted)


@pytest.mark.parametrize("place", ["safetensors.torch.save_file", "os.fsync"])
def test_a_full_disk_leaves_the_old_file(saved, monkeypatch, place):
    before = {name: (saved / name).read_bytes() for name in os.listdir(saved)}

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(place, full)
    with pytest.raises(OSError, match="could not write .*model.safetensors: No space left on device.*old file"):
        save_model(Transformer(TransformerConfig(**SMALL)), saved)
    assert {name: (saved / name).read_bytes() for name in os.listdir(saved)} == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_an_error_inside_safetensors_is_one_line(saved, monkeypatch):
    def to_nowhere(tensors, path, metadata):
        save_file(tensors, "/dev/full", metadata=metadata)

    monkeypatch.setattr("safetensors.torch.save_file", to_nowhere)
    with pytest.raises(OSError, match="could not write") as error:
        save_model(Transformer(TransformerConfig(**SMALL)), saved)
    assert "\n" not in str(error.value)
    load_model(saved)


def broken(directory, what):
    """Damages a good directory, and gives the words that the message must hold."""
    config, weights = directory / "config.json", directory / "model.safetensors"
    fields, tensors = json.loads(config.read_text()), load_file(weights)
    if what == "no directory":
        return directory / "nowhere", ["no such directory", "nowhere"]
    if what == "no config":
        config.unlink()
        return directory, ["no such file", "config.json"]
    if what == "bad json":
        config.write_text('{"model_type": "regard",')
        return directory, ["config.json is not valid JSON", "line 1"]
    if what == "a list":
        config.write_text("[]")
        return directory, ["config.json holds list"]
    if what == "pickle":
        weights.rename(directory / "pytorch_model.bin")
        return directory, ["pytorch_model.bin", "pickle", "safe_serialization=True"]
    if what == "no weights":
        weights.unlink()
        return directory, ["no such file", "model.safetensors"]
    if what == "shards":
        weights.rename(directory / "model.safetensors.index.json")
        return directory, ["model.safetensors.index.json is not valid JSON"]
    if what == "cut":
        weights.write_bytes(weights.read_bytes()[:-101])
        return directory, ["model.safetensors is cut short or damaged"]
    if what == "empty":
        weights.write_bytes(b"")
        return directory, ["model.safetensors is cut short or damaged"]
    if what == "missing":
        del tensors["encoder.blocks.1.attention.query.bias"]
        save_file(tensors, weights)
        return directory, ["model.safetensors: 1 missing", "encoder.blocks.1.attention.query.bias"]
    if what == "unexpected":
        save_file(tensors | {"extra": torch.zeros(2)}, weights)
        return directory, ["model.safetensors: 1 unexpected", "extra"]
    if what == "shape":
        tensors["decoder.blocks.0.feedforward.up.weight"] = torch.zeros(17, 15)
        save_file(tensors, weights)
        return directory, ["decoder.blocks.0.feedforward.up.weight has shape (17, 15)", "(19, 15)"]
    changes = {
        "unknown type": ({"model_type": "gtp"}, ["unknown model_type 'gtp'", "marian", "regard"]),
        "unknown family": ({"family": "transfomer"}, ["unknown model", "did you mean 'transformer'"]),
        "unknown field": ({"ffn_dimension": 3}, ["config.json: unknown key 'ffn_dimension'", "did you mean 'ffn_dim'"]),
        "bad value": ({"heads": 4}, ["config.json: heads=4 does not divide dim=15"]),
        "wrong type": ({"depth": "many"}, ["config.json: depth takes a whole number"]),
    }[what]
    config.write_text(json.dumps(fields | changes[0]))
    return directory, changes[1]


@pytest.mark.parametrize(
    "what",
    [
        "no directory", "no config", "bad json", "a list", "pickle", "no weights", "shards", "cut", "empty", "missing",
        "unexpected", "shape", "unknown type", "unknown family", "unknown field", "bad value", "wrong type",
    ],
)  # fmt: skip
def test_damage_is_named_in_one_line(saved, what):
    directory, fragments = broken(saved, what)
    with pytest.raises(ValueError) as error:
        load_model(directory)
    message = str(error.value)
    assert "\n" not in message
    for fragment in fragments:
        assert fragment in message


def test_export_says_every_misfit(tmp_path):
    config = TransformerConfig(
        **SMALL, kv_heads=1, norm="rms", activation="swiglu", tie="output", final_norm=True, position="rotary",
        head_dim=4, bias=False, norm_eps=1e-6,
    )  # fmt: skip
    with pytest.raises(ValueError) as error:
        export_model(Transformer(config), tmp_path, bos=1, eos=2, pad=0)
    for field in (
        "position='rotary' would have to be 'sinusoidal-halves'", "norm='rms'", "norm_eps=1e-06",
        "tie='output'", "bias=False", "kv_heads=1", "head_dim=4", "activation='swiglu'",
    ):  # fmt: skip
        assert field in str(error.value)
    assert "kernel" not in str(error.value) and not os.listdir(tmp_path)
    with pytest.raises(ValueError, match="'seq2seq' has no counterpart"):
        export_model(Seq2Seq(Seq2SeqConfig(dim=14, vocab_size=23)), tmp_path, bos=1, eos=2, pad=0)


@pytest.mark.parametrize(
    "changes",
    [dict(), dict(kv_heads=3, head_dim=5, final_norm=False), dict(head_bias=True, activation="silu", max_len=29)],
)
def test_export_and_load_is_the_identity(tmp_path, changes):
    model = Transformer(replace(MARIAN, **changes))
    export_model(model, tmp_path, bos=1, eos=2, pad=0)
    again = load_model(tmp_path)
    theirs = dict(again.named_parameters())
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in model.named_parameters())
    assert theirs.keys() - dict(model.named_parameters()).keys() <= {"head.bias"}
    assert again.config.max_len == model.config.max_len
    assert load_generation(tmp_path)["max_length"] == model.config.max_len


def test_generation_there_and_back(saved):
    save_generation(saved, bos=1, eos=2, pad=0, beams=5, length_penalty=0.6, max_len=28, forbidden=[0, 7])
    assert load_generation(saved) == dict(
        bos=1, eos=2, ends=[2], pad=0, decoder_start=1, forced_bos=None, forbidden=[0, 7], num_beams=5,
        length_penalty=0.6, force_end=True, max_length=29, prompt_end="",
    )  # fmt: skip
    (saved / "generation_config.json").write_text('{"bad_words_ids": [[1, 2]]}')
    with pytest.raises(ValueError, match="generation_config.json: bad_words_ids"):
        load_generation(saved)


def test_marian_weights_that_do_not_fit_are_named(tmp_path):
    export_model(Transformer(replace(MARIAN, head_bias=True)), tmp_path, bos=1, eos=2, pad=0)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    save_file(tensors | {"model.encoder.layer_norm.weight": torch.zeros(15)}, path)
    with pytest.raises(ValueError, match="1 unexpected tensors: model.encoder.layer_norm.weight"):
        load_model(tmp_path)
    del tensors["model.decoder.layers.0.encoder_attn.v_proj.bias"]
    save_file(tensors, path)
    with pytest.raises(ValueError, match="model.decoder.layers.0.encoder_attn.v_proj.bias"):
        load_model(tmp_path)


@pytest.mark.parametrize("untied", [False, True])
def test_a_llama2c_file(tmp_path, untied):
    path = tmp_path / "story.bin"
    weights = write_model(path, untied=untied)
    model = load_model(path, dtype=torch.float64)
    ids = [1, 5, 3, 30, 7, 5]
    with torch.no_grad():
        got = model(torch.tensor([ids]))[0]
    assert abs(got.numpy() - run(weights, ids, heads=4, kv_heads=2)).max() <= 1e-5
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ValueError, match="story.bin has .* bytes"):
        load_model(path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_refused(saved, value, dtype):
    path = saved / "model.safetensors"
    stored = {name: tensor.to(dtype) for name, tensor in load_file(path).items()}
    stored["encoder.blocks.0.attention.query.weight"][3, 2] = value
    save_file(stored, path)
    with pytest.raises(ValueError) as raised:
        load_model(saved)
    fact = f"{path}: tensor encoder.blocks.0.attention.query.weight has 1 of 225 values that are NaN or infinite; "
    assert str(raised.value).startswith(fact) and "\n" not in str(raised.value)


def test_large_weights_whose_sum_overflows_are_weights(saved):
    path = saved / "model.safetensors"
    save_file({name: torch.full_like(tensor, 6e4).half() for name, tensor in load_file(path).items()}, path)
    assert load_model(saved).encoder.blocks[0].attention.query.weight[0, 0] == 6e4
