"""Frames of mp3 (ISO 11172-3 and 13818-3, layer III): those of one kind, before a library decodes an upload.

libmpg123 before 1.32.8 could write beyond a buffer when the kind of frames changes within a file (CVE-2024-10573), and
soundfile brings an older one.
"""

from typing import NamedTuple

FALSE_STARTS = 100_000
"""Most bytes that look like the beginning of a frame and are none: each takes a microsecond, and what is behind them is
left out."""
RATES = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8000)}
"""Samples a second by the version in the header: 1, 2 or 2.5."""
KILOBITS = {
    True: (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    False: (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
"""Kilobits a second of version 1, and of the others."""


class Frame(NamedTuple):
    """The header of a frame: its bytes, and what all frames of a file have in common."""

    size: int
    kind: tuple[int, int, bool]
    """Version, samples a second, and whether there is one channel."""


def frame_at(data: bytes, at: int) -> Frame | None:
    """The frame that begins at a byte, None if none does."""
    if at + 4 > len(data) or data[at] != 0xFF or data[at + 1] & 0xE6 != 0xE2:  # eleven bits, and layer III
        return None
    version, bits, rate = data[at + 1] >> 3 & 3, data[at + 2] >> 4, data[at + 2] >> 2 & 3
    if version not in RATES or not 1 <= bits <= 14 or rate == 3:
        return None
    samples = RATES[version][rate]
    size = (144 if version == 3 else 72) * 1000 * KILOBITS[version == 3][bits - 1] // samples + (data[at + 2] >> 1 & 1)
    return Frame(size, (version, samples, data[at + 3] >> 6 == 3))


def one_kind(data: bytes) -> bytes:
    """The frames of an mp3 that are of the first one's kind, without tags and whatever else lies between them."""
    at = tag_size(data)
    if data[at : at + 4] == b"fLaC":  # some programs write such a tag there, too
        return data[at:]
    kept, kind, expected, false = list[bytes](), None, -1, 0
    while (at := data.find(b"\xff", at)) >= 0 and false < FALSE_STARTS:
        frame = frame_at(data, at)
        if frame is None or not (at == expected or is_followed(data, at, frame)) or at + frame.size > len(data):
            at, false = at + 1, false + 1
            continue
        kind = kind or frame.kind
        expected = at + frame.size
        if frame.kind == kind:
            kept.append(data[at:expected])
        at = expected
    return b"".join(kept)


def is_followed(data: bytes, at: int, frame: Frame) -> bool:
    """Return whether another frame of that kind follows, or the end: two bytes alone do not make one."""
    following = frame_at(data, at + frame.size)
    return at + frame.size == len(data) or (following is not None and following.kind == frame.kind)


def tag_size(data: bytes) -> int:
    """The bytes of the tag before the frames (ID3v2): its size has seven bits in each byte."""
    if data[:3] != b"ID3" or len(data) < 10:
        return 0
    return 10 + sum((byte & 127) << 7 * place for place, byte in enumerate(data[9:5:-1])) + 10 * (data[5] >> 4 & 1)
