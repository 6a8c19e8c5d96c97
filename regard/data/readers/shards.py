"""Tar files of images in the layout of webdataset: a.jpg beside a.cls, a.txt or a.json."""

import json
import tarfile
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from regard.data.readers.image_files import is_image

LARGEST = 1 << 28
"""Most bytes of a member that is read."""
LABELS = {"label": ("cls", "json", "txt"), "caption": ("txt", "caption", "json")}
"""Suffixes of the members that hold a label or a caption, in the order in which they are looked for."""
KEYS = {"label": ("label", "class", "cls", "category", "target"), "caption": ("caption", "text", "description")}


@dataclass(frozen=True, slots=True)
class Member:
    """An image of a tar file, and the texts that lie beside it by their suffixes."""

    tar: Path
    name: str
    offset: int
    size: int
    texts: dict[str, str] = field(default_factory=dict, compare=False)

    @property
    def path(self) -> Path:
        """The path that errors name."""
        return self.tar / self.name

    def read(self) -> BytesIO:
        """The bytes of the image file."""
        with self.tar.open("rb") as file:
            file.seek(self.offset)
            return BytesIO(file.read(self.size))

    def label(self, column: str) -> str:
        """The label or the caption of the image."""
        for suffix in LABELS[column]:
            if suffix not in self.texts:
                continue
            text: Any = self.texts[suffix].strip()
            if suffix == "json":
                try:
                    stored = json.loads(text)
                except (ValueError, RecursionError):
                    raise ValueError(f"{self.path}: its .json is not JSON; write the tar file again") from None
                fields = stored if isinstance(stored, dict) else {}
                text = next((fields[key] for key in KEYS[column] if key in fields), "")
            if str(text).strip():
                return str(text).strip()
        beside = ", ".join(f".{suffix}" for suffix in self.texts) or "nothing"
        kinds = " or ".join(f".{suffix}" for suffix in LABELS[column])
        raise ValueError(f"{self.path}: no {column} beside it, only {beside}; add a {kinds} of the same name")


def is_shards(path: Path) -> bool:
    """Whether a path is a tar file, or a folder of tar files and no images."""
    if path.is_dir():
        inside = [entry for entry in path.iterdir() if not entry.name.startswith(".")]
        return bool(inside) and all(entry.suffix.lower() in (".tar", ".json", ".txt") for entry in inside) and any(
            entry.suffix.lower() == ".tar" for entry in inside
        )  # fmt: skip
    return path.suffix.lower() in (".tar", ".tgz") or path.name.lower().endswith(".tar.gz")


def list_members(source: Path) -> list[Member]:
    """The images of a tar file, or of all tar files of a folder, with the texts beside each."""
    shards = sorted(source.glob("*.tar")) if source.is_dir() else [source]
    members = [member for shard in shards for member in members_of(shard)]
    if not members:
        raise ValueError(f"{source} holds no images; webdataset's tar files have a.jpg beside a.cls, a.txt or a.json")
    return members


def members_of(shard: Path) -> list[Member]:
    """The images of one tar file; the names of an image and its texts are equal up to the first dot."""
    if not shard.is_file():
        raise ValueError(f"no such file: {shard}; check the path")
    if shard.suffix.lower() != ".tar":
        raise ValueError(f"{shard} is packed, and images are read from it in any order; unpack it: gunzip {shard}")
    images: dict[str, tuple[str, int, int]] = {}
    texts: dict[str, dict[str, str]] = {}
    try:
        with tarfile.open(shard, "r:") as tar:
            for info in tar:
                folder, _, base = info.name.rpartition("/")
                if not info.isfile() or info.size > LARGEST or base.startswith("."):
                    continue
                if info.issparse():  # which may claim any size
                    raise ValueError(f"{shard}: {info.name} is a sparse file; write the tar file without --sparse")
                stem, _, suffix = base.partition(".")
                key, suffix = f"{folder}/{stem}", suffix.lower()
                if is_image(f"a.{suffix}"):
                    images[key] = (info.name, info.offset_data, info.size)
                elif suffix in ("cls", "txt", "caption", "json"):
                    content = tar.extractfile(info)
                    texts.setdefault(key, {})[suffix] = content.read().decode("utf-8", "replace") if content else ""
    except (tarfile.TarError, OSError, EOFError) as error:
        raise ValueError(f"{shard} is cut short or no tar file ({error}); fetch it again") from None
    return [Member(shard, *place, texts.get(key, {})) for key, place in images.items()]
