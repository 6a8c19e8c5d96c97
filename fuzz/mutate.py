"""Mutations of inputs: bytes, words, numbers, and the values of JSON documents."""

import json
from random import Random
from typing import Any

LARGEST = 2**16
WORDS = [
    b"\x00", b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\n", b"\n\n", b"\r", b"\t", b" ", b",", b";", b":",
    b'"', b'""', b"'", b"\\",
    b"{", b"}", b"[", b"]", b"[[", b"{}", b"[]", b"<", b">", b"&", b"#", b"-", b".", b"..", b"../", b"/",
    b"/dev/zero", b"%s", b"{0}",
    b"null", b"true", b"NaN", b"Infinity", b"1e999", b"-1", b"0", b"1", b"2", b"255", b"256", b"65536", b"2147483648",
    b"4294967296", b"9223372036854775808", b"9" * 30, b"9" * 5000, b"0.5", b"-0.0", b"\xc3\xa9", b"\xe2\x80\xa8",
    b"\xf0\x9f\x99\x82",
    b"\xed\xa0\x80", b"\x1b[31m", b"\\ud800", b"(", b")", b"((", b"*", b"|", b"~",
]  # fmt: skip
SIZES = [0, 1, 2, 7, 8, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1]
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 0.5, -0.5, 1e308, float("nan"), float("inf"), 2**31, 2**63, 10**30, "", "a",
    "\x00", "\x1b[31m",
    "\ud800", "é", "-1", "1", "a" * 3000, "../x", "/dev/zero", [], {}, [None], [1, 2], ["a"], [[]], {"a": 1},
    {"": None}, [0] * 1000,
]  # fmt: skip


def mutate(data: bytes, random: Random, others: list[bytes], words: list[bytes]) -> bytes:
    """Return a mutation of an input: mostly one or two changes, sometimes many."""
    head = int(data[:1] not in (b"{", b"["))  # many harnesses choose by the first byte what the rest is
    if data[head : head + 1] in (b"{", b"[") and random.random() < 0.6:
        changed = mutate_json(data[head:], random)
        if changed is not None:
            return (data[:head] + changed)[:LARGEST]
    for _ in range(1 << random.choice((0, 0, 0, 0, 1, 1, 2))):
        data = random.choice(CHANGES)(data, random, others, words)[:LARGEST]
    return data


def flip(data: bytes, random: Random, others: list[bytes], words: list[bytes]) -> bytes:
    """Flip a bit or set a byte."""
    if not data:
        return data
    at = random.randrange(len(data))
    value = random.choice((data[at] ^ 1 << random.randrange(8), random.randrange(256), 0, 255))
    return data[:at] + bytes([value]) + data[at + 1 :]


def cut(data: bytes, random: Random, others: list[bytes], words: list[bytes]) -> bytes:
    """Leave a part out, or the end."""
    begin, end = span(data, random)
    return data[:begin] if random.random() < 0.2 else data[:begin] + data[end:]


def repeat(data: bytes, random: Random, others: list[bytes], words: list[bytes]) -> bytes:
    """Repeat a part, a few times or often."""
    begin, end = span(data, random)
    return data[:end] + data[begin:end] * random.choice((1, 1, 2, 5, 300)) + data[end:]


def move(data: bytes, random: Random, others: list[bytes], words: list[bytes]) -> bytes:
    """Put a part somewhere else."""
    begin, end = span(data, random)
    part, rest = data[begin:end], data[:begin] + data[end:]
    at = random.randrange(len(rest) + 1)
    return rest[:at] + part + rest[at:]


def insert(data: bytes, random: Random, others: list[bytes], words: list[bytes]) -> bytes:
    """Insert a word of the format, or one that is often mistaken; perhaps in place of something."""
    begin, end = span(data, random)
    return data[:begin] + random.choice(random.choice((words, WORDS)) or WORDS) + data[random.choice((begin, end)) :]


def splice(data: bytes, random: Random, others: list[bytes], words: list[bytes]) -> bytes:
    """Join the beginning with a part of another input."""
    other = random.choice(others)
    begin, end = span(other, random)
    at = random.randrange(len(data) + 1)
    return data[:at] + (other[begin:] if random.random() < 0.5 else other[begin:end] + data[at:])


def number(data: bytes, random: Random, others: list[bytes], words: list[bytes]) -> bytes:
    """Overwrite a few bytes with a number of the machine, in either order of bytes."""
    width = random.choice((1, 2, 4, 8))
    value = (random.choice(SIZES) + random.choice((0, 0, -1, 1))) % (1 << 8 * width)
    at = random.randrange(max(1, len(data) - width + 1))
    return data[:at] + value.to_bytes(width, random.choice(("little", "big"))) + data[at + width :]


def digits(data: bytes, random: Random, others: list[bytes], words: list[bytes]) -> bytes:
    """Replace a decimal number in a text."""
    starts = [at for at in range(len(data)) if data[at : at + 1].isdigit() and not data[at - 1 : at].isdigit()]
    if not starts:
        return flip(data, random, others, words)
    at = end = random.choice(starts)
    while data[end : end + 1].isdigit():
        end += 1
    return data[:at] + str(random.choice((*SIZES, -1, 3, 10, 100, 10**30))).encode() + data[end:]


CHANGES = (flip, flip, cut, repeat, move, insert, insert, splice, number, digits)


def span(data: bytes, random: Random) -> tuple[int, int]:
    """Return a part of an input, mostly a short one."""
    begin = random.randrange(len(data) + 1)
    return begin, min(len(data), begin + random.choice((1, 2, 4, 8, 32, len(data))))


def mutate_json(data: bytes, random: Random) -> bytes | None:
    """Return a JSON document with one to three values replaced, left out, nested or taken from elsewhere in it."""
    try:
        document = json.loads(data)
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            places = walk(document)
            if not places:
                return None
            (parent, key), (other, there) = random.choice(places), random.choice(places)
            value = random.choice(
                (random.choice(VALUES), random.choice(VALUES), [parent[key]], {"a": parent[key]}, other[there])
            )
            if random.random() < 0.2:
                del parent[key]
            else:
                parent[key] = json.loads(json.dumps(value))
        return json.dumps(document, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return None


def walk(node: Any, depth: int = 0) -> list[tuple[Any, Any]]:
    """Return every place of a document as its parent and key, to a depth of twenty."""
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else []
    places = [(node, key) for key in keys]
    return places + [place for key in keys if depth < 20 for place in walk(node[key], depth + 1)]
