"""Where models look on a picture, beside weights set by hand, formulas in numpy, and what `transformers` says."""

import numpy as np
import pytest
import torch

from regard.hub.checkpoint import load_model
from regard.inside.capture.image import image_weights, query_objects
from regard.inside.capture.weights import look
from regard.inside.draw.overlays import overlay
from regard.inside.views import explain, show_view
from regard.inside.views.image import query_name, show_rollout, window_numbers
from regard.models import CLIP, GPT, MAE, Captioner, CaptionerConfig, CLIPConfig, GPTConfig, MAEConfig, ViT, ViTConfig
from regard.nn.grids import PatchGrid
from regard.tasks import PixelModel
from regard.tasks.object_detector import ObjectDetector
from regard.tokens.pixel_tokenizer import PixelTokenizer
from tests.inside.loaded import spread_out
from tests.inside.seeing import PATCHES, cnn, detr, loaded, mvit, picture, swin, vit

transformers = pytest.importorskip("transformers")


def test_one_that_paints_looks_back_at_its_pixels():
    size = PixelTokenizer(rows=3, columns=4, channels=1, levels=4)
    model = spread_out(GPT(GPTConfig(vocab_size=5, max_len=12, dim=12, heads=3, depth=2, ffn_dim=8, dropout=0.0)))
    painter, image = PixelModel(model, size), picture(3, 4)
    ids = torch.tensor([[4, *size.encode(np.asarray(image)[None, :, :, None])[0]]])
    with torch.inference_mode(), look(model) as seen:
        model(ids)
    sight = image_weights(painter.read(image))
    assert query_name(sight, None) == "the last pixel"
    for layer, weights in zip(sight.layers, seen.of("decoder"), strict=True):
        maps = torch.from_numpy(sight.maps(layer))
        torch.testing.assert_close(maps.flatten(1), weights[0, :, -1, 1:])
        early = torch.from_numpy(sight.maps(layer, (1, 2))).flatten(1)
        torch.testing.assert_close(early, weights[0, :, 7, 1:])
        assert not early[:, 7:].any() and early[:, :7].all()
    np.testing.assert_array_equal(sight.pixels, size.decode(ids[:, 1:].numpy())[0])
    with pytest.raises(ValueError, match="a GPT for this input are not explained by gradient; leave out --view"):
        explain(painter.read(image), "gradient")


# ---- known weights -----------------------------------------------------------------------------------------------


def test_a_head_that_looks_at_one_patch_glows_there():
    model, patch = ViT(ViTConfig(**PATCHES)), (1, 3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        block = model.encoder.blocks[0]
        block.norms["attention"].weight.fill_(1)
        model.encoder.position.table[1 + patch[0] * 5 + patch[1], 0] = 10  # only this patch differs from zero
        block.attention.query.bias[6] = 1  # the second head's first number
        block.attention.key_value.weight[6, 0] = 30
    sight = image_weights(loaded(model).read(picture(12, 20)))
    first, second = sight.maps(sight.layers[0])
    np.testing.assert_allclose(first, 1 / 16, rtol=1e-4)
    assert second[patch] > 0.999
    drawn = overlay(sight.pixels, second, cell=(4, 4))
    times, light = drawn.shape[0] // 12, drawn.sum(-1)
    inside = np.zeros(light.shape, dtype=bool)
    inside[4 * times : 8 * times, 12 * times : 16 * times] = True
    assert light[inside].min() > light[~inside].max()
    assert float(sight.layers[0].entropy(sight.queries(sight.layers[0]))[1]) == pytest.approx(0, abs=0.01)
    assert float(sight.layers[0].entropy(sight.queries(sight.layers[0]))[0]) == pytest.approx(4, abs=0.01)


@pytest.mark.parametrize("size", [(16, 16), (14, 18), (13, 11)])  # divided by the windows, not divided, nor by patches
@pytest.mark.parametrize("version", ["learned", "log"])
def test_a_window_head_that_looks_at_its_neighbour_is_brought_back_to_the_grid(size, version):
    """A bias alone makes each place look one down and two left, if that place is in its window."""
    down, left = 1, 2
    model = swin(image=(14, 14), offsets=version, kernel="full")
    sight = image_weights(loaded(model).read(picture(*size)), layers=[0, 1])
    window, found = sight.layers[0].windows.size, 0
    for block in model.stages[0].blocks:
        numbers = torch.zeros(2 * window - 1, 2 * window - 1, 2)
        numbers[window - 1 - down, window - 1 + left, 1] = 50  # row and column of the query less those of the key
        block.position.numbers = lambda numbers=numbers: numbers.flatten(0, 1)
        for parameter in (*block.attention.query.parameters(), *block.attention.key_value.parameters()):
            torch.nn.init.zeros_(parameter)
    sight = image_weights(loaded(model).read(picture(*size)), layers=[0, 1])
    assert [layer.windows.shift for layer in sight.layers] == [0, 2]
    rows, columns = sight.patches.grid
    for layer in sight.layers:
        cut = layer.windows
        at = {}
        for place in np.ndindex(rows, columns):  # which window, and which side of the seam that rolling made
            rolled = [(i - cut.shift) % full for i, full in zip(place, cut.filled, strict=True)]
            at[place] = (*(i // cut.size for i in rolled), *(i < cut.shift for i in place))
        numbers = window_numbers(layer)
        for place in np.ndindex(rows, columns):
            there = (place[0] + down, place[1] - left)
            seen = sight.maps(layer, place)[1]
            assert seen.sum() <= 1 + 1e-5
            for other in map(tuple, np.argwhere(seen > 1e-6).tolist()):
                assert at[other] == at[place] and numbers[other] == numbers[place]
            if at.get(there) == at[place]:
                assert seen[there] > 0.999
                found += 1
            elif there in at:
                assert seen[there] < 1e-6 and numbers[there] != numbers[place]
    assert found > 15


def test_the_mean_of_all_places_is_the_mean_of_each():
    for model in (swin(), mvit(), cnn(), vit(pooling="mean")):
        sight = image_weights(loaded(model).read(picture(14, 18)))
        assert query_name(sight, None) == "all cells together"
        for layer in sight.layers:
            one_by_one = torch.stack([layer.attended(row) for row in torch.eye(len(layer.queries))])
            torch.testing.assert_close(layer.attended(sight.queries(layer)), one_by_one.mean(0), atol=1e-5, rtol=1e-4)


# ---- rollout -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [None, (2, 1)])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_rollout_is_the_product_of_the_paper(pooling, at):
    model = vit(depth=3, pooling=pooling)
    first = int(pooling == "cls")
    sight = image_weights(loaded(model).read(picture(12, 20)))
    joint = np.eye(15 + first)
    for layer in sight.layers:
        mean = layer.weights[0].double().numpy().mean(0)
        mixed = mean + np.eye(len(mean))
        joint = mixed / mixed.sum(-1, keepdims=True) @ joint
    row = joint.mean(0) if at is None and not first else joint[0 if at is None else first + 2 * 5 + 1]
    np.testing.assert_allclose(sight.rollout(at), row[first:].reshape(3, 5), atol=1e-6)
    assert show_rollout(loaded(model).read(picture(12, 20)), layer=-3)[0]["layers"] == 1


@pytest.mark.parametrize("make", [swin, mvit, cnn])
def test_rollout_through_grids_that_shrink_is_a_product_too(make):
    """With dense matrices: a coarse place is the mean of those that it was made of."""

    def averages(coarse, fine):
        owners = np.array([coarse.index_of(place, fine) for place in np.ndindex(*fine.grid)])
        found = (np.arange(len(coarse))[:, None] == owners).astype(float)
        return found / found.sum(1, keepdims=True)

    sight = image_weights(loaded(make()).read(picture(13, 18)))
    assert len({layer.keys for layer in sight.layers}) > 1
    joint, inputs = np.eye(len(sight.patches)), sight.patches
    for layer in sight.layers:
        seen = torch.stack([layer.attended(row).mean(0) for row in torch.eye(len(layer.queries))]).double().numpy()
        seen = seen / seen.sum(1, keepdims=True)  # what a query gave to places that only fill up goes to the others
        joint = (averages(layer.queries, inputs) + seen @ averages(layer.keys, inputs)) / 2 @ joint
        inputs = layer.queries
    got = sight.rollout()
    assert got.shape == sight.patches.grid and got.sum() == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(got.ravel(), joint.mean(0), atol=1e-6)


# ---- families ----------------------------------------------------------------------------------------------------


def test_weights_are_those_of_transformers(tmp_path):
    sizes = dict(hidden_size=12, num_attention_heads=2, num_hidden_layers=2, intermediate_size=17, image_size=12)
    config = transformers.DeiTConfig(**sizes, patch_size=4, num_channels=3, attn_implementation="eager")
    theirs = spread_out(transformers.DeiTModel(config)).eval()
    theirs.save_pretrained(tmp_path)
    ours = loaded(load_model(tmp_path), size=(12, 12))
    sight = image_weights(ours.read(picture(31, 17, "RGB")))
    assert sight.pixels.shape == (12, 12, 3) and sight.layers[0].prefix == 2  # as the model sees it
    pixels = torch.from_numpy(ours.preprocessing.numbers(sight.pixels))[None]
    with torch.no_grad():
        wanted = theirs(pixels, output_attentions=True).attentions
    for layer, right in zip(sight.layers, wanted, strict=True):
        np.testing.assert_allclose(sight.maps(layer), right[0, :, 0, 2:].reshape(2, 3, 3).numpy(), atol=1e-5)
        np.testing.assert_allclose(sight.maps(layer, (1, 2)), right[0, :, 7, 2:].reshape(2, 3, 3).numpy(), atol=1e-5)


def test_mae_and_clip_are_seen_through_their_tower():
    sizes = dict(PATCHES, image=12)
    decoder = dict(decoder_dim=8, decoder_depth=1, decoder_heads=2, decoder_ffn_dim=9)
    text = dict(vocab_size=31, max_len=7, text_dim=8, text_depth=1, text_heads=2, text_ffn_dim=9, embedding_dim=6)
    for model in (MAE(MAEConfig(**sizes, **decoder)), CLIP(CLIPConfig(**sizes, **text))):
        model = spread_out(model)
        sight = image_weights(loaded(model).read(picture(12, 20)))
        part = model.vit if isinstance(model, MAE) else model.vision
        pixels = torch.from_numpy(loaded(model).preprocessing.numbers(sight.pixels))[None]
        with torch.no_grad(), look(part) as seen:
            part(pixels)
        assert [layer.number for layer in sight.layers] == [0, 1] and sight.patches == PatchGrid((3, 5), 4)
        for layer, right in zip(sight.layers, seen.of("self"), strict=True):
            np.testing.assert_allclose(sight.maps(layer), right[0, :, 0, 1:].reshape(2, 3, 5).numpy(), atol=1e-6)


def test_pooled_keys_lie_on_a_coarser_grid():
    sight = image_weights(loaded(mvit(key_stride=4)).read(picture(14, 18)))
    assert [layer.queries for layer in sight.layers] == [PatchGrid((7, 9), 2)] * 2 + [PatchGrid((4, 5), 4)] * 2
    coarse, fine = PatchGrid((2, 3), 8), PatchGrid((4, 5), 4)
    assert [layer.keys for layer in sight.layers] == [coarse, coarse, fine, coarse]
    for layer in sight.layers:
        np.testing.assert_allclose(sight.maps(layer, (6, 8)).sum((1, 2)), 1, atol=1e-5)
    assert len(image_weights(loaded(cnn()).read(picture(14, 18))).layers) == 3


def test_the_queries_of_a_detr():
    model = loaded(detr(), kind=ObjectDetector)
    image = picture(33, 40)
    prepared = model.read(image)
    found, places = query_objects(prepared, least=0.0), prepared.sequences[0].grid
    assert places == PatchGrid((5, 5), 8) and len(found) == 5 and prepared.image.shape == (33, 40, 1)
    for one, other in zip(found, model.detect([image], threshold=0.0)[0], strict=True):
        assert (one.label, one.score) == (other.label, pytest.approx(other.score, abs=1e-6))
        assert one.box == pytest.approx(other.box, abs=1e-3)
    pixels = torch.from_numpy(model.pixels([image])[0])[None]
    with torch.no_grad(), look(model.model, layers="cross") as seen:
        model.model(pixels)
    for one in found:
        np.testing.assert_allclose(one.weights.ravel(), seen.of("cross")[-1][0, :, one.query].mean(0), atol=1e-6)
    single = query_objects(prepared, layer=0, head=2, least=0.0)
    np.testing.assert_allclose(single[0].weights.ravel(), seen.of("cross")[0][0, 2, single[0].query], atol=1e-6)
    assert query_objects(prepared, least=1.0) == []
    encoder = image_weights(model.read(image))
    assert len(encoder.layers) == 2 and encoder.patches == places
    with pytest.raises(ValueError, match="no attention layer 2: the model has 2, 0 to 1"):
        query_objects(prepared, layer=2)


# ---- sizes and mistakes ------------------------------------------------------------------------------------------


def test_one_layer_and_one_head_are_all_that_is_seen():
    sight = image_weights(loaded(vit()).read(picture(12, 20)), layers=-1, head=1)
    whole = image_weights(loaded(vit()).read(picture(12, 20)))
    assert [(layer.number, layer.heads) for layer in sight.layers] == [(1, (1,))]
    assert [layer.heads for layer in whole.layers] == [(0, 1), (0, 1)]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (dict(layer=2), "no attention layer 2: the model has 2, 0 to 1"),
        (dict(layer=-3, name="rollout"), "no attention layer -3"),
        (dict(head=2), "has no head 2: it has 2, 0 to 1"),
        (dict(head=0, name="rollout"), "the view rollout has no option head"),
        (dict(name="windows"), "a ViT has no view 'windows' of this input; use heads or rollout"),
        (dict(name="words"), "a ViT has no view 'words'"),
        (dict(patch=(3, 0)), "no patch 3,0: the image has 3 × 5, 0,0 to 2,4"),
    ],
)
def test_mistakes_are_said(how, said):
    with pytest.raises(ValueError, match=said):
        show_view(loaded(vit()).read(picture(12, 20)), **how)


def test_places_outside_and_families_unknown():
    sight = image_weights(loaded(vit()).read(picture(14, 23)))  # what does not fill a patch is cut off
    assert sight.patches.grid == (3, 5)
    for at in [(3, 0), (0, 5), (-1, 0)]:
        with pytest.raises(ValueError, match="the image has 3 × 5, 0,0 to 2,4"):
            sight.maps(sight.layers[0], at)
    writer = Captioner(CaptionerConfig(vocab_size=9, widths=(4,), dim=8, heads=2, ffn_dim=9, channels=1))
    with pytest.raises(ValueError, match="ConvStem has no attention to look at"):
        image_weights(loaded(writer).read(picture(12, 20)))
