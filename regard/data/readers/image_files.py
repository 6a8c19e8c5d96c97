"""Image files as arrays: read robustly, brought to a size, turned into the numbers that a model was trained on."""

import base64
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

FRACTIONS = 2
"""Floats below are meant to go from 0 to 1, give or take a rounding; as bytes they would all be black."""
PIXELS = 1 << 27
"""Most pixels of an image that are read: what claims to have more may be there to fill the memory."""
SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "DIB", "WEBP", "TIFF", "PPM")
"""What these files are in truth, as Pillow calls it; others, such as PostScript, it would hand to other programs."""
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of the photographs that published backbones have seen."""
WIDE = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")
"""Modes of grey with more than 8 bits."""

Filter = Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"]
FILTERS: dict[str, Any] = {name: Image.Resampling[name.upper()] for name in Filter.__args__}  # type: ignore[attr-defined]


def read_image(picture: str | Path | BytesIO | Image.Image) -> Image.Image:
    """A picture as it is meant to be seen: upright, 8 bits, grey (L) or colour (RGB), transparent parts white."""
    if isinstance(picture, Image.Image):
        return plain(upright(picture))
    name = str(picture) if isinstance(picture, str | Path) else "the picture"
    if isinstance(picture, str | Path) and Path(picture).is_dir():
        raise ValueError(f"{name} is a folder; name the image files in it: {name}/*.png")
    if isinstance(picture, str | Path) and not Path(picture).is_file():
        raise ValueError(f"no such image: {name}")
    try:
        with Image.open(picture, formats=FORMATS) as opened:
            columns, rows = opened.size
            if rows * columns > PIXELS:
                raise ValueError(
                    f"{name} has {rows:,} × {columns:,} pixels, at most {PIXELS:,} are read; make it smaller"
                )
            opened.load()
            found = plain(upright(opened))
            found.info["path"] = name  # for errors
            return found
    except UnidentifiedImageError:
        raise ValueError(f"{name} is no image in a format that is known; open it and save it as PNG or JPEG") from None
    except Image.DecompressionBombError:  # before its size can be asked for
        raise ValueError(f"{name} has too many pixels, at most {PIXELS:,} are read; make it smaller") from None
    except (OSError, SyntaxError, EOFError, MemoryError, ValueError, Warning) as error:  # where these are errors
        if str(error).startswith(str(name)):
            raise
        raise ValueError(f"{name} is cut short or damaged ({error}); copy it again, or leave it out") from None


def read_data_uri(uri: Any) -> Image.Image:
    """The image in a data: URI, as a request holds it."""
    head, comma, data = uri.partition(",") if isinstance(uri, str) else ("", "", "")
    if not (comma and head.startswith("data:image/") and head.endswith(";base64")):
        raise ValueError("no data: URI of an image; send data:image/png;base64,…")
    return read_image(BytesIO(base64.b64decode(data, validate=True)))  # its errors are ValueErrors


def is_image(name: str) -> bool:
    """Whether a word ends like the name of an image file."""
    return Path(name.strip()).suffix.lower() in SUFFIXES


def list_images(folder: Path) -> list[Path]:
    """The image files of a folder and those below it; what is hidden, or has another suffix, is passed over."""
    found = sorted(
        path for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )  # fmt: skip
    if not found:
        raise ValueError(f"{folder} holds no pictures ({', '.join(SUFFIXES)}); fill it or remove it")
    return found


def upright(image: Image.Image) -> Image.Image:
    """Turned as the camera noted; a note that cannot be read is no reason to refuse the picture."""
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # whatever stands in an old camera's notes
        return image


def plain(image: Image.Image) -> Image.Image:
    """Any mode as L or RGB."""
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
        was_grey, seen = image.mode in ("L", "LA", "La", "1"), image.convert("RGBA")
        seen = Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen)
        return seen.getchannel(0) if was_grey else seen.convert("RGB")
    if image.mode in ("L", "RGB"):
        return image
    return image.convert("L" if image.mode == "1" else "RGB")


def as_array(image: Image.Image, channels: int) -> np.ndarray:
    """Rows, columns, channels as bytes."""
    if channels not in (1, 3):
        raise ValueError(f"image files have 1 channel (grey) or 3 (colour), the model reads {channels}")
    found = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    return found[:, :, None] if channels == 1 else found


def as_images(pixels: Iterable[np.ndarray]) -> list[Image.Image]:
    """Arrays of bytes (rows, columns, channels), grey or in colours, as images of Pillow's."""
    return [Image.fromarray(one[..., 0] if one.shape[-1] == 1 else one) for one in pixels]


@dataclass(frozen=True, kw_only=True, slots=True)
class Preprocessing:
    """How a picture becomes numbers: resized, its centre cut out, scaled, and each channel centred."""

    channels: int = 3
    """1 for grey, 3 for colours."""
    size: tuple[int, int] | None = None
    """Rows and columns that every picture is brought to."""
    shortest: int | None = None
    """Or the length of its shorter side; the other keeps the shape."""
    longest: int | None = None
    """Most pixels of the longer side, for which the shorter one then gives way."""
    crop: tuple[int, int] | None = None
    """Rows and columns of the centre that is kept; what is missing is black."""
    filter: Filter = "bilinear"
    """How pixels in between are found."""
    scale: float | None = 1 / 255
    """What bytes are multiplied with."""
    mean: tuple[float, ...] = ()
    """Taken from each channel; none: nothing is."""
    std: tuple[float, ...] = ()
    """What each channel is then divided by."""

    def __post_init__(self) -> None:
        if self.size is not None and self.shortest is not None:
            raise ValueError(f"a picture has size={self.size} or shortest={self.shortest}, not both")
        if self.longest is not None and (self.shortest is None or self.longest < self.shortest):
            raise ValueError(f"longest={self.longest} needs a shortest of at most that, got {self.shortest}")
        if len(self.mean) != len(self.std) or len(self.mean) not in (0, self.channels):
            raise ValueError(
                f"mean {self.mean} and std {self.std} must have a number for each of {self.channels} channels"
            )
        if min(self.std, default=1) <= 0:
            raise ValueError(f"std {self.std} must be above 0")

    @property
    def target(self) -> tuple[int, int] | None:
        """Rows and columns of the result, if they are the same for all pictures."""
        return self.crop or self.size

    def at(self, target: tuple[int, int]) -> "Preparation":
        """The same for results of another size; what is cut off around them stays in proportion."""
        if self.crop is None:
            return replace(self, size=target, shortest=None, longest=None)
        times = min(target) / min(self.crop)
        whole, shortest, longest = self.size, self.shortest, self.longest
        return replace(
            self, crop=target, size=whole and (round(whole[0] * times), round(whole[1] * times)),
            shortest=shortest and round(shortest * times), longest=longest and round(longest * times),
        )  # fmt: skip

    def __call__(self, image: Image.Image) -> np.ndarray:
        """Channels, rows, columns."""
        return self.numbers(self.fit(image))

    def fit(self, image: Image.Image) -> np.ndarray:
        """The picture at its size: rows, columns, channels as bytes."""
        image = image.convert("L" if self.channels == 1 else "RGB")
        size = self.size or (short_side(image.size, self.shortest, self.longest) if self.shortest else None)
        if size is not None:
            if size[0] * size[1] > PIXELS:
                raise ValueError(
                    f"{image.info.get('path', 'a picture')} of {image.size[1]:,} × {image.size[0]:,} pixels would "
                    f"become one of {size[0]:,} × {size[1]:,}, at most {PIXELS:,} are read; cut it"
                )
            image = image.resize((size[1], size[0]), FILTERS[self.filter])
        found = as_array(image, self.channels)
        return found if self.crop is None else centre(found, self.crop)

    def numbers(self, bytes_: np.ndarray) -> np.ndarray:
        """Bytes (…, rows, columns, channels) as the model reads them: (…, channels, rows, columns), float32."""
        x: np.ndarray = bytes_.astype(np.float32)
        if self.scale is not None:
            x = (bytes_.astype(np.float64) * self.scale).astype(np.float32)
        if self.mean:
            x = (x - np.array(self.mean, dtype=np.float32)) / np.array(self.std, dtype=np.float32)
        return np.ascontiguousarray(np.moveaxis(x, -1, -3))

    def bytes_of(self, numbers: np.ndarray) -> np.ndarray:
        """The way back, for pictures that a model made: bytes (…, rows, columns, channels)."""
        x: np.ndarray = np.moveaxis(numbers, -3, -1).astype(np.float64)
        if self.mean:
            x = x * np.array(self.std) + np.array(self.mean)
        return (x / (1 if self.scale is None else self.scale)).round().clip(0, 255).astype(np.uint8)


def short_side(size: tuple[int, int], shortest: int, longest: int | None = None) -> tuple[int, int]:
    """Rows and columns with the shorter side as asked for, or less where the other would become too long."""
    (columns, rows), exact = size, float(shortest)
    if longest is not None and max(size) / min(size) * shortest > longest:
        exact = longest * min(size) / max(size)
        shortest = round(exact)
        if min(size) == shortest:
            return rows, columns
        shortest = max(1, shortest)
    long = int(exact * max(size) / min(size))
    return (long, shortest) if columns <= rows else (shortest, long)


def centre(pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The middle of a picture; where it is smaller, black around it."""
    missing = [max(0, want - have) for want, have in zip(size, pixels.shape, strict=False)]
    if any(missing):
        around = [(math.ceil(gap / 2), gap - math.ceil(gap / 2)) for gap in missing]
        pixels = np.pad(pixels, [*around, (0, 0)])
    # As the usual libraries count: an odd remainder goes to the bottom and the right, one more pixel of black above.
    top, left = ((have - want) // 2 for have, want in zip(pixels.shape, size, strict=False))
    return pixels[top : top + size[0], left : left + size[1]]
