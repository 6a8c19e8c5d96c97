"""Tables that name images: labels.csv, captions.txt, metadata.jsonl; the first byte chooses."""

from fuzz.harnesses.images import seeds as images
from fuzz.scratch import put
from regard.data.readers.image_lists import list_captioned, list_table

READS = ("regard.data.readers.image_tables", "regard.data.readers.image_lists")
NAMES = ("labels.csv", "captions.txt", "metadata.jsonl", "labels.tsv")


def seeds() -> list[bytes]:
    """Return a table of each kind."""
    return [
        b"\x00path,label\na.png,bird\nb.png,horse\n",
        b"\x01image,caption\na.png,a bird\nb.png,a horse\n",
        b"\x01a.png#0\ta bird\nb.png#0\ta horse\n",
        b'\x02{"file_name": "a.png", "label": "x", "caption": "a bird"}\n{"file_name": "b.png", "label": "y"}\n',
        b"\x03a.png\tbird\nb.png\thorse\n",
    ]


def run(data: bytes) -> None:
    """Read the table for labels or captions, and its images."""
    for name, image in zip("ab", images(), strict=False):
        put(f"listed/{name}.png", image)
    choice = data[0] % len(NAMES) if data else 0
    path = put(f"listed/{NAMES[choice]}", data[1:])
    for file in list_captioned(path)[0] if choice == 1 else list_table(path):
        file.read()
