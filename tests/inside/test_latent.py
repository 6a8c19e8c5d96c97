"""The latent space: vectors of every kind of model, a map, directions, and what they make a model write."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from regard.data.sets.collection import Examples
from regard.inside.capture.states import (
    behind,
    block_at,
    blocks_of,
    example_vectors,
    moved,
    read_example,
    token_states,
    vectors_in,
)
from regard.inside.latent.directions import find_direction, steered, walk, write
from regard.inside.latent.space import Map, Space, agreement, by_chance, draw_space, pca
from regard.models import MAE, MAEConfig
from regard.tasks import ImageEncoder
from tests.inside import loaded as texts
from tests.inside import seeing

READERS = {
    "bert": texts.encoder,
    "albert": lambda: texts.encoder(shared=True),
    "gpt": texts.writer,
    "reversible": lambda: texts.writer(reversible=True),
    "lstm": texts.recurrent,
    "t5": texts.translator,
}
EYES = {"vit": seeing.vit, "swin": seeing.swin, "mvit": seeing.mvit, "cnn": seeing.cnn, "detr": seeing.detr}


def of_texts(labels=()):
    return Examples(texts.TEXTS, texts.TEXTS, list(labels), False)


def of_pictures():
    pictures = [seeing.picture(12 + 4 * (i % 2), 20) for i in range(3)]
    return Examples(pictures, ["a", "b", "c"], [], True)


@pytest.mark.parametrize("name", READERS)
def test_states_do_not_depend_on_their_neighbours(name):
    loaded, every = READERS[name](), of_texts()
    for layer in range(len(blocks_of(read_example(loaded, texts.TEXTS[0])))):
        together = list(token_states(loaded, every, layer))
        for i, one in enumerate(together):
            alone = next(token_states(loaded, every.take([i]), layer))
            assert alone.labels == one.labels and len(one.labels) == len(one.vectors)
            torch.testing.assert_close(alone.vectors, one.vectors, atol=2e-5, rtol=1e-4)


def test_last_block_of_an_encoder_is_its_features():
    """Post-norm BERT has nothing behind its last block; its own vector is the mean of those."""
    loaded = texts.encoder()
    own = example_vectors(loaded, of_texts(), None)
    last = example_vectors(loaded, of_texts(), 1)
    torch.testing.assert_close(torch.nn.functional.normalize(last), own)
    first = example_vectors(loaded, of_texts(), 0)
    assert (first - last).abs().max() > 0.01


def test_shared_block_is_seen_in_its_turn():
    loaded = texts.encoder(shared=True)
    blocks = blocks_of(read_example(loaded, texts.TEXTS[0]))
    assert len(blocks) == 2 and blocks[0] is blocks[1]
    first, second = (example_vectors(loaded, of_texts(), layer) for layer in (0, 1))
    assert (first - second).abs().max() > 0.01


@pytest.mark.parametrize("name", EYES)
def test_places_of_pictures(name):
    model = EYES[name]()
    size = (32, 32) if name == "detr" else None
    loaded = seeing.loaded(model, size)
    count = len(blocks_of(read_example(loaded, of_pictures().items[0])))
    assert count >= 2
    for layer in range(count):
        for one in token_states(loaded, of_pictures(), layer):
            rows, columns = one.grid
            assert len(one.vectors) == rows * columns == len(one.labels)
            assert one.labels[-1] == f"{rows - 1},{columns - 1}"
            assert size is not None or columns > rows, "the picture is wider than high"
    assert example_vectors(loaded, of_pictures(), None).shape == (3, loaded.embed(of_pictures().items).shape[1])


def test_masked_autoencoder_reads_with_its_encoder_alone():
    sizes = dict(image=8, channels=1, patch=4, dim=12, depth=2, heads=2, ffn_dim=17)
    model = MAE(MAEConfig(**sizes, decoder_dim=12, decoder_depth=1, decoder_heads=2))
    loaded = ImageEncoder(model, seeing.loaded(seeing.vit(image=8)).preprocessing)
    assert len(blocks_of(read_example(loaded, seeing.picture(8, 8)))) == 2
    found = next(token_states(loaded, Examples([seeing.picture(8, 8)], ["a"], [], True), 1))
    assert found.grid == (2, 2)


def test_pca_is_scikit_learns():
    x = np.random.default_rng(0).normal(size=(40, 7)) * np.arange(1, 8)
    points, axes, shares = pca(torch.from_numpy(x), 3)
    theirs = PCA(3, svd_solver="full").fit(x)
    np.testing.assert_allclose(shares, theirs.explained_variance_ratio_, atol=1e-12)
    signs = np.sign((axes.numpy() * theirs.components_).sum(1))
    np.testing.assert_allclose(points.numpy() * signs, theirs.transform(x), atol=1e-9)
    assert (axes.gather(1, axes.abs().argmax(1, keepdim=True)) > 0).all()
    turned, _, _ = pca(torch.from_numpy(x[::-1].copy()), 3)
    np.testing.assert_allclose(turned.numpy()[::-1], points.numpy(), atol=1e-9)


def test_agreement_is_counted_as_scikit_learn_does():
    x = torch.randn(700, 3, generator=torch.Generator().manual_seed(0))
    labels = ["ab"[int(one > 0)] for one in x[:, 0]]
    near = NearestNeighbors(n_neighbors=11).fit(x.numpy()).kneighbors(x.numpy(), return_distance=False)[:, 1:]
    wanted = np.mean([[labels[j] == labels[i] for j in row] for i, row in enumerate(near)])
    assert agreement(x, labels) == pytest.approx(wanted, abs=1e-3)
    assert by_chance(["a", "a", "b", "b"]) == pytest.approx(1 / 3)


def test_map_needs_examples_that_differ():
    with pytest.raises(ValueError, match="at least 3"):
        pca(torch.randn(2, 4))
    with pytest.raises(ValueError, match="the same vector"):
        pca(torch.ones(5, 4))


def test_umap_is_used_if_it_is_there(monkeypatch):
    space = Space(of_texts(), torch.randn(4, 5), None)
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(ImportError, match="pip install umap-learn"):
        Map.of(space, "umap")
    fake = SimpleNamespace(UMAP=lambda random_state: SimpleNamespace(fit_transform=lambda x: x[:, :2] + random_state))
    monkeypatch.setitem(sys.modules, "umap", fake)
    assert torch.allclose(Map.of(space, "umap").points.float(), space.x[:, :2])


def test_picture_of_a_map(tmp_path):
    x = torch.randn(60, 5)
    examples = Examples([""] * 60, [str(i) for i in range(60)], [f"class {i % 30}" for i in range(60)], False)
    along = find_direction(x[:30], x[30:])
    figure = draw_space(Map.of(Space(examples, x, 3)), tmp_path / "map.svg", along, x[0])
    axes = figure.axes[0]
    assert "behind block 3" in axes.get_title(loc="left") and "% of the variance" in axes.get_xlabel()
    named = [text.get_text() for text in axes.get_legend().get_texts()]
    assert len(named) == 25 and named[0] == "others"
    assert sum(len(dots.get_offsets()) for dots in axes.collections) == 60
    assert {"-4", "+0", "+4"} <= {text.get_text() for text in axes.texts}
    assert (tmp_path / "map.svg").stat().st_size > 5000


def test_direction_separates_what_can_be_separated():
    dice = torch.Generator().manual_seed(0)
    one, other = torch.randn(200, 20, generator=dice), torch.randn(120, 20, generator=dice)
    blind = find_direction(one, other)
    assert blind.held == 160 and abs(blind.accuracy - 0.5) < 0.12, (
        "noise is told apart only if means saw what is scored"
    )
    apart = torch.zeros(20)
    apart[3] = 6
    found = find_direction(one, other + apart)
    assert found.accuracy > 0.98
    assert torch.cosine_similarity(found.vector, apart, dim=0) > 0.95
    with pytest.raises(ValueError, match="at least 2"):
        find_direction(one, other[:1])
    with pytest.raises(ValueError, match="no direction"):
        find_direction(torch.ones(4, 3), torch.ones(4, 3))


def test_walk_meets_the_other_side():
    x = torch.arange(9.0)[:, None] * torch.tensor([[1.0, 0.0]])
    examples = Examples([""] * 9, [str(i) for i in range(9)], list("aaaabbbbb"), False)
    along = find_direction(torch.tensor([[1.0, 0.0]] * 2), torch.tensor([[2.0, 0.0]] * 2))
    stops = walk(None, Examples([""], ["4"], [], False), x[4], along, examples, x, None)
    assert [stop["step"] for stop in stops] == [-4, -2, -1, 0, 1, 2, 4]
    assert [stop["nearest"][0]["name"] for stop in stops] == ["0", "2", "3", "3", "5", "6", "8"]
    assert all(near["name"] != "4" for stop in stops for near in stop["nearest"]), "not where it started"
    assert stops[0]["nearest"][0]["label"] == "a" and "writes" not in stops[0]


@pytest.mark.parametrize("name", ["gpt", "reversible", "lstm", "t5"])
def test_steering_moves_exactly_this_and_leaves_nothing(name):
    """Vectors are the old ones and the direction, something else is written, and then all is as it was."""
    loaded, text = READERS[name](), texts.TEXTS[0]
    loaded.generation = loaded.generation | dict(max_length=20, num_beams=1, force_end=False, length_penalty=1.0)
    prepared = read_example(loaded, text)
    before = write(prepared)
    weights = [one.clone() for one in loaded.model.parameters()]
    width = next(token_states(loaded, of_texts(), 0)).vectors.shape[1]
    by = torch.randn(width, generator=torch.Generator().manual_seed(0)) * 20
    old = next(token_states(loaded, of_texts(), 0)).vectors
    with steered(prepared, 0, by):
        new = next(token_states(loaded, of_texts(), 0)).vectors
        changed = write(prepared)
    torch.testing.assert_close(new, old + by, atol=1e-4, rtol=1e-4)
    with steered(prepared, 0, torch.zeros(width)):
        assert write(prepared) == before
    assert changed != before
    assert write(prepared) == before
    assert not any(part._forward_hooks for part in loaded.model.modules())
    assert all(torch.equal(old, new) for old, new in zip(weights, loaded.model.parameters(), strict=True))


def test_hooks_go_when_a_model_fails():
    loaded = texts.writer()
    blocks = blocks_of(read_example(loaded, texts.TEXTS[0]))
    with pytest.raises(RuntimeError), behind(blocks, 1, lambda output: None):
        raise RuntimeError
    assert not blocks[1]._forward_hooks


def test_outputs_of_every_shape_can_be_moved():
    by = torch.tensor([1.0, 2.0])
    assert torch.equal(moved(torch.zeros(1, 3, 2), by), by.expand(1, 3, 2))
    assert torch.equal(moved(torch.zeros(1, 2, 3, 4), by)[0, 1], torch.full((3, 4), 2.0))
    pair = moved((torch.zeros(1, 3, 2), "grid"), by)
    assert pair[1] == "grid" and torch.equal(vectors_in(pair), by.expand(1, 3, 2))


def test_block_numbers():
    blocks = blocks_of(read_example(texts.writer(), "bank"))
    assert [block_at(blocks, one) for one in (None, 0, -2)] == [1, 0, 0]
    with pytest.raises(ValueError, match="no block 2: the model has 2, 0 to 1"):
        block_at(blocks, 2)


@pytest.mark.parametrize("make", [texts.writer, texts.recurrent])
@pytest.mark.parametrize("before", [[], texts.TEXTS])
def test_a_text_without_tokens_is_named(make, before):
    some = Examples([*before, ""], [*before, ""], [], False)
    with pytest.raises(ValueError, match="the example '' has no tokens; leave it out, or give it some words"):
        Space.of(make(), some)
