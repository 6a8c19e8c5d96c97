"""Against Hugging Face's DETR: pictures alone and in padded batches, the loss, the pixels; and the way back."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from regard.cost import cost
from regard.data.sets.batches import IGNORE
from regard.hub import export_model, load_model
from regard.hub.preprocessor import load_preprocessing, save_preprocessing
from regard.inside.capture import look
from regard.models import preset
from regard.models.detr import DETR, DETRConfig
from regard.nn.heads import split_predictions
from regard.objectives.matching import generalized_iou, match, set_loss
from tests.parity.peers import CLOSE, change_config, change_tensors, far, random_model, saved

transformers = pytest.importorskip("transformers")
losses = pytest.importorskip("transformers.loss.loss_for_object_detection")

B, LABELS = 3, ("no", "perhaps", "yes", "never", "always")
SIZES = torch.tensor([[53, 71], [31, 60], [47, 17]])
BASIC = dict(embedding_size=5, hidden_sizes=[8, 12, 20], depths=[1, 2, 1], layer_type="basic")
NARROW = dict(embedding_size=5, hidden_sizes=[8, 12, 16, 28], depths=[2, 1, 1, 1], layer_type="bottleneck")


def theirs_of(backbone=BASIC, **changes):
    net = transformers.ResNetConfig(**backbone, out_features=[f"stage{len(backbone['depths'])}"])
    sizes = dict(
        d_model=24, encoder_layers=2, decoder_layers=3, encoder_attention_heads=3, decoder_attention_heads=3,
        encoder_ffn_dim=37, decoder_ffn_dim=37, num_queries=7, id2label=dict(enumerate(LABELS)),
        label2id={label: i for i, label in enumerate(LABELS)},
    )  # fmt: skip
    config = transformers.DetrConfig(use_timm_backbone=False, backbone_config=net, **sizes | changes)
    model, dice = random_model(transformers.DetrForObjectDetection, config), torch.Generator().manual_seed(3)
    for name, buffer in model.named_buffers():
        if "normalization" in name:
            buffer += 0.3 * torch.rand(buffer.shape, generator=dice)
    return model


def images(sizes=None, rows=53, columns=71):
    pixels = torch.randn(B, 3, rows, columns, generator=torch.Generator().manual_seed(5))
    if sizes is None:
        return pixels, None
    down, right = torch.arange(rows)[:, None] < sizes[:, 0, None, None], torch.arange(columns) < sizes[:, 1, None, None]
    return pixels * (down & right)[:, None], (down & right).long()


@torch.no_grad()
def check(ours, theirs, sizes=None):
    pixels, mask = images(sizes)
    told = theirs(pixels, pixel_mask=mask)
    scores, boxes = split_predictions(ours(pixels, sizes))
    assert far(scores, told.logits) <= CLOSE and (boxes - told.pred_boxes).abs().max() <= CLOSE
    assert far(ours.features(pixels, sizes), told.last_hidden_state) <= CLOSE


@pytest.mark.parametrize("sizes", [None, SIZES], ids=["alone", "padded"])
@pytest.mark.parametrize("backbone", [BASIC, NARROW], ids=["basic", "bottleneck"])
def test_there_and_back(tmp_path, backbone, sizes):
    theirs = theirs_of(backbone)
    ours = saved(theirs, tmp_path / "theirs")
    assert ours.config.labels == LABELS and ours.config.bottleneck == (backbone is NARROW)
    check(ours, theirs, sizes)
    export_model(ours, tmp_path / "ours")
    again, info = transformers.AutoModelForObjectDetection.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    assert again.config.id2label == dict(enumerate(LABELS))
    check(ours, again.eval(), sizes)
    assert load_model(tmp_path / "ours").config == ours.config


def test_a_model_whose_norms_learned_opens_there(tmp_path):
    net = dict(stem=5, widths=(8, 12), blocks=(1, 1), bottleneck=False, frozen=False)
    ours = DETR(DETRConfig(**net, dim=20, heads=5, depth=1, decoder_depth=2, ffn_dim=29, queries=6, labels=LABELS))
    ours.train()(images()[0])  # statistics that are not those at the start
    export_model(ours.eval(), tmp_path)
    theirs, info = transformers.AutoModelForObjectDetection.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    with torch.no_grad():
        told, (scores, boxes) = theirs.eval()(images()[0]), split_predictions(ours(images()[0]))
    assert (scores - told.logits).abs().max() <= CLOSE and (boxes - told.pred_boxes).abs().max() <= CLOSE
    assert load_model(tmp_path).config.frozen


def timm_names(tensors):
    """The same tensors as a checkpoint with timm's ResNet names them."""
    found = {}
    for name, tensor in tensors.items():
        parts = name.removeprefix("model.backbone.conv_encoder.model.").split(".")
        kinds = {"convolution": ("conv", "0"), "normalization": ("bn", "1")}
        if name.startswith("model.backbone") and parts[0] == "embedder":
            name = f"model.backbone.conv_encoder.model.{kinds[parts[2]][0]}1.{parts[3]}"
        elif name.startswith("model.backbone"):
            _, _, stage, _, block, what, *rest = parts
            if what == "shortcut":
                inner = f"downsample.{kinds[rest[0]][1]}"
            else:
                inner = f"{kinds[rest[1]][0]}{int(rest[0]) + 1}"
            name = f"model.backbone.conv_encoder.model.layer{int(stage) + 1}.{block}.{inner}.{rest[-1]}"
        found[name] = tensor
    return found


def test_the_names_of_published_checkpoints(tmp_path, monkeypatch):
    from regard.hub.maps import detr

    theirs = theirs_of(NARROW)
    ours = saved(theirs, tmp_path)
    change_tensors(tmp_path, timm_names)
    change_config(tmp_path, backbone_config=None, backbone="resnet50", use_timm_backbone=True)
    small = dict(widths=(8, 12, 16, 28), blocks=(2, 1, 1, 1), bottleneck=True)
    monkeypatch.setattr(detr, "read_backbone", lambda theirs: dict(stem=5, **small))  # a whole ResNet-50 takes long
    again = load_model(tmp_path)
    assert again.config == ours.config
    check(again, theirs)


def test_what_a_config_that_only_names_its_backbone_means():
    from regard.hub.maps.detr import read_backbone

    published = DETRConfig()
    for told in (
        dict(backbone="resnet50"),
        dict(backbone_config=dict(model_type="timm_backbone", backbone="resnet50")),
    ):
        found = read_backbone(told)
        assert {name: getattr(published, name) for name in found} == found
    with pytest.raises(ValueError, match="backbone='vgg16' cannot be read"):
        read_backbone(dict(backbone="vgg16"))


def test_the_published_size():
    net = transformers.ResNetConfig(out_features=["stage4"])
    config = transformers.DetrConfig(use_timm_backbone=False, backbone_config=net, num_labels=91)
    ours = preset("detr", "detr-r50", labels=tuple(map(str, range(91))))
    with torch.device("meta"):
        models = DETR(ours), transformers.DetrForObjectDetection(config)
    sizes = [sum(parameter.numel() for parameter in model.parameters()) for model in models]
    assert sizes == [cost(ours).parameters["total"]] * 2 == [41_524_768] * 2


def things(seed=7):
    """Pictures with three, one and no things, for both."""
    dice = torch.Generator().manual_seed(seed)
    targets = torch.zeros(B, 3, 5)
    targets[..., 0] = IGNORE
    for row, count in enumerate((3, 1, 0)):
        targets[row, :count, 0] = torch.randint(len(LABELS), (count,), generator=dice).float()
        targets[row, :count, 1:] = 0.2 + 0.4 * torch.rand(count, 4, generator=dice)
    told = [
        {"class_labels": row[row[:, 0] != IGNORE, 0].long(), "boxes": row[row[:, 0] != IGNORE, 1:]} for row in targets
    ]
    return targets, told


def test_the_loss_and_the_matching(tmp_path):
    theirs = theirs_of()
    ours, (pixels, mask), (targets, told) = saved(theirs, tmp_path), images(SIZES), things()
    states = ours.states(pixels, SIZES)
    with torch.no_grad():
        wanted = theirs(pixels, pixel_mask=mask, labels=told).loss
        last = set_loss(ours.answers(states[-1:]), targets)
        assert last.item() == pytest.approx(wanted.item(), abs=CLOSE)
        scores, boxes = split_predictions(ours.answers(states))
        config = theirs.config
        config.auxiliary_loss = True
        every, _, _ = losses.ForObjectDetectionLoss(scores[-1], told, "cpu", boxes[-1], config, scores, boxes)
        assert set_loss(ours.answers(states), targets).item() == pytest.approx(every.item(), rel=1e-6)
        pairs = losses.HungarianMatcher(1, 5, 2)({"logits": scores[1], "pred_boxes": boxes[1]}, told)
        found = match(scores[1], boxes[1], targets)
    for row, (guesses, places) in enumerate(pairs):
        assert found[row][places].tolist() == guesses.tolist() and (found[row] != IGNORE).sum() == len(places)


def test_generalized_overlap_is_theirs():
    dice = torch.Generator().manual_seed(1)
    low, size = torch.rand(2, 11, 2, generator=dice), torch.rand(2, 11, 2, generator=dice)
    one, other = torch.cat([low, low + size], dim=-1)
    assert far(generalized_iou(one[:, None], other), losses.generalized_box_iou(one, other)) <= 1e-6


def test_attention_is_theirs(tmp_path):
    theirs = theirs_of()
    theirs.set_attn_implementation("eager")
    ours, (pixels, mask) = saved(theirs, tmp_path), images(SIZES)
    with torch.no_grad(), look(ours) as seen:
        within = ours(pixels, SIZES)
        wanted = theirs(pixels, pixel_mask=mask, output_attentions=True)
    assert torch.equal(within, ours(pixels, SIZES))
    theirs_by_kind = {
        "encoder": wanted.encoder_attentions, "decoder": wanted.decoder_attentions, "cross": wanted.cross_attentions,
    }  # fmt: skip
    for kind, maps in theirs_by_kind.items():
        found = seen.of(kind)
        assert len(found) == len(maps) == (2 if kind == "encoder" else 3)
        for got, right in zip(found, maps, strict=True):
            assert (got - right).abs().max() <= CLOSE
    cells = seen.of("cross")[0].shape[-1]
    hidden = seen.of("cross")[0][2].sum((0, 1)) == 0
    assert 0 < hidden.sum() < cells and not (seen.of("cross")[0][0].sum((0, 1)) == 0).any()


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        (dict(architectures=["DetrForSegmentation"]), "architectures='DetrForSegmentation' is not known"),
        (dict(position_embedding_type="learned"), "position_embedding_type='learned'"),
        (dict(dilation=True), "dilation=True"),
        (dict(auxiliary_loss=True), "auxiliary_loss=True"),
        (dict(decoder_ffn_dim=41), "encoder_ffn_dim=37 and decoder_ffn_dim=41 differ"),
        (dict(backbone_config={"model_type": "swin"}), "backbone_config.model_type='swin' is not known"),
        (dict(backbone_config={"model_type": "resnet", "hidden_act": "gelu"}), "backbone_config.hidden_act='gelu'"),
    ],
)
def test_settings_that_cannot_be_read(tmp_path, changes, fragment):
    theirs_of().save_pretrained(tmp_path)
    change_config(tmp_path, **changes)
    with pytest.raises(ValueError, match=f"config.json: .*{fragment}"):
        load_model(tmp_path)


def test_what_they_cannot_express(tmp_path):
    net = dict(stem=5, widths=(8,), blocks=(1,), bottleneck=False)
    model = DETR(DETRConfig(**net, dim=20, heads=5, depth=1, decoder_depth=1, contents=True, norm_place="pre"))
    with pytest.raises(ValueError, match="norm_place='pre' would have to be 'post'; contents=True .* False"):
        export_model(model, tmp_path)


# ---- pixels -----------------------------------------------------------------------------------------------------


def picture(rows, columns, seed=3):
    small = np.random.default_rng(seed).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((columns, rows), Image.Resampling.BICUBIC)


@pytest.mark.parametrize("changes", [{}, dict(size={"shortest_edge": 37, "longest_edge": 61}, resample=3)])
@pytest.mark.parametrize("size", [(61, 97), (97, 61), (37, 37), (1, 1), (19, 400), (37, 200)])
def test_pixels_are_theirs(tmp_path, changes, size):
    theirs, image = transformers.DetrImageProcessorPil(**changes), picture(*size)
    theirs.save_pretrained(tmp_path)
    ours = load_preprocessing(tmp_path, DETRConfig())
    wanted = theirs(image, return_tensors="pt").pixel_values[0]
    found = torch.from_numpy(ours(image))
    assert found.shape == wanted.shape and (found - wanted).abs().max() <= CLOSE
    save_preprocessing(tmp_path / "again", ours)
    assert load_preprocessing(tmp_path / "again", DETRConfig()) == ours
    again = transformers.DetrImageProcessorPil.from_pretrained(tmp_path / "again")
    assert (again(image, return_tensors="pt").pixel_values[0] - wanted).abs().max() <= CLOSE


def test_an_older_file(tmp_path):
    told = dict(feature_extractor_type="DetrFeatureExtractor", size=800, max_size=1333, format="coco_detection")
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(told))
    ours = load_preprocessing(tmp_path, DETRConfig())
    assert (ours.shortest, ours.longest, ours.mean[0]) == (800, 1333, 0.485)
