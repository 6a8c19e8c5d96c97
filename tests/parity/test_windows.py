"""Against Hugging Face's Swin and Swin v2: sizes that no window divides, shifted windows, several stages; and back."""

import dataclasses

import pytest
import torch

from regard.hub import export_model, load_model
from regard.models import Swin, SwinConfig
from tests.parity.peers import CLOSE, change_config, change_tensors, far, random_model, saved

transformers = pytest.importorskip("transformers")

LABELS = dict(enumerate(("cat", "dog", "bird", "fish", "ant")))
SIZES = dict(
    image_size=33, patch_size=3, num_channels=2, embed_dim=6, depths=[2, 3], num_heads=[2, 3], window_size=4,
    mlp_ratio=2.5, id2label=LABELS, label2id={label: i for i, label in LABELS.items()},
)  # fmt: skip
KINDS = {"swin": "Swin", "swinv2": "Swinv2"}
both = pytest.mark.parametrize("kind", KINDS)


def peer(kind, head="ForImageClassification", **changes):
    config = getattr(transformers, f"{KINDS[kind]}Config")(**SIZES | changes)
    return random_model(getattr(transformers, KINDS[kind] + head), config)


def pixels(rows=33, columns=33, channels=2):
    return torch.randn(3, channels, rows, columns, generator=torch.Generator().manual_seed(7))


SHAPES = {
    "windows that fit": dict(image_size=24, depths=[2, 2]),
    "a window that divides nothing": dict(),
    "a patch that divides nothing": dict(image_size=35),
    "three stages, the last smaller than a window": dict(image_size=44, depths=[2, 1, 2], num_heads=[3, 2, 4]),
    "a window with a middle": dict(image_size=41, window_size=5),
    "rows and columns": dict(image_size=[32, 55], patch_size=[3, 3]),
    "a single stage": dict(depths=[4], num_heads=[1]),
    "another activation and another width": dict(hidden_act="relu", mlp_ratio=3.0, layer_norm_eps=1e-3),
}


@both
@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_scores_and_tokens_are_theirs(kind, shape, tmp_path):
    changes = SHAPES[shape]
    if kind == "swin" and shape.startswith("three"):
        changes = changes | dict(image_size=48)  # theirs fails on a grid smaller than the window: 16, 8, 4
    theirs = peer(kind, **changes)
    ours = saved(theirs, tmp_path)
    size = theirs.config.image_size
    x = pixels(*((size, size) if isinstance(size, int) else size))
    assert far(ours(x), theirs(x).logits) <= CLOSE
    assert ours.config.labels == tuple(LABELS.values())
    ours, body, x = ours.double(), getattr(theirs.double(), kind), x.double()
    assert far(ours.features(x), body(x).last_hidden_state) <= CLOSE / 10


@both
@torch.no_grad()
def test_images_of_another_size_than_planned(kind, tmp_path):
    theirs = peer(kind)
    ours = saved(theirs, tmp_path)
    for rows, columns in ((65, 47), (33, 100), (31, 35)):
        x = pixels(rows, columns)
        assert far(ours(x), theirs(x).logits) <= CLOSE


@both
@torch.no_grad()
def test_the_shifted_mask_is_felt(kind, tmp_path, monkeypatch):
    """Without it the scores are others: the comparison above could fail."""
    theirs = peer(kind)
    ours = saved(theirs, tmp_path)
    monkeypatch.setattr("regard.nn.windows.Windows.mask", lambda self, batch, device=None: None)
    assert far(ours(pixels()), theirs(pixels()).logits) > 10 * CLOSE


@torch.no_grad()
def test_weights_of_each_window_are_theirs(tmp_path):
    import regard

    theirs = peer("swinv2")
    ours = saved(theirs, tmp_path)
    with regard.look(ours) as seen:
        ours(pixels())
    wanted = theirs(pixels(), output_attentions=True).attentions  # of the last block of each stage
    for stage, name in enumerate(["stages.0.blocks.1.attention", "stages.1.blocks.2.attention"]):
        assert (seen.attention[name] - wanted[stage]).abs().max() <= CLOSE


@torch.no_grad()
def test_a_network_trained_on_smaller_windows(tmp_path):
    theirs = peer("swinv2", pretrained_window_sizes=[3, 0])
    ours = saved(theirs, tmp_path)
    assert ours.config.trained_windows == (3, 0)
    assert far(ours(pixels()), theirs(pixels()).logits) <= CLOSE


@torch.no_grad()
def test_a_scale_above_the_limit_is_cut(tmp_path):
    theirs = peer("swinv2")
    for layer in (module for module in theirs.modules() if hasattr(module, "logit_scale")):
        layer.logit_scale.fill_(4.2).data[0] += 1  # below ln 100 = 4.6, and above
    far_off = far(saved(theirs, tmp_path)(pixels()), theirs(pixels()).logits)
    assert far_off <= 10 * CLOSE  # scores of 100 magnify what float32 rounds away


@both
@torch.no_grad()
def test_without_a_head(kind, tmp_path):
    theirs = peer(kind, "Model")
    ours = saved(theirs, tmp_path)
    assert ours.config.labels == () and far(ours(pixels()), theirs(pixels()).pooler_output) <= CLOSE
    export_model(ours, tmp_path / "back")
    again = getattr(transformers, KINDS[kind] + "Model").from_pretrained(tmp_path / "back")
    assert far(again(pixels()).pooler_output, ours(pixels())) <= CLOSE


@both
@torch.no_grad()
def test_the_way_back(kind, tmp_path):
    """Our own model, saved for them, answers there as here; and what they saved comes back number by number."""
    version = (
        dict(norm_place="post", kernel="cosine", offsets="log", trained_windows=(3, 5)) if kind == "swinv2" else {}
    )
    config = SwinConfig(
        image=(32, 47), channels=2, patch=3, dim=10, depths=(3, 2), heads=(2, 5), window=4, ffn_ratio=1.5,
        activation="relu", labels=("left", "right", "up"), path_dropout=0.25, **version,
    )  # fmt: skip
    ours = Swin(config).eval()
    for parameter in ours.parameters():
        parameter += 0.2 * torch.randn_like(parameter)
    export_model(ours, tmp_path)
    theirs = transformers.AutoModelForImageClassification.from_pretrained(tmp_path).eval()
    assert type(theirs).__name__ == f"{KINDS[kind]}ForImageClassification"
    x = pixels(32, 47)
    assert far(theirs(x).logits, ours(x)) <= CLOSE
    assert theirs.config.id2label == {0: "left", 1: "right", 2: "up"} and theirs.config.drop_path_rate == 0.25
    again = saved(theirs, tmp_path / "again")
    assert dataclasses.asdict(again.config) == dataclasses.asdict(config) and torch.equal(again(x), ours(x))


def test_what_one_version_cannot_say_the_other_may(tmp_path):
    mixed = Swin(SwinConfig(image=24, patch=3, dim=6, depths=(1,), heads=(2,), window=4, kernel="cosine"))
    with pytest.raises(ValueError, match="swin cannot express this model: kernel='cosine' would have to be 'full'"):
        export_model(mixed, tmp_path)


@both
@torch.no_grad()
def test_old_files_hold_tables_that_are_computed(kind, tmp_path):
    theirs = peer(kind)
    theirs.save_pretrained(tmp_path)
    name = f"{kind}.encoder.layers.0.blocks.0.attention.self.relative_position_index"
    change_tensors(tmp_path, lambda tensors: tensors | {name: torch.zeros(16, 16)})
    assert far(load_model(tmp_path)(pixels()), theirs(pixels()).logits) <= CLOSE


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (dict(use_absolute_embeddings=True), "use_absolute_embeddings=True cannot be read here"),
        (dict(qkv_bias=False), "qkv_bias=False cannot be read here"),
        (dict(architectures=["SwinForMaskedImageModeling"]), "'SwinForMaskedImageModeling' is not known"),
        (dict(num_heads=[2]), r"heads=\(2,\) must have a positive number for each stage"),
    ],
)
def test_what_cannot_be_read_says_so(changes, says, tmp_path):
    peer("swin").save_pretrained(tmp_path)
    change_config(tmp_path, **changes)
    with pytest.raises(ValueError, match=says):
        load_model(tmp_path)
