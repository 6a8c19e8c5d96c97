"""Clips: video files and animated GIFs, as a file or an upload brings them; and the settings of their frames."""

import struct
from io import BytesIO

from PIL import Image

from fuzz.scratch import put
from regard.data.readers.clip_preprocessing import ClipPreprocessing
from regard.data.readers.clips import open_clip
from regard.data.readers.preprocessing import Preprocessing
from regard.hub.clip_preprocessor import load_clip_preprocessing
from regard.hub.preprocessor import PREPROCESSOR

READS = tuple(f"regard.{name}" for name in ("data.readers.clips", "data.readers.clip_preprocessing",
                                            "hub.clip_preprocessor"))  # fmt: skip
WORDS = [b"GIF89a", b"\x00;", b"\x21\xf9\x04", b"ftypisom", b"moov", b"trak", b"mdat", b"stts", b"stsz", b"avcC",
         b"\x1a\x45\xdf\xa3", b"\x1f\x43\xb6\x75", b"RIFF", b"AVI LIST", b"idx1", b"00dc", b"vids",
         b'"num_frames"', b'"fps"', b'"offset"', b'"crop_size"', b"1e999", b"-1"]  # fmt: skip
SETTINGS = b"""{"image_processor_type": "VivitImageProcessor", "size": {"shortest_edge": 24}, "crop_size": 16,
"num_frames": 4, "fps": 2.5, "offset": true}"""
READER = ClipPreprocessing(image=Preprocessing(channels=1, size=(8, 8)), frames=4)


def gif(frames: int) -> bytes:
    """An animated GIF of small frames that differ."""
    images = [Image.frombytes("L", (5, 4), bytes((20 * n + i) % 256 for i in range(20))) for n in range(frames)]
    file = BytesIO()
    images[0].save(file, "GIF", save_all=True, append_images=images[1:], duration=[40, 200] * (frames // 2))
    return file.getvalue()


def avi(frames: int) -> bytes:
    """An AVI file of frames without compression."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)

    def several(name: bytes, *chunks: bytes) -> bytes:
        return chunk(b"LIST", name + b"".join(chunks))

    header = struct.pack("<14I", 40_000, 0, 0, 0x10, frames, 0, 1, 48, 4, 4, 0, 0, 0, 0)
    stream = struct.pack("<4s4s5I4I2I", b"vids", b"DIB ", 0, 0, 0, 1, 25, 0, frames, 48, 0, 0, 0)
    form = struct.pack("<IiiHHIIiiII", 40, 4, 4, 1, 24, 0, 48, 0, 0, 0, 0)
    film = several(b"movi", *(chunk(b"00db", bytes([n * 9] * 48)) for n in range(frames)))
    heads = several(b"hdrl", chunk(b"avih", header), several(b"strl", chunk(b"strh", stream), chunk(b"strf", form)))
    return chunk(b"RIFF", b"AVI " + heads + film)


def seeds() -> list[bytes]:
    """Return a clip in each format that is made here, and the settings beside a model behind a byte 1."""
    return [gif(4), gif(2), avi(5), b"\x01" + SETTINGS]


def run(data: bytes) -> None:
    """Read four frames of a clip; or read settings."""
    if data[:1] == b"\x01":
        config = type("Config", (), {"channels": 3, "image": 16, "frames": 4})
        load_clip_preprocessing(put(PREPROCESSOR, data[1:]).parent, config)
        return
    READER(open_clip(data))
