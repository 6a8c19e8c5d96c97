"""Clips: files of several formats, variable frame rates, frames in folders, generated motion, and what is wrong."""

import fractions

import numpy as np
import pytest
from PIL import Image

from regard.data.generated.clips import FRAMES, KINDS, SIDE, clip
from regard.data.readers import clips as reader
from regard.data.readers.clip_lists import list_clips
from regard.data.readers.clip_preprocessing import ClipPreprocessing
from regard.data.readers.clips import open_clip
from regard.data.readers.preprocessing import Preprocessing
from regard.data.sets.labelled_clips import ClipFrames, ClipsConfig
from regard.modalities.video import VIDEO

av = pytest.importorskip("av")
STEADY = [i / 25 for i in range(50)]
UNEVEN = [i / 50 for i in range(50)] + [1 + i / 5 for i in range(10)]
"""A second of 50 frames, and two of 5 each."""


def film(path, times, codec="mpeg4", size=(48, 64), sound=False):
    """A video whose frames grow brighter one by one."""
    tick = fractions.Fraction(1, 1000)
    with av.open(str(path), "w") as file:
        stream = file.add_stream(codec, rate=25)
        stream.height, stream.width, stream.pix_fmt, stream.gop_size = *size, "yuv420p", 12
        stream.time_base = stream.codec_context.time_base = tick
        for number, time in enumerate(times):
            grey = np.full((*size, 3), 10 + number * 230 // max(1, len(times) - 1), np.uint8)
            frame = av.VideoFrame.from_ndarray(grey, format="rgb24")
            frame.pts, frame.time_base = round(time * 1000), tick
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    return path


def numbers(clip, chosen):
    """The numbers of frames, read off their brightness."""
    return [round((float(np.asarray(frame).mean()) - 10) / 230 * (len(clip) - 1)) for frame in clip.frames(chosen)]


@pytest.mark.parametrize(
    ("name", "codec"),
    [("a.mp4", "mpeg4"), ("a.mov", "libx264"), ("a.mkv", "libx264"), ("a.webm", "libvpx"), ("a.avi", "mpeg4")],
)
def test_frames_are_those_that_were_asked_for(tmp_path, name, codec):
    clip = open_clip(film(tmp_path / name, STEADY, codec))
    assert len(clip) == 50 and abs(clip.seconds - 2) < 0.05 and clip.size == (48, 64)
    wanted = [0, 3, 3, 11, 12, 30, 49]
    assert np.abs(np.array(numbers(clip, wanted)) - wanted).max() <= 1  # what the codec loses is less than two
    assert numbers(open_clip((tmp_path / name).read_bytes()), [25])[0] in (24, 25, 26)


def test_of_a_variable_frame_rate_time_counts(tmp_path):
    clip = open_clip(film(tmp_path / "a.mp4", UNEVEN, "libx264"))
    assert len(clip) == 60 and abs(clip.seconds - 3) < 0.1
    assert clip.sample(6) == [12, 37, 51, 53, 56, 58]
    assert clip.sample(4, rate=2.0, where=0.0) == [12, 37, 51, 53]
    assert len(clip.sample(99, rate=2.0)) == 6, "a short clip has fewer frames"


def test_one_frame_is_a_clip(tmp_path):
    clip = open_clip(film(tmp_path / "one.mp4", [0.0]))
    read = ClipPreprocessing(image=Preprocessing(channels=3, size=(8, 8)), frames=5)
    assert len(clip) == 1 and read(clip).shape == (5, 3, 8, 8)
    assert np.ptp(read(clip), axis=0).max() == 0


def test_a_gif_is_read_as_it_is_written(tmp_path):
    frames = np.arange(6, dtype=np.uint8)[:, None, None, None] * 40 + np.zeros((6, 9, 7, 1), np.uint8)
    path = VIDEO.write(frames, tmp_path)
    clip = open_clip(path)
    assert len(clip) == 6 and np.array_equal(np.stack([np.asarray(f.convert("L")) for f in clip.frames(range(6))]),
                                             frames[..., 0])  # fmt: skip
    assert np.array_equal(VIDEO.receive(VIDEO.send(frames)).times, clip.times)
    Image.new("L", (5, 4), 9).save(tmp_path / "still.gif")
    assert len(open_clip(tmp_path / "still.gif")) == 1


def test_a_folder_of_frames_is_in_the_order_of_its_numbers(tmp_path):
    for number in (1, 2, 9, 10, 11):
        Image.new("RGB", (6, 5), (number,) * 3).save(tmp_path / f"f{number}.png")
    clip = open_clip(tmp_path)
    assert [np.asarray(frame)[0, 0, 0] for frame in clip.frames(range(5))] == [1, 2, 9, 10, 11]


def test_a_turned_recording_is_upright():
    class Frame:
        format, rotation = type("Format", (), {"name": "rgb24"}), 90

        def to_ndarray(self, format):
            return np.arange(6, dtype=np.uint8).reshape(2, 3)

    assert np.array_equal(np.asarray(reader.upright(Frame())), [[2, 5], [1, 4], [0, 3]])


def test_what_is_wrong_is_said_in_a_line(tmp_path, monkeypatch):
    def refused(source, words):
        with pytest.raises(ValueError, match=words) as error:
            clip = open_clip(source)
            list(clip.frames([len(clip) - 1]))
        assert "\n" not in str(error.value)

    whole = film(tmp_path / "a.mp4", STEADY).read_bytes()
    refused(whole[:400], "the clip is (cut short or )?damaged")
    refused(b"#EXTM3U\n/etc/passwd\n", "no video in a format that is known")
    refused(tmp_path / "none.mp4", "no such clip")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "holds no frames")
    (tmp_path / "b.gif").write_bytes(b"GIF89a" + b"\xff" * 20)
    refused(tmp_path / "b.gif", "b.gif (is cut short or damaged|has frames of)")
    with av.open(str(tmp_path / "sound.mp4"), "w") as file:
        stream = file.add_stream("aac", rate=16_000)
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        sound.rate = 16_000
        file.mux([*stream.encode(sound), *stream.encode(None)])
    refused(tmp_path / "sound.mp4", "sound.mp4 has no video stream: it holds sound alone")
    monkeypatch.setattr(reader, "MOST_PIXELS", 1000)
    refused(tmp_path / "a.mp4", "has frames of 48 × 64 pixels, at most 1,000 are read")
    monkeypatch.setattr(reader, "MOST_PIXELS", 1 << 25)
    monkeypatch.setattr(reader, "MOST_FRAMES", 20)
    refused(tmp_path / "a.mp4", "has more than 20 frames; cut it")
    monkeypatch.setattr(reader, "MOST_FRAMES", 1 << 20)
    monkeypatch.setattr(reader, "MOST_DECODED", 48 * 64)
    refused(tmp_path / "a.mp4", "too much to decode")
    monkeypatch.setattr(reader, "MOST_SECONDS", 1)
    refused(tmp_path / "a.mp4", "lasts 0 hours, at most")
    with pytest.raises(ValueError, match="a clip is an array of bytes"):
        VIDEO.read(np.zeros((3, 4, 4, 3)))


def test_lists_of_clips(tmp_path):
    for label, number in (("run", 1), ("run", 2), ("walk", 3)):
        (tmp_path / "set" / label).mkdir(parents=True, exist_ok=True)
        VIDEO.write(np.full((2, 4, 4, 1), number, np.uint8), tmp_path / "set" / label).rename(
            tmp_path / "set" / label / f"{number}.gif"
        )
    (tmp_path / "set" / "walk" / "frames").mkdir()
    Image.new("L", (4, 4)).save(tmp_path / "set" / "walk" / "frames" / "0.png")
    files = list_clips(tmp_path / "set")
    assert [(file.label, file.path.name) for file in files] == [
        ("run", "1.gif"), ("run", "2.gif"), ("walk", "3.gif"), ("walk", "frames")
    ]  # fmt: skip
    assert len(list_clips(tmp_path / "set", labelled=False)) == 4
    (tmp_path / "set.csv").write_text("path,label\nset/run/1.gif,run\nset/walk/9.gif,walk\n")
    with pytest.raises(ValueError, match=r"set.csv, line 3: no such clip"):
        list_clips(tmp_path / "set.csv")
    with pytest.raises(ValueError, match="no such file or folder"):
        list_clips(tmp_path / "other")


@pytest.mark.parametrize("kind", KINDS)
def test_where_a_shape_is_in_a_frame_says_nothing(kind):
    """In every frame the brightest place is anywhere, for each label alike."""
    for label in KINDS[kind][1]:
        drawn = [clip(kind, "train", number) for number in range(60 * len(KINDS[kind][1]))]
        frames = np.stack([each.frames for each in drawn if each.label == label]).astype(float)[..., 0]
        assert frames.shape == (60, FRAMES, SIDE, SIDE)
        for at in range(FRAMES):
            bright = frames[:, at].reshape(60, -1).argmax(1)
            angles = 2j * np.pi * np.stack([bright // SIDE, bright % SIDE]) / SIDE
            assert np.abs(np.exp(angles).mean(1)).max() < 0.5  # about 0.13 by chance


def test_the_frames_of_a_batch(tmp_path):
    frames = np.zeros((5, 12, 12, 3), np.uint8) + np.arange(5, dtype=np.uint8)[:, None, None, None] * 50
    for label in "ab":
        (tmp_path / label).mkdir()
        for number in range(3):
            VIDEO.write(frames, tmp_path / label).rename(tmp_path / label / f"{number}.gif")
    data = ClipsConfig(clips=str(tmp_path), size=8, frames=2)
    clips, held = data.split()
    assert len(clips) + len(held) == 6
    made = ClipFrames(data.preprocessing(), data.names(clips), data, tokens=4)
    batch = next(made.stream(made.examples(clips), 4 * len(clips)).batches())[2]
    assert batch.inputs["video"].shape == (5, 2, 3, 8, 8) and "lengths" not in batch.inputs
    data = ClipsConfig(clips=str(tmp_path), size=8, frames=4, rate=10.0, task="forwards")
    made = ClipFrames(data.preprocessing(), data.names([]), data, tokens=4)
    held = data.split()[1]
    batch = made.collate(made.examples(held))
    assert batch.inputs["lengths"].tolist() == [2] * 2 and batch.targets.tolist() == [1, 0]
    assert batch.inputs["video"][0, :2].flip(0).equal(batch.inputs["video"][1, :2])
