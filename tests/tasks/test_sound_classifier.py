"""Labels of sounds: a run from a folder, long recordings, a part of the test, and what the page plays."""

import numpy as np
import pytest

import regard
from regard.data.readers.audio_files import wav_bytes
from regard.eval.scores import evaluate
from regard.inside.page import Page

RATE = 16_000
TONES = {"high": 2000.0, "low": 200.0}


def tone(name, seconds, seed=0):
    time = np.arange(int(seconds * RATE)) / RATE
    return 0.3 * np.sin(2 * np.pi * TONES[name] * (1 + seed / 50) * time).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """High and low in turns, in a table."""
    folder, rows = tmp_path_factory.mktemp("sounds"), ["path,label"]
    for index in range(24):
        name = list(TONES)[index % 2]
        (folder / f"{index:02}.wav").write_bytes(wav_bytes(tone(name, 0.5, index), RATE))
        rows.append(f"{index:02}.wav,{name}")
    (folder / "train.csv").write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    table, out = str(folder / "train.csv"), tmp_path_factory.mktemp("sound") / "run"
    sizes = {"model.dim": 16, "model.depth": 1, "model.heads": 2, "model.ffn_dim": 32, "data.noise": 0.0}
    fields = {"data.audio": table, "data.valid": table, "data.test": table, "train.steps": 40}
    regard.fit("sound", out=out, quiet=True, **fields, **sizes)
    return out


def test_tones_are_told_apart_also_in_long_recordings(run):
    task = regard.load(run)
    for name in TONES:
        for seconds in (0.5, 3.0):
            assert task.classify(tone(name, seconds))[0].label == name
    vectors = task.embed([tone("high", 0.5), tone("low", 0.5)])
    assert vectors.shape == (2, 16) and vectors.norm(dim=-1).tolist() == pytest.approx([1, 1])


def test_a_part_of_the_test_has_every_class(run):
    scored = evaluate(run, {}, limit=12)
    assert scored.scores["examples"] == 12 and set(scored.expected) == set(TONES)
    assert scored.scores["accuracy"] == 100


def test_the_page_plays_what_it_shows(run):
    page = Page(regard.load(run), tone("high", 0.5))
    described = page.describe()
    (grid,) = described["sequences"]
    assert described["input"]["sound"].startswith("data:audio/wav;base64,")
    assert grid["seconds"] * grid["grid"][1] == pytest.approx(0.5, abs=0.05)
