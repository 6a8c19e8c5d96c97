"""`regard latent` as a newcomer types it: a map, a direction, a dictionary, and one line where it cannot be."""

import numpy as np
import pytest
from PIL import Image

from regard.data.readers.preprocessing import Preprocessing
from regard.hub.checkpoint import save_model
from regard.hub.preprocessor import save_preprocessing
from regard.inside.latent import dictionary
from tests.cli.calling import call, fails, rows, said
from tests.inside import loaded as texts
from tests.inside.seeing import vit


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An encoder of texts, a language model, a model that sees, and examples for them."""
    folder = tmp_path_factory.mktemp("latent")
    for name, made in {"bert": texts.encoder(), "gpt": texts.writer()}.items():
        save_model(made.model, folder / name)
        made.tokenizer.save(folder / name)
    save_model(vit(), folder / "vit")
    save_preprocessing(folder / "vit", Preprocessing(channels=1, size=(12, 20), mean=(0.5,), std=(0.5,)))
    lines = [(text, label) for text in texts.TEXTS for label in ("bank", "river")]
    table = "".join(f'"{text} {label} {i}",{label}\n' for i, (text, label) in enumerate(lines))
    (folder / "a.csv").write_text("text,label\n" + table)
    (folder / "one.txt").write_text("the bank is open\nthe bank is a bank\n")
    (folder / "two.txt").write_text("the river of rivers\nshe sat on the river\n")
    (folder / "empty.txt").write_text("\n")
    for i in range(6):
        (folder / "pictures" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 256, (12, 20), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "pictures" / "ab"[i % 2] / f"{i}.png")
    return folder


def test_map_of_texts_and_of_pictures(folder, tmp_path, capsys):
    (found,) = rows(capsys, "latent", folder / "bert", "--data", folder / "a.csv", "--limit", "6")
    assert len(found["points"]) == len(found["labels"]) == len(found["names"]) == 6
    assert found["vectors"] == "the model's own vectors" and 0 < found["explained"][1] < found["explained"][0] <= 1
    shown = said(capsys, "latent", folder / "gpt", "--data", folder / "a.csv", "--layer", "0")
    assert shown[0] == "8 examples, means over tokens behind block 0 of 24 numbers"
    assert shown[-1] == "labels: bank (4), river (4)"
    call("latent", folder / "vit", "--data", folder / "pictures", "--out", tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 5000
    assert "labels: a (3), b (3)" in capsys.readouterr().out


def test_direction_and_walk(folder, tmp_path, capsys):
    ends = ["--from", "bank", "--to", "river", "--data", folder / "a.csv"]
    (found,) = rows(capsys, "latent", folder / "bert", *ends, "--walk", "a bank")
    assert found["held_out"] == 4 and 0 <= found["accuracy"] <= 1 and len(found["walk"]) == 7
    assert "writes" not in found["walk"][0] and len(found["walk"][0]["nearest"]) == 3
    files = ["--from", folder / "one.txt", "--to", folder / "two.txt"]
    shown = said(capsys, "latent", folder / "gpt", *files, "--walk", "the bank", "--out", tmp_path / "walk.svg")
    assert "are separated" in shown[0] and sum(line[1:].startswith("2.0  writes: ") for line in shown) == 2
    assert (tmp_path / "walk.svg").stat().st_size > 5000
    pictures = folder / "pictures"
    ends = ["--from", "a", "--to", "b", "--data", pictures, "--walk", pictures / "a" / "0.png"]
    (found,) = rows(capsys, "latent", folder / "vit", *ends)
    assert str(pictures / "a" / "0.png") not in {one["name"] for stop in found["walk"] for one in stop["nearest"]}


def test_dictionary(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(dictionary, "STEPS", 20)
    words = ["latent", folder / "gpt", "--data", folder / "a.csv", "--dictionary", "12", "--active", "2"]
    (found,) = rows(capsys, *words)
    assert found["units"] == 12 and found["layer"] == 1 and found["best"]
    assert said(capsys, *words, "--layer", "0", "--out", tmp_path / "units.png")[0].startswith(
        "12 units behind block 0"
    )
    assert (tmp_path / "units.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("run", "words", "wanted"),
    [
        ("bert", ["--data", "none.csv"], "no such file or folder: none.csv"),
        ("bert", ["--data", "empty.txt"], "the file is empty"),
        ("bert", ["--data", "pictures"], "holds images, and the model reads texts"),
        ("vit", ["--data", "one.txt"], "holds texts, and the model sees pictures"),
        ("bert", ["--data", "one.txt"], "a plane needs at least 3 examples, got 2"),
        ("bert", ["--data", "a.csv", "--layer", "2"], "no block 2: the model has 2, 0 to 1 (-1: the last)"),
        ("bert", ["--data", "a.csv", "--out", "x.gif"], "cannot draw to 'x.gif'"),
        ("bert", ["--data", "a.csv", "--from", "bank"], "give --from and --to"),
        ("bert", ["--data", "a.csv", "--walk", "a bank"], "give --from and --to"),
        ("bert", ["--data", "a.csv", "--from", "bank", "--to", "rivet"], "no label 'rivet'; did you mean 'river'?"),
        ("bert", ["--data", "one.txt", "--from", "a", "--to", "b"], "these examples have no labels"),
        ("bert", ["--data", "a.csv", "--from", "bank", "--to", "bank"], "got bank twice"),
        (
            "bert",
            ["--data", "a.csv", "--from", "a", "--to", "b", "--dictionary", "8"],
            "--dictionary does not go with --from and --to",
        ),
        ("bert", ["--data", "a.csv", "--dictionary", "4"], "a token cannot use 8 of 4 units; lower --active"),
        ("bert", ["--from", "a", "--to", "b", "--reach", "9"], "--reach goes with --walk; leave it out"),
        ("bert", ["--reach", "4"], "--reach goes with --walk; leave it out"),
        ("bert", ["--from", "a", "--to", "b", "--active", "3"], "--active goes with --dictionary; leave it out"),
        ("bert", ["--from", "a", "--to", "b", "--project", "umap"], "--project is for the map, and a direction has"),
        ("bert", ["--dictionary", "9", "--project", "pca"], "--project is for the map, and a dictionary has none"),
        ("vit", ["--from", "1", "--to", "2", "--walk", "none.png"], "no such image: none.png"),
        ("none", [], "none"),
    ],
)
def test_mistakes_are_one_line(folder, monkeypatch, capsys, run, words, wanted):
    monkeypatch.chdir(folder)
    assert wanted in fails(capsys, "latent", run, *words)
