"""Against Hugging Face's VideoMAE, TimeSformer and ViViT: vectors, logits, the way back, and their preprocessing."""

import numpy as np
import pytest
import torch
from PIL import Image

from regard.data.readers.clips import from_frames
from regard.hub import export_model, load_model
from regard.hub.clip_preprocessor import load_clip_preprocessing, save_clip_preprocessing
from tests.parity.peers import CLOSE, change_config, far, random_model, saved

transformers = pytest.importorskip("transformers")
SIZES = dict(
    hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37, image_size=12, num_frames=6
)
KINDS = {
    "videomae": ("VideoMAE", dict(patch_size=4)),
    "timesformer": ("Timesformer", dict(patch_size=4)),
    "vivit": ("Vivit", dict(tubelet_size=[3, 4, 4])),
}


def video(kind="videomae", built="ForVideoClassification", **changes):
    name, sizes = KINDS[kind]
    config = getattr(transformers, name + "Config")(**SIZES | sizes | dict(num_labels=5) | changes)
    return random_model(getattr(transformers, name + built), config)


CASES = [
    ("videomae", {}), ("videomae", dict(image_size=[8, 12], tubelet_size=3)),
    ("timesformer", {}), ("timesformer", dict(attention_type="joint_space_time", hidden_act="relu")),
    ("vivit", {}), ("vivit", dict(image_size=[8, 16], tubelet_size=[2, 4, 4])),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "changes"), CASES)
def test_logits_and_the_way_back(tmp_path, kind, changes):
    theirs = video(kind, **changes)
    ours = saved(theirs, tmp_path / "theirs")
    size = theirs.config.image_size
    clips = torch.randn(3, 6, 3, *(size if isinstance(size, list) else (size, size)))
    with torch.no_grad():
        wanted = theirs(pixel_values=clips).logits
        assert far(ours(clips), wanted) <= CLOSE
        assert far(ours(clips, torch.full((3,), 6)), wanted) <= CLOSE
    assert ours.config.labels == tuple(f"LABEL_{i}" for i in range(5))
    export_model(ours, tmp_path / "ours")
    again = type(theirs).from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        assert far(again(pixel_values=clips).logits, wanted) <= CLOSE


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_of_a_model_without_labels(tmp_path, kind):
    theirs = video(kind, "Model")
    ours = saved(theirs, tmp_path / "theirs")
    clips = torch.randn(3, 6, 3, 12, 12)
    with torch.no_grad():
        wanted = theirs(pixel_values=clips)
        got, last = ours.features(clips), wanted.last_hidden_state
        if kind == "timesformer":  # theirs go through the frames of one patch first
            cells = last[:, 1:].unflatten(1, (9, 6)).transpose(1, 2).flatten(1, 2)
            last = torch.cat([last[:, :1], cells], dim=1)
        assert far(got, last) <= CLOSE
        vector = {"videomae": last.mean(1), "timesformer": last[:, 0]}
        assert far(ours(clips), vector.get(kind) if kind in vector else wanted.pooler_output) <= CLOSE
    export_model(ours, tmp_path / "ours")
    again = type(theirs).from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        assert far(again(pixel_values=clips).last_hidden_state, wanted.last_hidden_state) <= CLOSE


def test_the_encoder_of_a_masked_autoencoder_is_read(tmp_path):
    theirs = video("videomae", "ForPreTraining", use_mean_pooling=False, decoder_num_hidden_layers=1)
    ours = saved(theirs, tmp_path)
    clips = torch.randn(2, 6, 3, 12, 12)
    with torch.no_grad():
        assert far(ours.features(clips), theirs.videomae(clips).last_hidden_state) <= CLOSE


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("videomae", dict(qv_bias=False), "qv_bias=False cannot be read here"),
        ("videomae", dict(use_mean_pooling=False), "use_mean_pooling=False cannot be read for a model with labels"),
        ("timesformer", dict(attention_type="space_only"), "attention_type='space_only' is not known"),
        ("vivit", dict(tubelet_size=[2, 4, 3]), r"tubelet_size=\[2, 4, 3\] cannot be read here"),
    ],
)
def test_what_differs_is_refused(tmp_path, kind, change, words):
    saved(video(kind, num_hidden_layers=1), tmp_path)
    change_config(tmp_path, **change)
    with pytest.raises(ValueError, match=words):
        load_model(tmp_path)


@pytest.mark.parametrize("settings", [{}, dict(offset=False, rescale_factor=1 / 255), dict(do_normalize=False)])
def test_frames_are_those_of_their_processor(tmp_path, settings):
    """VideoMAE's own processor needs torchvision; ViViT's does the same steps, and one more."""
    theirs = transformers.VivitImageProcessor(
        size={"shortest_edge": 20}, crop_size={"height": 12, "width": 14}, **settings
    )
    theirs.save_pretrained(tmp_path / "theirs")
    config = type("Config", (), dict(channels=3, image=(12, 14), frames=5))
    ours = load_clip_preprocessing(tmp_path / "theirs", config)
    frames = np.random.default_rng(0).integers(0, 256, (5, 30, 41, 3), dtype=np.uint8)
    wanted = theirs([Image.fromarray(frame) for frame in frames], return_tensors="np").pixel_values[0]
    assert np.abs(ours(from_frames(frames)) - wanted).max() <= CLOSE
    save_clip_preprocessing(tmp_path, ours)
    again = load_clip_preprocessing(tmp_path, config)
    assert np.abs(again(from_frames(frames)) - wanted).max() <= CLOSE
