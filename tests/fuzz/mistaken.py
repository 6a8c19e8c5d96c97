"""A harness of a reader with mistakes of every kind, one for each first letter."""

READS = ("regard.files",)
SECONDS = 0.2
WORDS = [b"k", b"m", b"s", b"e"]


def seeds():
    return [b"ok"]


def run(data):
    if data[:1] in MISTAKES:
        MISTAKES[data[:1]]()
    if data[:1] != b"o":
        raise ValueError("refused")


def spin():
    while True:
        pass


def wordless():
    raise ValueError


MISTAKES = {b"k": lambda: {}["x"], b"m": lambda: b"x" * (600 << 20), b"s": spin, b"e": wordless}
