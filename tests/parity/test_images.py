"""Against Hugging Face's ViT, DeiT and MAE, at the size that they were made for and at others; and the way back."""

import pytest
import torch
import torch.nn.functional as F

from regard.data.sets.batches import Batch
from regard.hub import export_model, load_model
from regard.models import MAE, MAEConfig, ViT, ViTConfig
from regard.objectives.pixels import masked_pixels
from tests.parity.peers import CLOSE, change_config, change_tensors, far, random_model, saved

transformers = pytest.importorskip("transformers")

B, LABELS = 3, ("no", "perhaps", "yes", "never", "always")
SIZES = dict(
    hidden_size=21, num_attention_heads=3, num_hidden_layers=2, intermediate_size=37, image_size=23, patch_size=5,
    num_channels=2, layer_norm_eps=1e-6,
)  # fmt: skip
NAMES = dict(id2label=dict(enumerate(LABELS)), label2id={label: i for i, label in enumerate(LABELS)})
CASES = [
    ("ViT", "Model"), ("ViT", "ForImageClassification"), ("DeiT", "Model"), ("DeiT", "ForImageClassification"),
    ("DeiT", "ForImageClassificationWithTeacher"),
]  # fmt: skip
TEACHER = {"ViT": "none", "DeiT": "token"}


def theirs_of(name, head, **changes):
    names = NAMES if "Classification" in head else {}
    config = getattr(transformers, f"{name}Config")(**SIZES | names | changes)
    return random_model(getattr(transformers, name + head), config)


def images(rows=23, columns=23, channels=2):
    return torch.randn(B, channels, rows, columns, generator=torch.Generator().manual_seed(5))


@torch.no_grad()
def check(ours, theirs, pixels, **how):
    """Hidden states, and the head's scores or the pooled vector."""
    told = theirs(pixels, **how)
    body = getattr(theirs, theirs.base_model_prefix, theirs)
    assert far(ours.features(pixels), body(pixels, **how).last_hidden_state) <= CLOSE
    assert far(ours(pixels), told.logits if "logits" in told else told.pooler_output) <= CLOSE


@pytest.mark.parametrize(("name", "head"), CASES)
def test_there_and_back(tmp_path, name, head):
    theirs = theirs_of(name, head)
    ours = saved(theirs, tmp_path / "theirs")
    assert ours.config.labels == (LABELS if "Classification" in head else ())
    assert ours.config.teacher == ("head" if "Teacher" in head else TEACHER[name])
    check(ours, theirs, images())

    export_model(ours, tmp_path / "ours")
    again, info = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    assert again.config.architectures == [type(theirs).__name__] and again.config.model_type == name.lower()
    assert again.config.id2label == theirs.config.id2label
    check(ours, again.eval(), images())
    assert load_model(tmp_path / "ours").config == ours.config


@pytest.mark.parametrize(("name", "head"), CASES)
@pytest.mark.parametrize("size", [(31, 31), (11, 37), (24, 24)])
def test_another_resolution(tmp_path, name, head, size):
    theirs = theirs_of(name, head)
    check(saved(theirs, tmp_path), theirs, images(*size), interpolate_pos_encoding=True)


@pytest.mark.parametrize("changes", [dict(image_size=[13, 29], patch_size=[3, 3]), dict(hidden_act="relu")])
def test_other_settings(tmp_path, changes):
    theirs = theirs_of("ViT", "ForImageClassification", **changes)
    rows = columns = 23
    if "image_size" in changes:
        rows, columns = changes["image_size"]
    check(saved(theirs, tmp_path), theirs, images(rows, columns))


def test_a_body_saved_with_its_prefix_and_a_pooler_that_a_classifier_does_not_use(tmp_path):
    theirs = theirs_of("ViT", "Model")
    ours = saved(theirs, tmp_path)
    change_tensors(tmp_path, lambda tensors: {f"vit.{name}": tensor for name, tensor in tensors.items()})
    assert load_model(tmp_path).config == ours.config
    check(load_model(tmp_path), theirs, images())


def test_without_a_pooler(tmp_path):
    config = transformers.ViTConfig(**SIZES)
    theirs = random_model(lambda config: transformers.ViTModel(config, add_pooling_layer=False), config)
    ours = saved(theirs, tmp_path)
    assert ours.pooler is None
    with torch.no_grad():
        assert far(ours.embed(images()), theirs(images()).last_hidden_state[:, 0]) <= CLOSE


OURS = dict(dim=20, depth=2, heads=5, ffn_dim=29, image=(17, 11), patch=4, channels=1, activation="gelu-tanh")


@pytest.mark.parametrize("teacher", ["none", "token", "head"])
def test_a_classifier_from_here_opens_there(tmp_path, teacher):
    ours = ViT(ViTConfig(**OURS, labels=LABELS, teacher=teacher)).eval()
    export_model(ours, tmp_path)
    name = "DeiTForImageClassificationWithTeacher" if teacher == "head" else "AutoModelForImageClassification"
    theirs, info = getattr(transformers, name).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    assert theirs.config.id2label == dict(enumerate(LABELS))
    pixels = images(17, 11, 1)
    with torch.no_grad():
        gap = (ours(pixels) - theirs.eval()(pixels).logits).abs().max()
    assert gap <= CLOSE


# ---- MAE --------------------------------------------------------------------------------------------------------

DECODER = dict(
    decoder_hidden_size=16, decoder_num_attention_heads=2, decoder_num_hidden_layers=2, decoder_intermediate_size=19
)
WHOLE = dict(SIZES, hidden_size=24, image_size=20)


@torch.no_grad()
def check_mae(ours, theirs, seed=7):
    """Hidden states of what is seen, the guesses, what was hidden, and the loss."""
    pixels, noise = images(20, 20), torch.rand(B, 16, generator=torch.Generator().manual_seed(seed))
    told = theirs(pixels, noise=noise)
    assert far(ours.features(pixels, noise), theirs.vit(pixels, noise=noise).last_hidden_state) <= CLOSE
    assert far(ours(pixels, noise), told.logits) <= CLOSE
    assert torch.equal(ours.order(noise)[1].float(), told.mask)
    loss, count = masked_pixels(ours, Batch({"pixels": pixels, "noise": noise}, pixels, ()))
    assert count == told.mask.sum() and (loss / count).item() == pytest.approx(told.loss.item(), abs=CLOSE)


@pytest.mark.parametrize("changes", [{}, dict(mask_ratio=0.4, norm_pix_loss=True)])
def test_mae_there_and_back(tmp_path, changes):
    config = transformers.ViTMAEConfig(**WHOLE, **DECODER, **changes)
    theirs = random_model(transformers.ViTMAEForPreTraining, config)
    ours = saved(theirs, tmp_path / "theirs")
    check_mae(ours, theirs)

    export_model(ours, tmp_path / "ours")
    again, info = transformers.ViTMAEForPreTraining.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    check_mae(ours, again.eval())
    assert load_model(tmp_path / "ours").config == ours.config


def test_mae_from_here_opens_there(tmp_path):
    sizes = dict(dim=20, depth=1, heads=5, ffn_dim=29, image=20, patch=5, channels=2, hidden=0.5)
    own = dict(decoder_dim=12, decoder_depth=1, decoder_heads=3, decoder_ffn_dim=17)
    ours = MAE(MAEConfig(**sizes, **own)).eval()
    export_model(ours, tmp_path)
    theirs, info = transformers.ViTMAEForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    check_mae(ours, theirs.eval())


@torch.no_grad()
def test_mae_at_another_resolution(tmp_path):
    """Their encoder; their decoder stretches its positions as if all patches lay in one row."""
    theirs = random_model(transformers.ViTMAEForPreTraining, transformers.ViTMAEConfig(**WHOLE, **DECODER))
    ours, pixels, noise = saved(theirs, tmp_path), images(25, 35), torch.rand(B, 35)
    told = theirs.vit(pixels, noise=noise, interpolate_pos_encoding=True).last_hidden_state
    assert far(ours.features(pixels, noise), told) <= CLOSE
    assert ours(pixels, noise).shape == F.unfold(pixels, 5, stride=5).mT.shape


@pytest.mark.parametrize(
    ("name", "head", "changes", "fragment"),
    [
        (
            "ViT",
            "Model",
            dict(architectures=["ViTForMaskedImageModeling"]),
            "architectures='ViTForMaskedImageModeling'",
        ),
        ("ViT", "Model", dict(qkv_bias=False), "qkv_bias=False"),
        ("ViT", "Model", dict(patch_size=[5, 4]), r"patch_size=\[5, 4\] is not square"),
        ("ViT", "Model", dict(pooler_act="relu"), "pooler_act='relu'"),
        ("DeiT", "Model", dict(architectures=["ViTModel"]), "architectures='ViTModel'"),
        ("ViT", "Model", dict(patch_size=29), "no patch of 29 × 29 pixels fits"),
    ],
)
def test_settings_that_cannot_be_read(tmp_path, name, head, changes, fragment):
    theirs_of(name, head).save_pretrained(tmp_path)
    change_config(tmp_path, **changes)
    with pytest.raises(ValueError, match=f"config.json: .*{fragment}"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("kind", "changes", "fragment"),
    [
        ("vit", dict(pooling="mean"), "pooling='mean' would have to be 'cls'"),
        (
            "vit",
            dict(position="rotary", teacher="token"),
            "position='rotary' .*teacher='token' would have to be 'none'",
        ),
        ("deit", dict(norm="rms"), "norm='rms' .*teacher='none' would have to be 'token' or 'head'"),
    ],
)
def test_what_they_cannot_express(tmp_path, kind, changes, fragment):
    model = ViT(ViTConfig(**OURS | changes, labels=LABELS))
    with pytest.raises(ValueError, match=f"{kind} cannot express this model: .*{fragment}"):
        export_model(model, tmp_path, kind=kind)
