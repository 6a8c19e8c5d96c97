"""A published directory that is not whole, for every kind: what is missing, too much or of another shape is named."""

from functools import partial

import pytest
import torch
from safetensors.torch import load_file

from regard.hub import load_model
from regard.hub.maps import MAPS
from tests.parity.peers import bart, change_config, change_tensors, encoder, gpt2, llama, saved, t5, whisper
from tests.parity.test_ast import ast
from tests.parity.test_clip import theirs_of as clip_model
from tests.parity.test_esm import esm
from tests.parity.test_images import theirs_of as image_model
from tests.parity.test_marian import reference as marian
from tests.parity.test_parakeet import parakeet
from tests.parity.test_patchtst import patchtst
from tests.parity.test_video import video
from tests.parity.test_wav2vec2 import wav2vec2
from tests.parity.test_windows import peer as window_model

KINDS = {  # one block is enough, and many tensors fewer
    "gpt2": partial(gpt2, n_layer=1),
    "llama": partial(llama, num_hidden_layers=1),
    "t5": partial(t5, num_layers=1, num_decoder_layers=1),
    "bart": partial(bart, encoder_layers=1, decoder_layers=1),
    "marian": partial(marian, encoder_layers=1, decoder_layers=1),
    "bert": partial(encoder, "bert", "ForPreTraining", num_hidden_layers=1),
    "roberta": partial(encoder, "roberta", "ForMaskedLM", num_hidden_layers=1),
    "distilbert": partial(encoder, "distilbert", "ForSequenceClassification", n_layers=1),
    "albert": partial(encoder, "albert", "ForPreTraining"),
    "vit": partial(image_model, "ViT", "ForImageClassification", num_hidden_layers=1),
    "deit": partial(image_model, "DeiT", "ForImageClassificationWithTeacher", num_hidden_layers=1),
    "clip": partial(clip_model, text=dict(num_hidden_layers=1), num_hidden_layers=1),
    "swin": partial(window_model, "swin", depths=[1, 1]),
    "swinv2": partial(window_model, "swinv2", depths=[1, 1]),
    "whisper": partial(whisper, encoder_layers=1, decoder_layers=1),
    "parakeet_ctc": partial(parakeet, num_hidden_layers=1),
    "wav2vec2": partial(wav2vec2, num_hidden_layers=1, mask_time_prob=0.0),
    "videomae": partial(video, "videomae", num_hidden_layers=1),
    "timesformer": partial(video, "timesformer", num_hidden_layers=1),
    "vivit": partial(video, "vivit", num_hidden_layers=1),
    "audio-spectrogram-transformer": partial(ast, num_hidden_layers=1),
    "esm": partial(esm, position_embedding_type="absolute", num_hidden_layers=1, contacts=False),
    "patchtst": partial(patchtst, num_hidden_layers=1),
}
OPTIONAL = "final_logits_bias"


def ending(name):
    """The name of a tensor as errors give it: `transformers` writes some norms as the first checkpoints had them."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def test_every_kind_is_here():
    # test_images.py, test_detr.py and test_pegasus.py have these
    assert KINDS.keys() | {"vit_mae", "detr", "pegasus"} == MAPS.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_every_missing_tensor_is_named(tmp_path, kind):
    saved(KINDS[kind](), tmp_path)
    whole = load_file(tmp_path / "model.safetensors")
    assert len(whole) > 10
    for name in whole.keys() - {OPTIONAL}:
        change_tensors(tmp_path, lambda _, name=name: {key: whole[key] for key in whole if key != name})
        with pytest.raises(ValueError, match="model.safetensors: no tensor .*, which config.json asks for") as error:
            load_model(tmp_path)
        assert f"'{ending(name)}'" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("kind", KINDS)
def test_an_unexpected_tensor_is_named(tmp_path, kind):
    saved(KINDS[kind](), tmp_path)
    name = max(load_file(tmp_path / "model.safetensors"))
    name = name.rpartition(".")[0] + ".scale"
    odd = {"odd.weight": torch.zeros(3), name: torch.zeros(3)}
    change_tensors(tmp_path, lambda tensors: tensors | odd)
    with pytest.raises(ValueError, match="model.safetensors: 2 unexpected tensors: .*; ") as error:
        load_model(tmp_path)
    assert all(name in str(error.value) for name in odd)


@pytest.mark.parametrize("kind", KINDS)
def test_every_wrong_shape_is_named(tmp_path, kind):
    saved(KINDS[kind](), tmp_path)
    whole = load_file(tmp_path / "model.safetensors")
    for number, (name, tensor) in enumerate(whole.items()):
        bad = (tensor[None] if number % 3 or not tensor.dim() else tensor[..., :-1]).clone()
        change_tensors(tmp_path, lambda _, name=name, bad=bad: whole | {name: bad})
        with pytest.raises(ValueError, match="model.safetensors: .* has shape .* config.json asks") as error:
            load_model(tmp_path)
        assert ending(name) in str(error.value) and str(tuple(bad.shape)) in str(error.value)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_in_several_files(tmp_path, kind):
    theirs = KINDS[kind]()
    ours = saved(theirs, tmp_path / "one")
    theirs.save_pretrained(tmp_path / "several", max_shard_size="4KB")
    shards = sorted((tmp_path / "several").glob("model-*.safetensors"))
    assert len(shards) > 2
    again = load_model(tmp_path / "several")
    assert again.config == ours.config
    assert all(torch.equal(one, two) for one, two in zip(again.parameters(), ours.parameters(), strict=True))
    shards[1].unlink()
    with pytest.raises(ValueError, match=shards[1].name) as error:
        load_model(tmp_path / "several")
    assert "\n" not in str(error.value)


def test_shards_are_named_by_their_index(tmp_path):
    gpt2().save_pretrained(tmp_path, max_shard_size="6KB")
    change_config(tmp_path, n_layer=3)
    with pytest.raises(ValueError, match=r"model.safetensors.index.json: no tensor 'transformer.h.2"):
        load_model(tmp_path)
