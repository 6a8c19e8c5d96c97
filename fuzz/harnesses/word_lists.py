"""Published lists that word vectors are scored on: pairs with a similarity, analogies; the first byte chooses."""

from fuzz.scratch import put
from regard.data.readers.word_lists import read_analogies, read_similarities

READS = ("regard.data.readers.word_lists",)
WORDS = [b"Human (mean)", b"SimLex999", b"tiger\tcat\t7.35\n", b"nan", b": capitals\n", b"a b c d\n"]


def seeds() -> list[bytes]:
    """Return lists in the layouts that are around."""
    return [
        b"\x00Word 1,Word 2,Human (mean)\nlove,sex,6.77\ntiger,cat,7.35\n",
        b"\x00# a comment\nold\tnew\tA\tSimLex999\nold\tnew\tA\t1.58\n",
        b"\x00old new 1.58\nsmart intelligent 9.2\n",
        b"\x01: capital-common-countries\nAthens Greece Baghdad Iraq\n",
    ]


def run(data: bytes) -> None:
    """Read the list."""
    path = put("words.txt", data[1:])
    read_analogies(path) if data[:1] == b"\x01" else read_similarities(path)
