"""Lists of recordings in the layouts that are around, and the embedded speech."""

import numpy as np
import pytest

from regard.data.generated import speech
from regard.data.generated.speech import VOICES, in_words, utterances
from regard.data.readers.audio_files import wav_bytes
from regard.data.readers.recordings import list_sounds, list_spoken
from regard.data.sets.degrade import degraded, no_speech
from regard.data.sets.transcribed_speech import SpeechConfig, plain_text

WAV = wav_bytes(np.zeros(1600), 16_000)


def files(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(WAV)


def spoken(source):
    return [(file.path.name, file.text) for file in list_spoken(source)]


@pytest.mark.parametrize(
    "name, content",
    [
        ("train.tsv", "client_id\tpath\tsentence\tup_votes\nx\ta.wav\tHello there.\t2\ny\tb.wav\tBye.\t2\n"),
        ("list.csv", 'audio,transcript\na.wav,Hello there.\nb.wav,"Bye."\n'),
        (
            "all.jsonl",
            '{"audio_filepath": "a.wav", "text": "Hello there."}\n{"audio_filepath": "b.wav", "text": "Bye."}\n',
        ),
        ("metadata.csv", "a|HELLO THERE.|Hello there.\nb|BYE.|Bye.\n"),
    ],
)
@pytest.mark.parametrize("inside", ["", "clips/", "wavs/"])
def test_tables_in_the_layouts_that_are_around(tmp_path, name, content, inside):
    files(tmp_path, f"{inside}a.wav", f"{inside}b.wav")
    (tmp_path / name).write_text(content)
    assert spoken(tmp_path / name) == spoken(tmp_path) == [("a.wav", "Hello there."), ("b.wav", "Bye.")]


def test_librispeech_and_texts_beside_their_files(tmp_path):
    files(tmp_path, "84/121/84-121-0.wav", "84/121/84-121-1.wav")
    (tmp_path / "84/121/84-121.trans.txt").write_text("84-121-0 GO DO YOU HEAR\n84-121-1\n")
    assert spoken(tmp_path) == [("84-121-0.wav", "GO DO YOU HEAR"), ("84-121-1.wav", "")]
    other = tmp_path / "other"
    files(other, "a.wav", "b.wav")
    (other / "a.txt").write_text("one\ntwo\n")
    (other / "b.txt").write_text("")
    assert spoken(other) == [("a.wav", "one two"), ("b.wav", "")]


def test_what_is_wrong_in_a_list_is_named_with_its_line(tmp_path):
    files(tmp_path, "a.wav")
    (tmp_path / "train.tsv").write_text("path\ttext\na.wav\tyes\ngone.wav\tno\n")
    with pytest.raises(ValueError, match=r"train.tsv, line 3: no such audio file: .*gone.wav"):
        list_spoken(tmp_path)
    (tmp_path / "train.tsv").write_text("path\ttext\n" + "what was said " * 400 + "\ta.wav\n")
    with pytest.raises(ValueError, match=r"train.tsv, line 2: no such audio file: .*what was said") as error:
        list_spoken(tmp_path)
    assert len(str(error.value)) < 500
    (tmp_path / "train.tsv").write_text("path\ttext\n")
    with pytest.raises(ValueError, match="not one recording"):
        list_spoken(tmp_path)
    (tmp_path / "train.tsv").unlink()
    with pytest.raises(ValueError, match="holds no list of what was said"):
        list_spoken(tmp_path)
    with pytest.raises(ValueError, match="no such file or folder"):
        list_spoken(tmp_path / "gone")


def test_sounds_are_folders_of_classes_or_tables(tmp_path):
    files(tmp_path, "cat/a.wav", "cat/deep/b.wav", "dog/c.wav", ".hidden/d.wav")
    assert [(file.path.name, file.text) for file in list_sounds(tmp_path)] == [
        ("a.wav", "cat"), ("b.wav", "cat"), ("c.wav", "dog"),
    ]  # fmt: skip
    (tmp_path / "t.csv").write_text("filename,category\ncat/a.wav,cat\ndog/c.wav,dog\n")
    assert [file.text for file in list_sounds(tmp_path / "t.csv")] == ["cat", "dog"]
    (tmp_path / "t.csv").write_text("filename,category\ncat/a.wav,\n")
    with pytest.raises(ValueError, match="line 2: the label is empty"):
        list_sounds(tmp_path / "t.csv")


def test_texts_are_scored_without_case_and_punctuation():
    assert plain_text("Twenty-five  EUROS, don’t!") == "twenty five euros don't"
    assert plain_text("Größe: ½") == "größe 1 2"
    assert in_words("the first of May 1999", "en") == "the first of May nineteen ninety-nine"
    assert in_words("It costs $5.", "en") is None


def test_no_voice_and_no_phrase_of_the_test_is_trained_on():
    assert not set(VOICES["test"]) & set(VOICES["train"]) and not set(VOICES["valid"]) & set(VOICES["test"])
    stream = {part: utterances(part, "en") for part in ("train", "test")}
    texts = {part: {next(each).text for _ in range(150)} for part, each in stream.items()}
    assert not texts["train"] & texts["test"]
    assert all(u.voice.partition("+")[2] in VOICES["test"] for u in (next(stream["test"]) for _ in range(20)))


def test_the_same_bytes_are_spoken_again_and_kept(tmp_path, monkeypatch):
    pytest.importorskip("espeakng_loader")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    first = speech.speech("test", 6)
    assert [u.language for u in first.utterances] == ["en", "de"] * 3 and min(map(len, first.samples)) > 4000
    kept = list(tmp_path.glob("*.speech"))
    assert len(kept) == 1
    for damaged in (b"cut short", kept[0].read_bytes()[:5000]):
        kept[0].write_bytes(damaged)
        again = speech.speech("test", 6)
        assert all(np.array_equal(a, b) for a, b in zip(first.samples, again.samples, strict=True))
    monkeypatch.setattr(speech, "MOST_KEPT", 1)
    speech.speech("test", 4)
    assert len(list(tmp_path.glob("*.speech"))) == 1, "the oldest makes room"


def test_a_missing_extra_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "espeakng_loader", None)
    with pytest.raises(ValueError, match=r"pip install 'regard\[speech\]'"):
        SpeechConfig(count=100).split()


def test_noise_depends_on_its_generator_alone():
    tone = np.sin(np.arange(16_000) / 9).astype(np.float32)
    one, two = (degraded(tone, 16_000, np.random.default_rng(3), 1.0) for _ in range(2))
    assert np.array_equal(one, two) and np.abs(one).max() <= 0.91 and one.dtype == np.float32
    assert np.corrcoef(one, tone)[0, 1] > 0.3
    for seed in range(12):
        sound = no_speech(8000, 16_000, np.random.default_rng(seed))
        assert sound.shape == (8000,) and np.isfinite(sound).all() and np.abs(sound).max() <= 1
