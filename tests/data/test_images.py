"""Image files of every kind, good and bad: the right image, or one line with the path."""

import struct
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from regard.data.readers import image_files as images
from regard.data.readers.image_files import read_image
from regard.data.readers.preprocessing import Preprocessing, centre, short_side


def smooth(rows=23, columns=37):
    """An image that survives JPEG: a different ramp in each channel."""
    y, x = np.mgrid[0:rows, 0:columns]
    channels = [y * 255 / (rows - 1), x * 255 / (columns - 1), (y + x) * 255 / (rows + columns - 2)]
    return np.stack(channels, axis=-1).astype(np.uint8)


def saved(path, image, **how):
    image.save(path, **how)
    return path


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".gif", ".bmp", ".webp", ".tiff", ".ppm"])
def test_formats(tmp_path, suffix):
    found = read_image(saved(tmp_path / f"a{suffix}", Image.fromarray(smooth())))
    assert found.mode == "RGB" and found.size == (37, 23)
    limit = {".jpg": 12, ".webp": 12, ".gif": 40}.get(suffix, 0)
    assert np.abs(np.asarray(found).astype(int) - smooth()).max() <= limit


@pytest.mark.parametrize("turn", range(1, 9))
def test_upright(tmp_path, turn):
    """EXIF's eight ways to hold a camera: whatever is stored, the same image is seen."""
    upright = Image.fromarray(smooth())
    ways = {
        1: [], 2: [Image.Transpose.FLIP_LEFT_RIGHT], 3: [Image.Transpose.ROTATE_180],
        4: [Image.Transpose.FLIP_TOP_BOTTOM], 5: [Image.Transpose.TRANSPOSE], 6: [Image.Transpose.ROTATE_90],
        7: [Image.Transpose.TRANSVERSE], 8: [Image.Transpose.ROTATE_270],
    }  # fmt: skip
    stored = upright
    for way in ways[turn]:
        stored = stored.transpose(way)
    exif = Image.Exif()
    exif[0x0112] = turn
    found = read_image(saved(tmp_path / "a.png", stored, exif=exif))
    assert np.array_equal(np.asarray(found), smooth())


def test_sixteen_bits(tmp_path):
    values = np.linspace(0, 65535, 23 * 37).reshape(23, 37).astype(np.uint16)
    found = read_image(saved(tmp_path / "a.png", Image.fromarray(values)))
    assert found.mode == "L"
    assert np.abs(np.asarray(found) - values / 257).max() <= 0.5 + 1e-9


def test_sixteen_bits_of_which_one_value_is_transparent(tmp_path):
    values = np.linspace(0, 65535, 23 * 37).reshape(23, 37).astype(np.uint16)
    values[3:5] = 1000
    found = np.asarray(read_image(saved(tmp_path / "a.png", Image.fromarray(values), transparency=1000)))
    assert (found[3:5] == 255).all() and np.abs(found[6:] - values[6:] / 257).max() <= 0.5 + 1e-9


def test_floats(tmp_path):
    values = np.linspace(0, 1, 23 * 37).reshape(23, 37).astype(np.float32)
    found = np.asarray(read_image(saved(tmp_path / "a.tiff", Image.fromarray(values))))
    assert np.abs(found - values * 255).max() <= 0.5 + 1e-4
    found = np.asarray(read_image(saved(tmp_path / "b.tiff", Image.fromarray(values * 200))))
    assert np.abs(found - values * 200).max() <= 0.5 + 1e-4
    found = np.asarray(read_image(saved(tmp_path / "c.tiff", Image.fromarray(values * 1.001))))  # a rounding above 1
    assert np.abs(found - values * 255).max() <= 1
    values[3, 4] = np.nan
    with pytest.raises(ValueError, match="d.tiff is cut short or damaged .some of its pixels are no numbers"):
        read_image(saved(tmp_path / "d.tiff", Image.fromarray(values)))


def test_print_colours(tmp_path):
    """No ink is white, all ink is black, cyan takes away red."""
    for ink, wanted in [((0, 0, 0, 0), 255), ((0, 0, 0, 255), 0)]:
        found = read_image(saved(tmp_path / "a.jpg", Image.new("CMYK", (9, 7), ink), quality=100))
        assert found.mode == "RGB" and np.abs(np.asarray(found).astype(int) - wanted).max() <= 3
    red, green, _ = read_image(saved(tmp_path / "c.tiff", Image.new("CMYK", (9, 7), (255, 0, 0, 0)))).getpixel((0, 0))
    assert red < 50 < 200 < green


def test_palette_and_transparency(tmp_path):
    palette = Image.fromarray(smooth()).quantize(16)
    wanted = np.asarray(palette.convert("RGB"))
    assert np.array_equal(np.asarray(read_image(saved(tmp_path / "p.png", palette))), wanted)
    pixels = np.dstack([smooth(), np.zeros((23, 37), np.uint8)])
    pixels[5:, :, 3] = 255
    found = np.asarray(read_image(saved(tmp_path / "t.png", Image.fromarray(pixels))))
    assert (found[:5] == 255).all() and np.array_equal(found[5:], smooth()[5:])
    grey = Image.fromarray(np.dstack([smooth()[..., 0], np.full((23, 37), 128, np.uint8)]))
    half = np.asarray(read_image(saved(tmp_path / "la.png", grey))).astype(int)
    assert np.abs(half - (smooth()[..., 0] + 255.0) / 2).max() <= 2
    see_through = saved(tmp_path / "k.png", Image.new("L", (5, 5), 7), transparency=7)
    assert (np.asarray(read_image(see_through)) == 255).all()


def test_grey_stays_grey(tmp_path):
    """A folder of scans with an alpha channel is no folder of photos; and bytes in wide numbers are bytes."""
    assert read_image(saved(tmp_path / "la.png", Image.new("LA", (5, 4), (7, 255)))).mode == "L"
    wide = Image.fromarray(np.arange(200, dtype=np.int32).reshape(10, 20))
    assert np.array_equal(np.asarray(read_image(saved(tmp_path / "i.tiff", wide))).ravel(), np.arange(200))


def test_a_thread_of_pixels_is_refused(tmp_path):
    how, thread = Preprocessing(shortest=224, crop=(224, 224)), Image.new("L", (60_000, 1))
    wanted = " of 1 × 60,000 pixels would become one of 224 × 13,440,000, at most .*; cut it"
    with pytest.raises(ValueError, match=f"^an image{wanted}"):
        how(thread)
    with pytest.raises(ValueError, match=f"long.png{wanted}"):
        how(read_image(saved(tmp_path / "long.png", thread)))


def test_an_open_image_is_read_as_its_file(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    see_through = Image.fromarray(np.dstack([smooth(), smooth()[..., 0]]))
    wide = Image.fromarray(smooth()[..., 0].astype(np.uint16) * 257)
    for path in (
        saved(tmp_path / "turned.png", Image.fromarray(smooth()), exif=exif),
        saved(tmp_path / "transparent.png", see_through),
        saved(tmp_path / "palette.png", see_through.quantize(16)),
        saved(tmp_path / "wide.png", wide, transparency=257),
    ):
        wanted, found = read_image(path), read_image(Image.open(path))
        assert found.mode == wanted.mode and np.array_equal(np.asarray(found), np.asarray(wanted))
        assert np.array_equal(np.asarray(read_image(found)), np.asarray(wanted))


def test_a_bomb_of_notes(tmp_path):
    notes = PngImagePlugin.PngInfo()
    notes.add_text("comment", "x" * (PngImagePlugin.MAX_TEXT_CHUNK + 9), zip=True)
    bomb = saved(tmp_path / "notes.png", Image.new("L", (5, 5)), pnginfo=notes)
    with pytest.raises(ValueError, match="notes.png is cut short or damaged"):
        read_image(bomb)


def test_one_bit_and_one_pixel(tmp_path):
    assert read_image(saved(tmp_path / "a.png", Image.new("1", (9, 7), 1))).getpixel((3, 3)) == 255
    assert read_image(saved(tmp_path / "b.png", Image.new("RGB", (1, 1), "red"))).getpixel((0, 0)) == (255, 0, 0)
    assert Preprocessing(size=(5, 3))(read_image(tmp_path / "b.png")).shape == (3, 5, 3)


def png_that_claims(rows, columns):
    """A few bytes that say they are an image of this size."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", columns, rows, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("text.png", b"no image at all\n", "is no image in a format that is known"),
        ("script.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n", "is no image in a format"),
        ("empty.png", b"", "is no image in a format that is known"),
        ("bomb.png", png_that_claims(60_000, 60_000), "has too many pixels, at most 134,217,728 are read"),
        ("large.png", png_that_claims(13_000, 13_000), "has 13,000 × 13,000 pixels, at most 134,217,728 are read"),
        ("hollow.png", png_that_claims(50, 50), "is cut short or damaged"),
    ],
)
def test_bad_files(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name} {message}") as caught:
        read_image(tmp_path / name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".gif", ".webp", ".bmp", ".tiff"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_cut_short(tmp_path, suffix, share):
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 256, (60, 70, 3), dtype=np.uint8))
    whole = saved(tmp_path / f"whole{suffix}", noise).read_bytes()
    (tmp_path / f"cut{suffix}").write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(ValueError, match=rf"cut\{suffix} is (cut short or damaged|no image)"):
        read_image(tmp_path / f"cut{suffix}")


@pytest.mark.parametrize("seed", range(40))
def test_damaged_files_are_an_error_or_a_picture(tmp_path, seed):
    rng = np.random.default_rng(seed)
    suffix = [".jpg", ".png", ".gif", ".webp", ".bmp", ".tiff"][seed % 6]
    content = bytearray(saved(tmp_path / f"a{suffix}", Image.fromarray(smooth())).read_bytes())
    for place in rng.integers(0, len(content), 9):
        content[place] = rng.integers(256)
    (tmp_path / f"a{suffix}").write_bytes(content)
    try:
        assert read_image(tmp_path / f"a{suffix}").mode in ("L", "RGB")
    except ValueError as error:
        assert f"a{suffix}" in str(error)


def test_what_is_not_there(tmp_path):
    with pytest.raises(ValueError, match=f"no such image: {tmp_path}/none.png"):
        read_image(tmp_path / "none.png")
    with pytest.raises(ValueError, match=f"{tmp_path} is a folder; name the image files in it"):
        read_image(tmp_path)


def test_what_others_share_stays_as_it_is(tmp_path, monkeypatch):
    """Pillow's limit and Python's warnings belong to all threads: nobody may find them changed meanwhile."""
    seen, path = [], saved(tmp_path / "a.png", Image.new("L", (3, 3)))
    before = (Image.MAX_IMAGE_PIXELS, warnings.filters)
    state = lambda image: seen.append((Image.MAX_IMAGE_PIXELS, warnings.filters)) or image  # noqa: E731
    monkeypatch.setattr(images, "upright", state)
    read_image(path)
    assert seen[0][0] == before[0] and seen[0][1] is before[1]


def test_sizes():
    assert short_side((3000, 1), 32, 53) == (1, 53) and short_side((1, 3000), 32, 53) == (53, 1)
    assert short_side((30, 20), 10) == (10, 15) and short_side((20, 30), 10) == (15, 10)
    pixels = np.arange(5 * 7 * 1).reshape(5, 7, 1)
    assert np.array_equal(centre(pixels, (3, 3)), pixels[1:4, 2:5])
    wide = centre(pixels, (7, 3))
    assert np.array_equal(wide[1:6], pixels[:, 2:5]) and (wide[[0, 6]] == 0).all()
    with pytest.raises(ValueError, match="1 channel .* or 3 .*, the model reads 2"):
        images.as_array(Image.new("L", (2, 2)), 2)
    with pytest.raises(ValueError, match="not both"):
        Preprocessing(size=(2, 2), shortest=3)
