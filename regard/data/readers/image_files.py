"""Image files as images of Pillow's, read robustly, and as arrays."""

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from regard.files import check_regular

FRACTIONS = 2
"""Floats that are all below this go from 0 to 1, up to rounding; read as bytes they would all be black."""
MOST_PIXELS = 1 << 27
"""Most pixels of an image that is read; a file that claims more may be there to exhaust the memory."""
MOST_BYTES = 1 << 30
"""Most bytes of an image file."""
STRIP = 256
"""Rows of an image that are made opaque at a time."""
SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "DIB", "WEBP", "TIFF", "PPM")
"""The formats that Pillow may decode; others, such as PostScript, it would hand to other programs."""
WIDE = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")
"""Modes of grey with more than 8 bits."""


def read_image(image: str | Path | BytesIO | Image.Image, least: tuple[int, int] | None = None) -> Image.Image:
    """An image file decoded: upright, 8 bits, grey (L) or colour (RGB), transparent parts white.

    With `least`, a JPEG is decoded at the smallest scale that leaves at least so many rows and columns.
    """
    if isinstance(image, Image.Image):
        return plain(upright(image))
    name = str(image) if isinstance(image, str | Path) else "the image"
    if isinstance(image, str | Path) and Path(image).is_dir():
        raise ValueError(f"{name} is a folder; name the image files in it: {name}/*.png")
    try:
        if isinstance(image, str | Path):
            check_regular(Path(image), MOST_BYTES)
        with Image.open(image, formats=FORMATS) as opened:
            columns, rows = opened.size
            if rows * columns > MOST_PIXELS:
                raise ValueError(
                    f"{name} has {rows:,} × {columns:,} pixels, at most {MOST_PIXELS:,} are read; make it smaller"
                )
            if least is not None:
                opened.draft(None, (max(least), max(least)))  # sides may be exchanged when it is rotated
            opened.load()
            decoded = plain(upright(opened))
            decoded.info["path"] = name  # for errors
            return decoded
    except FileNotFoundError:
        raise ValueError(f"no such image: {name}") from None
    except UnidentifiedImageError:
        raise ValueError(f"{name} is no image in a format that is known; open it and save it as PNG or JPEG") from None
    except Image.DecompressionBombError:  # before its size can be asked for
        raise ValueError(f"{name} has too many pixels, at most {MOST_PIXELS:,} are read; make it smaller") from None
    except Exception as error:  # Pillow's decoders raise errors of any kind
        if str(error).startswith(str(name)):
            raise
        raise ValueError(f"{name} is cut short or damaged ({error}); copy it again, or leave it out") from None


def pixels_of(image: BytesIO) -> int:
    """The number of pixels that the header of an image file claims; 0 for one that `read_image` refuses."""
    try:
        with Image.open(image, formats=FORMATS) as opened:
            return opened.width * opened.height
    except Exception:  # headers of any kind; reading it raises the error that says why
        return 0


def is_image(name: str) -> bool:
    """Whether a name has the suffix of an image file."""
    return Path(name.strip()).suffix.lower() in SUFFIXES


def list_images(folder: Path) -> list[Path]:
    """The image files of a folder at any depth; hidden files and other suffixes are passed over. What only has the
    name of an image is refused by `read_image`."""
    paths = sorted(
        path for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and not path.is_dir()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )  # fmt: skip
    if not paths:
        raise ValueError(f"{folder} holds no images ({', '.join(SUFFIXES)}); fill it or remove it")
    return paths


def upright(image: Image.Image) -> Image.Image:
    """The image rotated as its EXIF data say; EXIF data that cannot be read are ignored."""
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # EXIF data of any kind
        return image


def plain(image: Image.Image) -> Image.Image:
    """An image of any mode as L or RGB."""
    if image.mode in WIDE:  # convert("L") would cut off at 255
        values = np.asarray(image, dtype=np.float64)
        if not np.isfinite(values).all():
            raise ValueError("some of its pixels are no numbers")
        most = 255.0 if image.mode == "F" or image.mode == "I" and values.max() <= 255 else 65535.0
        if image.mode == "F" and values.max() < FRACTIONS:
            most = 1.0
        grey = (values.clip(0, most) * (255 / most)).round().astype(np.uint8)
        return Image.fromarray(np.where(values == image.info.get("transparency"), np.uint8(255), grey))
    if image.mode in ("P", "PA", "LA", "La", "RGBA", "RGBa") or "transparency" in image.info:
        return on_white(image, "L" if image.mode in ("L", "LA", "La", "1") else "RGB")
    if image.mode in ("L", "RGB"):
        return image
    return image.convert("L" if image.mode == "1" else "RGB")


def on_white(image: Image.Image, mode: str) -> Image.Image:
    """An image with its transparent parts white, in strips: all of it with transparency would be twice as large."""
    whole = Image.new(mode, image.size)
    for top in range(0, image.height, STRIP):
        layer = image.crop((0, top, image.width, min(top + STRIP, image.height))).convert("RGBA")
        flat = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
        whole.paste(flat.getchannel(0) if mode == "L" else flat.convert("RGB"), (0, top))
    return whole


def as_array(image: Image.Image, channels: int) -> np.ndarray:
    """An image as bytes (rows, columns, channels)."""
    if channels not in (1, 3):
        raise ValueError(f"image files have 1 channel (grey) or 3 (colour), the model reads {channels}")
    pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    return pixels[:, :, None] if channels == 1 else pixels


def as_images(pixels: Iterable[np.ndarray]) -> list[Image.Image]:
    """Arrays of bytes (rows, columns, channels), grey or in colours, as Pillow images."""
    return [Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array) for array in pixels]
