"""ELMo: published weights against NumPy in TensorFlow's order, padding, mixed layers, both directions in training."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from fuzz.hdf5 import hdf5
from regard.data.sets.batches import IGNORE, Batch
from regard.hub.hdf5 import read_hdf5
from regard.hub.maps.elmo import elmo_files, fields_of, read_elmo, tensors_of
from regard.inside.latent.words import compare_word
from regard.models import BiLSTM, BiLSTMConfig
from regard.nn.recurrent import LSTMLayer, reverse
from regard.objectives.both_sides import both_sides
from regard.recipes import fit, recipe
from regard.registry import models
from regard.tasks import ContextualEncoder, load
from regard.tokens.characters import spell

DIM, CELLS, LETTER, FILTERS = 5, 7, 3, (4, 2, 6)
OPTIONS = {
    "lstm": {"cell_clip": 0.5, "proj_clip": 0.5, "use_skip_connections": True, "n_layers": 2, "projection_dim": DIM,
             "dim": CELLS},
    "char_cnn": {"embedding": {"dim": LETTER}, "filters": [[1, 4], [2, 2], [3, 6]], "n_highway": 2,
                 "n_characters": 262, "max_characters_per_token": 11, "activation": "relu"},
}  # fmt: skip


def published(seed=0):
    """Arrays with the names and shapes of a published model, large enough to be clipped."""
    rng, wide = np.random.default_rng(seed), sum(FILTERS)
    shapes = {"char_embed": (261, LETTER), "CNN_proj/W_proj": (wide, DIM), "CNN_proj/b_proj": (DIM,)}
    for i, count in enumerate(FILTERS):
        shapes |= {f"CNN/W_cnn_{i}": (1, i + 1, LETTER, count), f"CNN/b_cnn_{i}": (count,)}
    for i in range(2):
        for name in ("carry", "transform"):
            shapes |= {f"CNN_high_{i}/W_{name}": (wide, wide), f"CNN_high_{i}/b_{name}": (wide,)}
        for layer in range(2):
            cell = f"RNN_{i}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            shapes |= {f"{cell}/W_0": (2 * DIM, 4 * CELLS), f"{cell}/B": (4 * CELLS,), f"{cell}/W_P_0": (CELLS, DIM)}
    return {name: 0.8 * rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_numpy(arrays, words):
    """The layers of one sentence as TensorFlow computes them: one word, one step after the other."""
    vectors = []
    for word in words:
        letters = arrays["char_embed"][np.array(spell(word, 11)) - 1]
        found = []
        for i in range(len(FILTERS)):
            kernel, bias = arrays[f"CNN/W_cnn_{i}"][0], arrays[f"CNN/b_cnn_{i}"]
            maps = [np.einsum("wl,wlf->f", letters[t : t + i + 1], kernel) + bias for t in range(11 - i)]
            found.append(np.maximum(np.max(maps, axis=0), 0))
        x = np.concatenate(found)
        for i in range(2):
            gate = sigmoid(x @ arrays[f"CNN_high_{i}/W_carry"] + arrays[f"CNN_high_{i}/b_carry"])
            inner = np.maximum(x @ arrays[f"CNN_high_{i}/W_transform"] + arrays[f"CNN_high_{i}/b_transform"], 0)
            x = gate * inner + (1 - gate) * x
        vectors.append(x @ arrays["CNN_proj/W_proj"] + arrays["CNN_proj/b_proj"])
    sides = []
    for side in range(2):
        rows, outputs = vectors[::-1] if side else vectors, []
        for layer in range(2):
            front = f"RNN_{side}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            h, c, out = np.zeros(DIM), np.zeros(CELLS), []
            for row in rows:
                i, j, f, o = np.split(np.concatenate([row, h]) @ arrays[f"{front}/W_0"] + arrays[f"{front}/B"], 4)
                c = np.clip(sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j), -0.5, 0.5)
                h = np.clip((sigmoid(o) * np.tanh(c)) @ arrays[f"{front}/W_P_0"], -0.5, 0.5)
                out.append(h + row if layer else h)
            rows = out
            outputs.append(np.array(out[::-1] if side else out))
        sides.append(outputs)
    both = [np.concatenate(pair, axis=1) for pair in zip(*sides, strict=True)]
    return [np.concatenate([vectors, vectors], axis=1), *both]


def model_of(arrays):
    fields = fields_of(OPTIONS)
    own = {name: value for name, value in fields.items() if name not in ("model_type", "family")}
    model = BiLSTM(BiLSTMConfig(**own | {"filters": tuple(own["filters"])}))
    tensors = dict(tensors_of(fields, {name: torch.from_numpy(array) for name, array in arrays.items()}))
    model.load_state_dict(tensors)
    return model.eval()


SENTENCES = [["<S>", "Grüße", "aus", "der", "unaussprechlichsten", "Bank", "</S>"], ["<S>", "a", "</S>"]]


@torch.no_grad()
def test_published_weights_give_the_vectors_that_tensorflow_computes():
    arrays = published()
    task = ContextualEncoder(model_of(arrays), None)
    inputs = task.spelled([words[1:-1] for words in SENTENCES])
    layers, _ = task.model.layers(**inputs)
    for row, words in enumerate(SENTENCES):
        for got, wanted in zip(layers, by_numpy(arrays, words), strict=True):
            np.testing.assert_allclose(got[row, : len(words)], wanted, atol=1e-5)
    assert layers[-1].abs().max() > 0.5 and (layers[1].abs() == 0.5).any()  # some were clipped


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@torch.no_grad()
def test_a_layer_that_clips_nothing_is_that_of_pytorch():
    torch.manual_seed(0)
    x, lengths = torch.randn(3, 6, 5), torch.tensor([6, 2, 4])
    for cells in (7, 5):
        layer = LSTMLayer(5, cells, 5)
        for state in (None, [torch.randn(3, 5), torch.randn(3, cells)]):
            (out, last), (wanted, final) = layer.stepwise(x, lengths, state), layer(x, lengths, state)
            torch.testing.assert_close([out, *last], [wanted, *final])
            before = None if state is None else tuple(part[None, 1:2] for part in state)
            alone, _ = layer.inner(x[1:2, :2], before)
            torch.testing.assert_close(out[1:2, :2], alone)
    with pytest.raises(ValueError, match="4 cells cannot be projected to 5"):
        LSTMLayer(5, 4, 5)


def test_rows_are_reversed_within_their_lengths():
    x = torch.arange(8.0).view(2, 4, 1)
    assert reverse(x, torch.tensor([4, 2])).squeeze(-1).tolist() == [[3, 2, 1, 0], [5, 4, 6, 7]]


def small(**fields):
    torch.manual_seed(0)
    sizes = dict(vocab_size=13, dim=6, dropout=0.0)
    return BiLSTM(BiLSTMConfig(**sizes | fields)).double().eval()


FORMS = [{}, dict(hidden_dim=9), dict(hidden_dim=9, clip=0.1), dict(residual=False, depth=3)]


@torch.no_grad()
@pytest.mark.parametrize("fields", FORMS)
def test_padding_changes_nothing_and_texts_go_on(fields):
    model = small(**fields)
    ids, lengths = torch.randint(13, (2, 7)), torch.tensor([7, 4])
    layers, _ = model.layers(ids, lengths)
    alone, _ = model.layers(ids[1:, :4])
    for got, wanted in zip(layers, alone, strict=True):
        torch.testing.assert_close(got[1:, :4], wanted)
    torch.testing.assert_close(model.embed(ids, lengths)[1], model.features(ids[1:, :4])[0].mean(0))
    whole, (before, state) = model.layers(ids[:1])[0], model.layers(ids[:1, :3])
    rest, _ = model.layers(ids[:1, 3:], state=state)
    D = model.config.dim  # only what is read from the left goes on
    joined = torch.cat([before[-1][..., :D], rest[-1][..., :D]], dim=1)
    torch.testing.assert_close(joined, whole[-1][..., :D])


@torch.no_grad()
def test_directions_see_one_side_each_and_logits_never_the_token_itself():
    model = small()
    ids = torch.randint(13, (1, 7))
    other = ids.clone()
    other[0, 3] = (ids[0, 3] + 1) % 13
    pairs = zip(model.directions(ids), model.directions(other), (range(3), range(4, 7)), strict=True)
    for a, b, same in pairs:
        changed = (a != b).any(-1)[0]
        assert [t for t in range(7) if not changed[t]] == list(same)
    changed = (model(ids) != model(other)).any(-1)[0]
    assert not changed[3] and changed.sum() == 6


@torch.no_grad()
def test_a_vector_is_the_mix_of_its_layers():
    ids = torch.randint(13, (1, 4))
    layers, _ = small().layers(ids)
    torch.testing.assert_close(small().features(ids), torch.stack(layers).mean(0))
    torch.testing.assert_close(small(mix=(0.0, 2.0, -1.0)).features(ids), 2 * layers[1] - layers[2])
    with pytest.raises(ValueError, match="mix has 2 weights; give 3"):
        small(mix=(0.5, 0.5))


def test_the_loss_of_both_sides_is_that_of_each_token_from_its_neighbours():
    model, ids = small(), torch.randint(13, (2, 5))
    targets = torch.cat([ids[:, 1:], torch.tensor([[3], [IGNORE]])], dim=1)
    loss, count = both_sides(model, Batch({"ids": ids}, targets, (0, 1)))
    left, right = (model.head(x).log_softmax(-1) for x in model.directions(ids))
    wanted = torch.zeros((), dtype=torch.float64)
    for row in range(2):
        for t in range(5):
            if targets[row, t] != IGNORE:
                wanted = wanted - left[row, t, targets[row, t]]
            if t:
                wanted = wanted - right[row, t, ids[row, t - 1]]
    assert count == 9 + 8
    torch.testing.assert_close(loss, wanted)


def test_it_trains_and_a_word_has_a_vector_in_each_sentence(tmp_path):
    text = "\n".join(f"She sat by the river bank {i}. The bank lends money {i}." for i in range(200))
    (tmp_path / "text.txt").write_text(text)
    sizes = {"model": "bilstm", "model.dim": 16, "data.vocab_size": 320, "data.kind": "word", "train.steps": 30}
    sizes |= {"train.batch_tokens": 512, "train.eval_every": 15, "data.text": [str(tmp_path / "text.txt")]}
    fitted = fit(recipe("lm", sizes), tmp_path / "run", quiet=True)
    assert fitted.valid_loss < 4
    task = load(tmp_path / "run", as_=ContextualEncoder)
    (pair,) = compare_word(task, "bank", ["She sat by the river bank.", "The bank lends money."])["pairs"]
    assert pair["static"] == pytest.approx(1) and pair["contextual"] < 0.999 and len(pair["layers"]) == 3
    first, second = task.embed(["The bank.", "The bank lends money 7."])
    torch.testing.assert_close(task.embed("The bank."), first)
    assert first.shape == (32,) and (first - second).abs().max() > 1e-3


def test_words_are_spelled_and_long_ones_cut():
    assert spell("ü", 6) == [259, 0xC3 + 1, 0xBC + 1, 260, 261, 261]
    assert spell("abcdefgh", 5) == [259, 98, 99, 100, 260] and spell("<S>", 4) == [259, 257, 260, 261]


def test_what_cannot_be_read_says_so(tmp_path):
    for part, change, message in (
        ("lstm", {"proj_clip": 1}, "differ"), ("char_cnn", {"activation": "tanh"}, "only 'relu' can"),
        ("char_cnn", {"filters": [[2, 4]]}, "only 1, 2, 3 and so on can"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            fields_of(OPTIONS | {part: OPTIONS[part] | change})
    (tmp_path / "options.json").write_text("{}")
    (tmp_path / "weights.hdf5").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="options.json: not complete or damaged .no 'lstm'"):
        load(tmp_path)


def test_files_of_the_published_layout(tmp_path):
    arrays = published()
    (tmp_path / "options.json").write_text(json.dumps(OPTIONS))
    (tmp_path / "model_weights.hdf5").write_bytes(hdf5(arrays))
    task = load(tmp_path, as_=ContextualEncoder)
    wanted = model_of(arrays).state_dict()
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in task.model.state_dict().items())
    (pair,) = compare_word(task, "bank", ["the river bank", "a bank lends"])["pairs"]
    assert pair["static"] == pytest.approx(1) and pair["contextual"] < 0.999
    del arrays["CNN_proj/b_proj"]
    (tmp_path / "model_weights.hdf5").write_bytes(hdf5(arrays))
    with pytest.raises(ValueError, match="model_weights.hdf5: not complete or damaged .*b_proj"):
        load(tmp_path)


@pytest.mark.skipif("REGARD_ELMO" not in os.environ, reason="REGARD_ELMO names no folder with ELMo's published fixture")
@torch.no_grad()
def test_the_published_fixture():
    """Vectors that the authors' code gave for three texts of ten sentences; states go on from sentence to sentence."""
    folder = Path(os.environ["REGARD_ELMO"])
    texts = json.loads((folder / "sentences.json").read_text())
    task, state = load(folder, as_=ContextualEncoder), None
    embeddings = [read_hdf5(folder / f"lm_embeddings_{row}.hdf5") for row in range(len(texts))]
    for number in range(len(texts[0])):
        words = [text[number].split() for text in texts]
        layers, state = task.model.layers(**task.spelled(words), state=state)
        for row, own in enumerate(words):
            wanted = np.concatenate(list(embeddings[row][str(number)].numpy()), axis=-1)
            np.testing.assert_allclose(layers[-1][row, 1 : len(own) + 1], wanted, atol=1e-5, rtol=0)


def test_a_family_is_registered_for_the_published_size():
    config = models["bilstm"].config_class(**models["bilstm"].presets["elmo"])
    assert sum(config.filters) == 2048 and elmo_files(Path(__file__).parent) is None and callable(read_elmo)
