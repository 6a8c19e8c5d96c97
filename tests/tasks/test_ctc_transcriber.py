"""Transcripts by CTC: windows that meet without a word lost or doubled, pauses, silence, a run from end to end."""

import numpy as np
import pytest
import torch

import regard
from regard.data.readers.audio_files import Recording, from_samples, wav_bytes
from regard.models import Conformer, ConformerConfig
from regard.tasks.ctc_transcriber import CONTEXT, WINDOW, CTCTranscriber, seam
from regard.tasks.speech_scores import error_rates
from regard.tokens import Tokenizer
from regard.tokens.mel import LogMel

TEXT = "the answer is forty two and the train leaves at noon "
SMALL = dict(dim=16, depth=1, heads=2, ffn_dim=24, channels=2, bands=16, dropout=0.0)
STRIDE = 640


@pytest.fixture(scope="module")
def transcriber():
    tokenizer = Tokenizer.train(texts=[TEXT], kind="char", vocab_size=300)
    torch.manual_seed(0)
    model = Conformer(ConformerConfig(**SMALL, vocab_size=tokenizer.vocab_size, blank=tokenizer.pad))
    return CTCTranscriber(model, LogMel(style="nemo", fft=512, preemphasis=0.97, bands=16), tokenizer)


def read_levels(self, waves):
    """Log-probabilities of a model that reads the token off the level of every 40 ms, but hears nothing near the ends
    of a long stretch."""
    rows = []
    for wave in waves:
        levels = np.rint(wave[: len(wave) // STRIDE * STRIDE].reshape(-1, STRIDE).mean(1) * 1000).astype(int)
        if len(levels) > 400:
            levels[:20] = levels[-20:] = self.tokenizer.pad
        row = np.full((len(levels), self.model.config.vocab_size), -50.0, dtype=np.float32)
        row[np.arange(len(levels)), levels] = -0.01
        rows.append(row)
    return rows


def spoken(tokenizer, texts, pause):
    """Samples whose level is the token: each letter for two vectors and a blank, and a pause between texts."""
    levels = [tokenizer.pad] * pause
    for text in texts:
        for id in tokenizer.encode(f" {text}"):
            levels += [id, id, tokenizer.pad]
        levels += [tokenizer.pad] * pause
    return np.repeat(np.array(levels, dtype=np.float32) / 1000, STRIDE)


@pytest.mark.parametrize("beams", [1, 3])
def test_windows_meet_without_a_word_lost_or_doubled(transcriber, monkeypatch, beams):
    monkeypatch.setattr(CTCTranscriber, "log_probs", read_levels)
    texts = [f"{TEXT}{word}" for word in ("one", "two", "three", "four", "five", "six") for _ in range(3)]
    samples = spoken(transcriber.tokenizer, texts, pause=30)
    assert len(samples) > 5 * WINDOW * 16_000
    found = transcriber.transcribe(from_samples(samples, 16_000), beams=beams)
    assert found.text.split() == " ".join(texts).split()
    times = [time for segment in found.segments for word in segment.words for time in (word.start, word.end)]
    assert times == sorted(times) and times[-1] <= found.seconds
    assert len(found.segments) >= len(texts), "a pause ends a phrase"


def test_a_recording_of_hours_is_read_window_by_window(transcriber, monkeypatch):
    monkeypatch.setattr(CTCTranscriber, "log_probs", read_levels)
    asked = []

    def load(start, stop):
        asked.append(stop - start)
        return np.zeros(stop - start, dtype=np.float32)

    silence = Recording("silence", 16_000, 2 * 3600 * 16_000, load)
    assert transcriber.transcribe(silence).text == ""
    assert max(asked) <= WINDOW * 16_000
    assert sum(asked) < 1.4 * silence.length


def test_windows_meet_in_the_longest_silence():
    rows = np.zeros((100, 3))
    rows[:, 1] = 1.0  # a token everywhere
    rows[70:74, 0] = rows[90:92, 0] = 2.0
    assert 70 <= seam(rows, 40, 0) <= 74
    rows[:, 0] = 0.0
    assert seam(rows, 40, 0) == 80, "without any, in the middle"
    assert 4 * CONTEXT < WINDOW


def test_silence_is_nothing_and_a_batch_equals_single_files(transcriber):
    rng = np.random.default_rng(0)
    files = [rng.normal(size=n).astype(np.float32) / 10 for n in (9000, 31_000, 16_000)]
    files.append(np.zeros(20_000, dtype=np.float32))
    together = transcriber.transcribe(files)
    assert [each.text for each in together] == [transcriber.transcribe(file).text for file in files]
    assert together[3].text == "" and together[3].segments == ()
    rows = transcriber.log_probs(files)
    assert np.abs(rows[0] - transcriber.log_probs(files[:1])[0]).max() < 1e-4
    assert [len(row) for row in rows] == [14, 49, 25, 32]


def test_error_rates_count_words_and_letters():
    assert error_rates(["The cat sat!"], ["the cat sat"]) == {"wer": 0.0, "cer": 0.0}
    assert error_rates([""], [""]) == {"wer": 0.0, "cer": 0.0}
    rates = error_rates(["a b d", "x"], ["a b c d", ""])
    assert rates["wer"] == pytest.approx(100 * 2 / 4), "a word left out, and one where nothing was said"
    assert error_rates(["a"], [""]) == {"wer": 100.0, "cer": 100.0}, "nothing was said at all"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on twenty recordings that nobody could understand, in LibriSpeech's layout."""
    folder = tmp_path_factory.mktemp("speech")
    rng, lines = np.random.default_rng(1), []
    for index in range(20):
        (folder / f"84-{index}.wav").write_bytes(wav_bytes(rng.normal(size=12_000) / 10, 16_000))
        lines.append(f"84-{index} {'ONE TWO' if index % 2 else ''}")
    (folder / "84.trans.txt").write_text("\n".join(lines) + "\n")
    (folder / "84-3.wav").write_bytes(wav_bytes(rng.normal(size=1000) / 10, 16_000))  # too short for seven letters
    out = folder / "run"
    sizes = {f"model.{name}": value for name, value in SMALL.items()}
    regard.fit("speech", out=out, quiet=True, **{"data.audio": str(folder), "train.steps": 2, **sizes})
    return out


def test_a_run_transcribes_scores_and_is_looked_into(run, tmp_path):
    from regard.inside import show_view

    task = regard.load(run)
    noise = (np.random.default_rng(2).normal(size=16_000) / 10).astype(np.float32)
    assert task.answers("transcribe", [noise])[0]["seconds"] == 1.0
    prepared = task.read(noise)
    assert prepared.views[:2] == ["heard", "heads"] and len(prepared.tokens) == 25
    data, draw = show_view(prepared)
    assert len(data["blank"]) == 25 and all(0 <= row["vector"] < 25 for row in data["tokens"])
    draw(tmp_path / "heard.png")
    heads, _ = show_view(prepared, "heads")
    assert len(heads["layers"][0]["heads"]) == 2


def test_what_ctc_cannot_spell_is_named_before_training(tmp_path, capsys):
    rng = np.random.default_rng(1)
    rows = ["path\ttext"]
    for index in range(12):
        (tmp_path / f"{index}.wav").write_bytes(wav_bytes(rng.normal(size=600 if index == 5 else 9000) / 10, 16_000))
        rows.append(f"{index}.wav\tyes")
    (tmp_path / "train.tsv").write_text("\n".join(rows) + "\n")
    sizes = {f"model.{name}": value for name, value in SMALL.items()}
    fields = {"data.audio": str(tmp_path / "train.tsv"), "data.valid": str(tmp_path / "train.tsv"), "train.steps": 1}
    regard.fit("speech", out=tmp_path / "run", **fields, **sizes)
    said = capsys.readouterr().err
    assert "fewer vectors than tokens" in said and "5.wav (1 vectors for 4 tokens)" in said
