"""Image files: PNG, JPEG, TIFF, GIF, BMP, WebP."""

from functools import cache
from io import BytesIO

from PIL import Image

from fuzz.scratch import put
from regard.data.readers import image_files
from regard.data.readers.image_files import as_array, read_image

image_files.MOST_PIXELS = 2**25  # the ceiling of memory is 16 bytes for each
READS = ("regard.data.readers.image_files",)
SHAPES = [
    ("PNG", "RGB"),
    ("PNG", "P"),
    ("PNG", "LA"),
    ("PNG", "I;16"),
    ("JPEG", "RGB"),
    ("JPEG", "CMYK"),
    ("TIFF", "RGB"),
    ("TIFF", "F"),
    ("GIF", "P"),
    ("BMP", "RGB"),
    ("WEBP", "RGBA"),
]
WORDS = [
    b"IHDR",
    b"IDAT",
    b"PLTE",
    b"tRNS",
    b"iCCP",
    b"eXIf",
    b"IEND",
    b"Exif\x00\x00II*\x00",
    b"\xff\xd8",
    b"\xff\xda",
    b"\xff\xc2",
    b"II*\x00",
    b"MM\x00*",
    b"GIF89a",
    b"RIFF",
    b"VP8L",
]


@cache
def seeds() -> list[bytes]:
    """Return a few pixels in every format and mode."""
    out = []
    for kind, mode in SHAPES:
        image, file = Image.new("L", (7, 5)), BytesIO()
        image.putdata([i * 7 % 256 for i in range(35)])
        image.convert("I" if mode == "I;16" else mode).convert(mode).save(file, kind)
        out.append(file.getvalue())
    return out


def run(data: bytes) -> None:
    """Read it from memory and from a file, and as an array."""
    as_array(read_image(BytesIO(data)), 3)
    as_array(read_image(put("image", data), (4, 4)), 1)
