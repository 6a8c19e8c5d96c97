"""The preprocessing of images beside a model: `preprocessor_config.json` in and out."""

from pathlib import Path
from typing import Any

from regard.config import parse, read_json, reading
from regard.data.readers.preprocessing import FILTERS, IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from regard.hub.files import write_json
from regard.nn.patches import sides

PREPROCESSOR, PROCESSOR = "preprocessor_config.json", "processor_config.json"
"""The file for images, and the file of newer releases for images and texts, which holds it as a part."""
NUMBERS = {name: int(value) for name, value in FILTERS.items()}
"""Pillow's numbers of the resampling filters, with their names."""
HALF, CLIP_MEAN, CLIP_STD = (0.5,) * 3, (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
KINDS: dict[str, dict[str, Any]] = {
    "ViT": dict(size=224, resample=2, image_mean=HALF, image_std=HALF),
    "DeiT": dict(size=256, resample=3, do_center_crop=True, crop_size=224, image_mean=HALF, image_std=HALF),
    "CLIP": dict(
        size={"shortest_edge": 224}, resample=3, do_center_crop=True, crop_size=224, image_mean=CLIP_MEAN,
        image_std=CLIP_STD,
    ),
    "Detr": dict(
        size={"shortest_edge": 800, "longest_edge": 1333}, resample=2, image_mean=IMAGENET_MEAN,
        image_std=IMAGENET_STD,
    ),
    "VideoMAE": dict(
        size={"shortest_edge": 224}, resample=2, do_center_crop=True, crop_size=224, image_mean=HALF, image_std=HALF,
    ),
    "Vivit": dict(
        size={"shortest_edge": 256}, resample=2, do_center_crop=True, crop_size=224, rescale_factor=1 / 127.5,
        image_mean=HALF, image_std=HALF,
    ),
}  # fmt: skip
"""Defaults of each of their processors, for fields that a file leaves out."""
SIZES = ("height", "width"), ("shortest_edge",), ("shortest_edge", "longest_edge")
"""The names of lengths that a size may have."""


def load_preprocessing(directory: str | Path, config: Any) -> Preprocessing:
    """The preprocessing beside a model with this config; without a file, ViT's for images of the model's own size."""
    path, whole = Path(directory) / PREPROCESSOR, Path(directory) / PROCESSOR
    fields = read_json(path) if path.is_file() else None
    if fields is None and whole.is_file():
        path, fields = whole, read_json(whole).get("image_processor")
    if fields is None:
        middle = (0.5,) * config.channels
        return Preprocessing(channels=config.channels, size=sides(config.image), mean=middle, std=middle)
    with reading(path):
        return read_preprocessing(fields, config.channels)


def read_preprocessing(fields: Any, channels: int) -> Preprocessing:
    """Their fields as a preprocessing of ours; ValueError for what we cannot express."""
    if not isinstance(fields, dict):
        raise ValueError(f"image_processor={fields!r} is no object {{…}}; write it again")
    named = str(fields.get("image_processor_type") or fields.get("feature_extractor_type") or "ViTImageProcessor")
    kind = (
        named.removesuffix("Fast").removesuffix("Pil").removesuffix("ImageProcessor").removesuffix("FeatureExtractor")
    )
    if kind not in KINDS:
        known = ", ".join(f"{processor}ImageProcessor" for processor in KINDS)
        raise ValueError(f"image_processor_type={named!r} is not known; known: {known}")
    settings = KINDS[kind] | {name: value for name, value in fields.items() if value is not None}
    if settings.get("do_pad") and kind != "Detr":  # there smaller images of a batch are padded, with a mask
        raise ValueError("do_pad=True cannot be read here; only images that end up with one size can")
    filters: dict[int, Any] = {number: name for name, number in NUMBERS.items()}
    if settings["resample"] not in list(filters):  # which may be asked for anything
        raise ValueError(f"resample={settings['resample']!r} is not known; known: {', '.join(map(str, filters))}")
    size = settings["size"] if settings.get("do_resize", True) else None
    if isinstance(size, int) and kind == "Detr":
        size = {"shortest_edge": size, "longest_edge": settings.get("max_size", 1333)}
    if isinstance(size, int) and kind in ("CLIP", "VideoMAE", "Vivit"):
        size = {"shortest_edge": size}
    lengths = {} if size is None else read_size("size", size, SIZES)
    crop = read_size("crop_size", settings["crop_size"], SIZES[:1]) if settings.get("do_center_crop", False) else None
    scale, normalise = settings.get("rescale_factor", 1 / 255), settings.get("do_normalize", True)
    return Preprocessing(
        channels=channels,
        size=(lengths["height"], lengths["width"]) if "height" in lengths else None,
        shortest=lengths.get("shortest_edge"),
        longest=lengths.get("longest_edge"),
        crop=(crop["height"], crop["width"]) if crop is not None else None,
        filter=filters[settings["resample"]],
        scale=parse(scale, float, "rescale_factor") if settings.get("do_rescale", True) else None,
        mean=per_channel("image_mean", settings["image_mean"], channels) if normalise else (),
        std=per_channel("image_std", settings["image_std"], channels) if normalise else (),
    )


def read_size(name: str, size: Any, known: tuple[tuple[str, ...], ...]) -> dict[str, int]:
    """Lengths by name; two without names are height and width, one is both."""
    pair = [size, size] if isinstance(size, int) else size
    if isinstance(pair, list) and len(pair) == 2:
        size = dict(zip(known[0], pair, strict=True))
    stated = {key: value for key, value in size.items() if value is not None} if isinstance(size, dict) else {}
    lengths = {key: parse(value, int, f"{name}.{key}") for key, value in stated.items()}
    if set(lengths) not in map(set, known) or min(lengths.values()) < 1:
        options = ", or ".join(" and ".join(names) for names in known)
        raise ValueError(f"{name}={size} cannot be read here; give {options}, above 0")
    return lengths


def per_channel(name: str, value: Any, channels: int) -> tuple[float, ...]:
    """A number for every channel, from a list or from one number for all."""
    return parse([value] * channels if isinstance(value, int | float) else value, tuple[float, ...], name)


def save_preprocessing(directory: str | Path, preprocessing: Preprocessing) -> None:
    """Write a preprocessing so that other projects read the same."""
    write_json(Path(directory) / PREPROCESSOR, image_fields(preprocessing))


def image_fields(preprocessing: Preprocessing) -> dict[str, Any]:
    """A preprocessing in their words."""
    kind = "ViT" if preprocessing.shortest is None else "CLIP" if preprocessing.longest is None else "Detr"
    fields: dict[str, Any] = {
        "image_processor_type": f"{kind}ImageProcessor",
        "do_resize": preprocessing.size is not None or preprocessing.shortest is not None,
        "resample": NUMBERS[preprocessing.filter],
        "do_center_crop": preprocessing.crop is not None,
        "do_rescale": preprocessing.scale is not None,
        "do_normalize": bool(preprocessing.mean),
        "do_convert_rgb": preprocessing.channels == 3,
    }
    if preprocessing.size is not None:
        fields["size"] = {"height": preprocessing.size[0], "width": preprocessing.size[1]}
    if preprocessing.shortest is not None:
        longest = {} if preprocessing.longest is None else {"longest_edge": preprocessing.longest}
        fields["size"] = {"shortest_edge": preprocessing.shortest, **longest}
    if preprocessing.crop is not None:
        fields["crop_size"] = {"height": preprocessing.crop[0], "width": preprocessing.crop[1]}
    if preprocessing.scale is not None:
        fields["rescale_factor"] = preprocessing.scale
    if preprocessing.mean:
        fields |= {"image_mean": list(preprocessing.mean), "image_std": list(preprocessing.std)}
    return fields
