"""Clips: video files, animated GIFs and folders of frames, of which only frames that are asked for are ever in memory.

GIFs and folders are read by Pillow, everything else by av. A clip knows when each of its frames is shown, so that a
variable frame rate is nothing special.
"""

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from regard.data.readers.image_files import as_images, is_image, plain, read_image
from regard.files import check_regular

SUFFIXES = (".mp4", ".webm", ".avi", ".mov", ".mkv", ".m4v", ".gif")
MOST_BYTES = 1 << 35
"""Most bytes of a video file; it is never in memory as a whole."""
MOST_PIXELS = 1 << 25
"""Most pixels of a frame, a little more than those of 8K."""
MOST_OF_GIF = 1 << 22
"""Most pixels of a GIF, whose frames are drawn over each other in several copies."""
MOST_BYTES_OF_GIF = 1 << 28
MOST_FRAMES = 1 << 20
MOST_SECONDS = 4 * 3600
MOST_DECODED = 1 << 33
"""Most pixels that are decoded on the way to the frames that are asked for: about a minute's work."""
RATE = 25.0
"""Frames a second of folders and arrays, which do not say it."""
BLINK = 0.02
"""A GIF's frame of fewer seconds is shown for a tenth of a second, as browsers do."""

Load = Callable[[Sequence[int]], Iterator[Image.Image]]
"""Function from ascending numbers of frames to these frames, one after the other."""


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """A moving image: when each frame begins, when the last one ends, and a function that reads some of them."""

    name: str
    """For errors: the path, or a few words."""
    times: np.ndarray
    """Seconds when each frame begins; the first is 0."""
    seconds: float
    size: tuple[int, int]
    """Rows and columns of a frame as it is stored, before it is rotated."""
    load: Load
    array: np.ndarray | None = None
    """All frames as bytes (frames, rows, columns, channels), where they are in memory."""

    def __len__(self) -> int:
        return len(self.times)

    def sample(self, count: int, rate: float | None = None, where: float = 0.5) -> list[int]:
        """The numbers of `count` frames, spread evenly over the clip: those shown in the middle of as many equal parts.

        With a `rate` they are 1 / rate seconds apart; from a longer clip a part is taken, from its beginning
        (`where` 0) to its end (1), and of a shorter one there are fewer frames.
        """
        if rate is None:
            moments: np.ndarray = (np.arange(count) + 0.5) / count * self.seconds
        else:
            count = max(1, min(count, round(self.seconds * rate)))
            moments = (np.arange(count) + 0.5) / rate + max(0.0, self.seconds - count / rate) * where
        numbers = np.searchsorted(self.times, moments + 1e-9, side="right") - 1
        return numbers.clip(0, len(self) - 1).tolist()

    def frames(self, numbers: Sequence[int]) -> Iterator[Image.Image]:
        """The frames of these ascending numbers, which may repeat: grey (L) or colour (RGB), upright."""
        wanted = sorted(set(numbers))
        images, at = self.load(wanted), -1
        image: Image.Image | None = None
        for number in numbers:
            if number != at:
                image, at = next(images), number
            assert image is not None
            yield image


def open_clip(source: str | Path | bytes) -> Clip:
    """A clip from the name of a file or of a folder of frames, or from the bytes of a file."""
    if isinstance(source, bytes):
        return open_file(lambda: BytesIO(source), source[:16], "the clip")
    path, name = Path(source), str(source)
    try:
        if path.is_dir():
            return open_folder(path)
        check_regular(path, MOST_BYTES)
    except (FileNotFoundError, OSError):
        raise ValueError(f"no such clip: {name[:300]}") from None
    with path.open("rb") as file:
        start = file.read(16)
    return open_file(lambda: path.open("rb"), start, name)


def open_file(source: Callable[[], Any], start: bytes, name: str) -> Clip:
    """A clip from a function that opens its file; the first bytes say what it is, so that no other demuxer, such as one
    of playlists that name further files, ever sees it."""
    if start[:4] == b"GIF8":
        return open_gif(source, name)
    if start[4:8] in (b"ftyp", b"moov", b"mdat", b"free", b"wide", b"skip"):
        return open_video(source, "mp4", name)
    if start[:4] == b"\x1a\x45\xdf\xa3":
        return open_video(source, "matroska", name)
    if start[:4] == b"RIFF" and start[8:12] == b"AVI ":
        return open_video(source, "avi", name)
    raise ValueError(f"{name} is no video in a format that is known ({', '.join(SUFFIXES)}); convert it to MP4")


def open_folder(folder: Path) -> Clip:
    """The image files of a folder as frames, in the order of the numbers in their names."""
    paths = frame_files(folder)
    if not paths:
        raise ValueError(f"{folder} holds no frames: image files such as 0001.png; name a video file, or fill it")
    check_frames(len(paths), str(folder))
    first = read_image(paths[0])
    load: Load = lambda numbers: (read_image(paths[number]) for number in numbers)  # noqa: E731
    return Clip(str(folder), np.arange(len(paths)) / RATE, len(paths) / RATE, (first.height, first.width), load)


def frame_files(folder: Path) -> list[Path]:
    """The image files of a folder; 10.png comes behind 9.png. Animated GIFs are clips, and no frames."""
    files = [path for path in folder.iterdir() if is_image(path.name) and path.suffix.lower() != ".gif"]
    return sorted((path for path in files if path.is_file() and path.name[0] != "."), key=natural)


def natural(path: Path) -> list[Any]:
    """A key to sort names by, in which digits count as numbers."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d{1,18})", path.name)]


def from_frames(frames: np.ndarray, name: str = "the clip") -> Clip:
    """A clip from bytes in memory (frames, rows, columns, channels)."""
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[-1] not in (1, 3) or not frames.size:
        raise ValueError(
            f"a clip is an array of bytes, frames × rows × columns × 1 or 3 channels; got {frames.dtype} of shape "
            f"{frames.shape}; convert it: (255 * frames).astype('uint8')"
        )
    check_frames(len(frames), name)
    load: Load = lambda numbers: iter(as_images(frames[list(numbers)]))  # noqa: E731
    return Clip(name, np.arange(len(frames)) / RATE, len(frames) / RATE, frames.shape[1:3], load, frames)


# ---- animated GIFs, by Pillow ----------------------------------------------------------------------------------------


def open_gif(source: Callable[[], Any], name: str) -> Clip:
    """An animated GIF, whose frames have a duration each; of one that does not move, one frame. Nothing is decoded
    before the sizes of all frames, which may reach beyond the first, are known."""
    with source() as file:
        data = file.read(MOST_BYTES_OF_GIF + 1)
    if len(data) > MOST_BYTES_OF_GIF:
        raise ValueError(f"{name} is a GIF of more than {MOST_BYTES_OF_GIF:,} bytes; convert it to MP4")
    lengths, rows, columns = [], 0, 0
    try:
        for down, right, shown in gif_blocks(data):
            lengths.append(shown if shown >= BLINK else 0.1)
            rows, columns = max(rows, down), max(columns, right)
            check_frames(len(lengths), name)
    except (IndexError, struct.error):
        if not lengths:
            raise damaged(name, ValueError("it ends too early")) from None
    check_pixels(rows, columns, name, MOST_OF_GIF)
    ends = np.cumsum(lengths)
    return Clip(
        name, ends - lengths, float(ends[-1]), (rows, columns), partial(gif_frames, source, name, rows * columns)
    )


def gif_blocks(data: bytes) -> Iterator[tuple[int, int, float]]:
    """For each frame of a GIF, the rows and columns that it reaches to, and the seconds that it is shown."""
    columns, rows, flags = struct.unpack_from("<HHB", data, 6)
    at, delay = 13 + (3 << (flags & 7) + 1 if flags & 128 else 0), 0
    while data[at] != 0x3B:
        if data[at] == 0x2C:
            left, top, wide, high, flags = struct.unpack_from("<HHHHB", data, at + 1)
            at += 11 + (3 << (flags & 7) + 1 if flags & 128 else 0)
            yield max(rows, top + high), max(columns, left + wide), delay / 100
        elif data[at] == 0x21:
            if data[at + 1] == 0xF9:
                delay = struct.unpack_from("<H", data, at + 4)[0]
            at += 2
        else:
            return
        while data[at]:  # the parts of a block, each behind its length
            at += data[at] + 1
        at += 1


def gif_frames(source: Callable[[], Any], name: str, pixels: int, numbers: Sequence[int]) -> Iterator[Image.Image]:
    """Some frames of a GIF; each is drawn over those before it."""
    if numbers and (numbers[-1] + 1) * pixels > MOST_DECODED:
        raise too_far(name)
    try:
        with source() as file, Image.open(file, formats=("GIF",)) as image:
            for number in numbers:
                image.seek(number)
                yield plain(image.convert("RGBA" if "transparency" in image.info else image.mode))
    except Exception as error:  # Pillow's decoders raise errors of any kind
        raise damaged(name, error) from None


# ---- everything else, by av ------------------------------------------------------------------------------------------


def open_video(source: Callable[[], Any], form: str, name: str) -> Clip:
    """A video file: its packets say when frames are shown; none is decoded yet."""
    av = needed(name)
    shown: list[tuple[int, bool]] = []
    end = 0
    try:
        with source() as file, av.open(file, format=form) as container:
            stream = stream_of(container, name)
            rows, columns = stream.codec_context.height, stream.codec_context.width
            check_pixels(rows, columns, name)
            usual, step = stream.average_rate or stream.guessed_rate, stream.time_base
            for packet in container.demux(stream):
                time = packet.dts if packet.pts is None else packet.pts
                if packet.size and time is not None and not packet.is_discard:
                    shown.append((time, packet.is_keyframe))
                    end = max(end, time + (packet.duration or 0))
                    check_frames(len(shown), name)
    except Exception as error:  # av's errors are of many kinds
        raise damaged(name, error) from None
    if not shown:
        raise ValueError(f"{name} is damaged: its video has no frames; copy it again, or leave it out")
    shown.sort()
    ticks = np.array([time for time, _ in shown], dtype=np.float64)
    times = (ticks - ticks[0]) * float(step)
    length = max(0.0, end - ticks[-1]) * float(step) or (1 / float(usual) if usual else 1 / RATE)
    if not times[-1] + length <= MOST_SECONDS:
        hours = f"{(times[-1] + length) / 3600:,.0f} hours"
        raise ValueError(f"{name} lasts {hours}, at most {MOST_SECONDS // 3600} are read; cut it")
    load = partial(video_frames, source, form, name, shown, rows * columns)
    return Clip(name, times, float(times[-1] + length), (rows, columns), load)


def video_frames(
    source: Callable[[], Any], form: str, name: str, shown: Sequence[tuple[int, bool]], pixels: int,
    numbers: Sequence[int],
) -> Iterator[Image.Image]:  # fmt: skip
    """Some frames of a video file; the decoder goes on from the last keyframe before each."""
    av, keys = needed(name), [number for number, (_, key) in enumerate(shown) if key] or [0]
    decoded = 0
    try:
        with source() as file, av.open(file, format=form) as container:
            stream = stream_of(container, name)
            images = container.decode(stream)
            frame, following = None, next(images, None)
            for number in numbers:
                wanted = shown[number][0]
                key = shown[keys[np.searchsorted(keys, number, side="right") - 1]][0]
                if following is not None and following.pts is not None and following.pts < key:
                    container.seek(key, stream=stream)
                    images = container.decode(stream)
                    frame, following = None, next(images, None)
                while following is not None and (frame is None or following.pts is None or following.pts <= wanted):
                    frame, following = following, next(images, None)
                    decoded += pixels
                    if decoded > MOST_DECODED:
                        raise too_far(name)
                if frame is None:
                    raise ValueError(f"{name} is damaged: none of its frames can be decoded; copy it again")
                check_pixels(frame.height, frame.width, name)
                yield upright(frame)
    except Exception as error:  # av's errors are of many kinds
        raise damaged(name, error) from None


def upright(frame: Any) -> Image.Image:
    """A decoded frame in colour, or in grey if it has none, rotated as a phone's recording says."""
    grey = str(frame.format.name).startswith("gray")
    array = frame.to_ndarray(format="gray" if grey else "rgb24")
    turns = round(getattr(frame, "rotation", 0) / 90) % 4
    return Image.fromarray(np.ascontiguousarray(np.rot90(array, turns)))


def needed(name: str) -> Any:
    """The package av, silent about what is wrong with files."""
    try:
        import av
    except ImportError:
        raise ValueError(f"{name}: video files need an extra: pip install 'regard[video]'") from None
    av.logging.set_level(None)
    return av


def stream_of(container: Any, name: str) -> Any:
    """The first video stream of an open file, whose decoder refuses frames that are too large."""
    videos = [stream for stream in container.streams.video if "attached_pic" not in str(stream.disposition)]
    if not videos:
        what = "sound alone" if container.streams.audio else "no video"
        raise ValueError(f"{name} has no video stream: it holds {what}; give another file")
    if videos[0].codec_context is None:
        raise ValueError(f"{name} has a video stream that cannot be decoded here; convert it to H.264")
    videos[0].codec_context.thread_count = 1  # threads that a damaged file leaves waiting would never end
    videos[0].codec_context.options = {"max_pixels": str(MOST_PIXELS)}
    return videos[0]


def check_pixels(rows: int, columns: int, name: str, most: int | None = None) -> None:
    if min(rows, columns) < 1:
        raise ValueError(f"{name} is cut short or damaged: its frames have no size; copy it again, or leave it out")
    most = MOST_PIXELS if most is None else most
    if rows * columns > most:
        raise ValueError(
            f"{name} has frames of {rows:,} × {columns:,} pixels, at most {most:,} are read; make it smaller"
        )


def check_frames(count: int, name: str) -> None:
    if count > MOST_FRAMES:
        raise ValueError(f"{name} has more than {MOST_FRAMES:,} frames; cut it")


def too_far(name: str) -> ValueError:
    return ValueError(f"{name} has too much to decode between its keyframes; cut it, or make it smaller")


def damaged(name: str, error: Exception) -> ValueError:
    """The error for a file that a decoder refused, in one line."""
    if isinstance(error, ValueError) and str(error).startswith(name):
        return error
    words = str(getattr(error, "strerror", None) or error).partition("\n")[0].rstrip(".") or type(error).__name__
    return ValueError(f"{name} is cut short or damaged ({words}); copy it again, or leave it out")
