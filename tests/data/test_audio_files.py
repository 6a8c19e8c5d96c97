import io
import os
import struct
import sys

import numpy as np
import pytest

from regard.data.readers.audio_files import STAY_OPEN, from_samples, open_audio, resampling, wav_bytes
from regard.data.readers.mp3 import one_kind
from regard.modalities.audio import AUDIO

soundfile = pytest.importorskip("soundfile")
RATE = 16_000


def tone(rate=RATE, seconds=0.5, hertz=440.0, channels=1):
    wave = 0.5 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)
    return np.repeat(wave.astype(np.float32)[:, None], channels, 1)


def written(samples, rate=RATE, form="WAV", subtype="PCM_16"):
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=form, subtype=subtype)
    return file.getvalue()


@pytest.mark.parametrize(
    "subtype, error",
    [("PCM_U8", 1e-2), ("PCM_16", 1e-4), ("PCM_24", 1e-6), ("PCM_32", 1e-7), ("FLOAT", 1e-7), ("DOUBLE", 1e-7)],
)
@pytest.mark.parametrize("channels", [1, 2, 6])
@pytest.mark.parametrize("form", ["WAV", "WAVEX"])
def test_every_width_and_number_of_channels(subtype, error, channels, form):
    samples = tone(channels=channels)
    recording = open_audio(written(samples, form=form, subtype=subtype))
    assert (recording.rate, recording.length) == (RATE, len(samples))
    assert np.abs(recording.samples() - samples[:, 0]).max() <= error


@pytest.mark.parametrize(
    "form, subtype, error",
    [("FLAC", "PCM_16", 1e-4), ("OGG", "VORBIS", 0.1), ("OGG", "OPUS", 0.1), ("MP3", "MPEG_LAYER_III", 0.1),
     ("AIFF", "PCM_16", 1e-4), ("AU", "PCM_16", 1e-4), ("WAV", "ALAW", 0.02)],
)  # fmt: skip
def test_formats_that_soundfile_decodes(form, subtype, error):
    samples = tone()
    recording = open_audio(written(samples, form=form, subtype=subtype))
    assert recording.rate in (RATE, 48_000)
    assert np.abs(recording.samples(RATE)[1000:7000] - samples[1000:7000, 0]).max() <= error


def test_what_a_wave_file_of_the_standard_library_holds():
    import wave

    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(2)
        out.setsampwidth(2)
        out.setframerate(8000)
        out.writeframes(struct.pack("<4h", 100, 300, -1000, 1000))
    assert open_audio(file.getvalue()).samples().tolist() == [200 / 32768, 0]
    assert open_audio(wav_bytes(np.array([0.5, -0.5]), 8000)).samples() == pytest.approx([0.5, -0.5], abs=1e-4)


@pytest.mark.parametrize("rate", [4000, 8000, 11_025, 22_050, 44_100, 48_000, 96_000])
def test_resampling_keeps_tones_and_removes_what_would_alias(rate):
    recording = from_samples(tone(rate)[:, 0], rate)
    samples = recording.samples(RATE)
    assert len(samples) == RATE // 2
    assert np.abs(samples - tone()[:, 0])[400:-400].max() < 1e-4
    if rate > 2 * RATE:
        above = from_samples(tone(rate, hertz=9000)[:, 0], rate).samples(RATE)
        assert np.abs(above)[400:-400].max() < 1e-4


@pytest.mark.parametrize("rate", [8000, RATE, 44_100])
def test_a_part_has_the_values_that_it_has_in_the_whole(rate):
    noise = np.random.default_rng(0).normal(size=9001).astype(np.float32) / 10
    for recording in (from_samples(noise, rate), open_audio(wav_bytes(noise, rate))):
        whole = recording.samples(RATE)
        for start, stop in ((0, 100), (1237, 2345), (len(whole) - 5, len(whole) + 50), (len(whole) + 1, None)):
            assert recording.samples(RATE, start, stop) == pytest.approx(whole[start:stop], abs=1e-6)


def test_rates_without_a_small_ratio_are_read():
    assert from_samples(tone(44_101)[:, 0], 44_101).samples(RATE).shape == (8000,)


@pytest.mark.parametrize(("source", "target"), [(1009, 48_000), (1001, 16_000), (1000, 768_000), (767_999, 16_000)])
def test_odd_rates_take_little_memory(source, target):
    """The header of a file can claim any rate: its matrix has at most this many numbers."""
    up, down, filters = resampling(source, target)
    assert filters.size < 2**21 and abs(up / down / (target / source) - 1) < 1e-4
    assert len(from_samples(np.zeros(source, np.float32), source).samples(target)) == pytest.approx(target, rel=1e-4)
    with pytest.raises(ValueError, match="choose closer rates"):
        resampling(48_000, 10**9)


@pytest.mark.skipif(sys.platform != "linux", reason="counts the open files of /proc")
def test_a_thousand_recordings_take_few_open_files(tmp_path):
    """As of a test set, all of which are listed before the first is read."""
    soundfile.write(tmp_path / "x.flac", tone(), RATE)
    before = len(os.listdir("/proc/self/fd"))
    recordings = [open_audio(tmp_path / "x.flac") for _ in range(50)]
    assert len(os.listdir("/proc/self/fd")) - before <= STAY_OPEN
    for recording in recordings[:3]:
        for start in (0, 4000, 1000):
            part = recording.samples(RATE, start, start + 1000)
            assert part == pytest.approx(tone()[start : start + 1000, 0], abs=1e-4)


def test_a_wav_file_from_a_pipe_or_cut_short_gives_what_is_there():
    content = wav_bytes(tone()[:, 0], RATE)
    open_end = content[:40] + b"\xff\xff\xff\xff" + content[44:]
    assert open_audio(open_end).length == 8000
    assert open_audio(content[:1044]).length == 500


def with_nan():
    samples = tone()
    samples[100] = np.nan
    return written(samples, subtype="FLOAT")


def with_claim():
    """An mp3 of a second whose header claims 28,000 hours: the number of frames in it is made large."""
    content = written(tone(), form="MP3", subtype="MPEG_LAYER_III")
    at = max(content.find(b"Xing"), content.find(b"Info")) + 8
    return content[:at] + b"\xff" + content[at + 1 :]


BAD = {
    "empty.wav": (b"", "is no audio in a format that is known"),
    "text.wav": (b"path,text\na.wav,hello\n", "is no audio in a format that is known"),
    "silent.wav": (wav_bytes(np.zeros(0), RATE), "holds no audio"),
    "header.wav": (wav_bytes(np.zeros(9), RATE)[:30], "holds no audio"),
    "nan.wav": (with_nan(), "are no sound, such as NaN"),
    "slow.wav": (wav_bytes(np.zeros(9), 7), "has 7 samples a second"),
    "cut.flac": (written(tone(), form="FLAC")[:60], "damaged|holds no audio"),
    "cut.ogg": (written(tone(), form="OGG", subtype="VORBIS")[:90], "damaged|holds no audio"),
    "head.mp3": (b"ID3" + bytes(50), "damaged|holds no audio"),
    "days.mp3": (with_claim(), r"it claims \d+,\d+ hours in \d,\d+ bytes"),
    "chunks.wav": (b"RIFF    WAVE" + b"LIST\0\0\0\0" * 20_000 + wav_bytes(tone()[:, 0], RATE)[12:], "10,000 chunks"),
    "loud.wav": (written(1e300 * tone().astype(float), form="WAV", subtype="DOUBLE"), "are no sound"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_one_line_with_the_path(name, tmp_path):
    content, expected = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=expected) as error:
        open_audio(tmp_path / name).samples(RATE)
    assert str(tmp_path / name) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("rate", [44_100, 16_000, 8000])
@pytest.mark.parametrize("channels", [1, 2])
def test_an_uploaded_mp3_is_what_the_file_is(tmp_path, rate, channels):
    content = written(tone(rate, channels=channels), rate, form="MP3", subtype="MPEG_LAYER_III")
    frames = one_kind(content)
    assert frames == content, "every frame, with those of the encoder's settings"
    tag = b"ID3\x04\0\0" + bytes([0, 0, 1, 3]) + b"\xff\xfb\x90\0" * 32 + b"abc"
    assert len(tag) == 10 + 131 and one_kind(tag + content + b"TAG" + bytes(125)) == content
    (tmp_path / "a.mp3").write_bytes(content)
    assert np.array_equal(open_audio(tag + content).samples(), open_audio(tmp_path / "a.mp3").samples())


def test_frames_of_another_kind_never_reach_the_library():
    """There are files whose frames change from one kind to another at which libmpg123 writes beyond a buffer."""
    first, other, mono = (
        written(tone(rate, channels=channels), rate, form="MP3", subtype="MPEG_LAYER_III")
        for rate, channels in [(44_100, 2), (16_000, 2), (44_100, 1)]
    )
    garbage = b"\xff\xfb" + bytes(99) + b"\xff" * 50
    assert one_kind(first + other + first) == first * 2
    assert one_kind(first + mono + garbage + first) == first * 2
    assert one_kind(garbage + other + first[:-1]) == other
    assert one_kind(garbage) == b"" and one_kind(b"\xff" * 10**6) == b""
    flac = written(tone(), form="FLAC")
    assert one_kind(b"ID3\x04\0\0\0\0\0\x02ab" + flac) == flac
    with pytest.raises(ValueError, match="damaged"):
        open_audio(b"\xff\xfb" + garbage)
    uploaded = open_audio(first + other)
    assert uploaded.rate == 44_100 and 20_000 < uploaded.length < 26_000


def test_a_truncated_mp3_gives_what_is_there(tmp_path):
    content = written(tone(seconds=3), form="MP3", subtype="MPEG_LAYER_III")
    (tmp_path / "cut.mp3").write_bytes(content[: len(content) // 2])
    samples = open_audio(tmp_path / "cut.mp3").samples(RATE)
    assert RATE < len(samples) <= 3 * RATE and np.isfinite(samples).all()


def test_a_damaged_upload_prints_nothing(capfd):
    """soundfile's library is led before the beginning of the file by the header of a cut one."""
    with pytest.raises(ValueError, match="damaged"):
        open_audio(written(tone(), form="AIFF")[:40])
    assert capfd.readouterr().err == ""


def test_folders_and_missing_files_are_named(tmp_path):
    with pytest.raises(ValueError, match="is a folder"):
        open_audio(tmp_path)
    with pytest.raises(ValueError, match="File name too long"):
        open_audio(tmp_path / ("x" * 5000 + ".wav"))
    with pytest.raises(ValueError, match="no such audio file"):
        open_audio(tmp_path / "none.wav")


def test_formats_beside_wav_name_their_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    with pytest.raises(ValueError, match=r"pip install 'regard\[audio\]'"):
        open_audio(written(tone(), form="FLAC"))


def test_the_modality_reads_arrays_rates_and_requests():
    samples = tone()[:, 0]
    assert AUDIO.read((samples, 8000)).rate == 8000 and AUDIO.read(samples).rate == RATE
    assert AUDIO.receive(AUDIO.send(samples)).samples() == pytest.approx(samples, abs=1e-4)
    assert AUDIO.read(np.array([16384], dtype=np.int16)).samples().tolist() == [0.5]
    assert AUDIO.recognises("speech.FLAC") and not AUDIO.recognises("image.png")
    with pytest.raises(ValueError, match="an array of floats"):
        AUDIO.read(np.zeros((2, 2, 2)))
    with pytest.raises(ValueError, match="no data: URI of a recording"):
        AUDIO.receive("data:image/png;base64,xxxx")
