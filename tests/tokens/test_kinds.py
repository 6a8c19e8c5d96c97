"""Tokens of code, of DNA and of bytes: beside Python's own lexer, and every text survives the round trip."""

import io
import random
import sysconfig
import tokenize
from pathlib import Path

import numpy as np
import pytest

from regard.tokens import Tokenizer
from regard.tokens.kinds import KINDS
from regard.tokens.tokenizer import SPECIALS

LIBRARY = Path(sysconfig.get_paths()["stdlib"])
FILES = (
    "ast.py",
    "argparse.py",
    "tokenize.py",
    "typing.py",
    "dataclasses.py",
    "turtle.py",
    "inspect.py",
    "re/_parser.py",
)
SOURCE = '''#!/usr/bin/env python  \n# it's a "comment" \\
def f(self, *args: int, **kw) -> "x['y']":\r\n\tif self.x**=2 != 0x_FFp1j<>.5e-3: # \\
        return rb"""a\\"""" + F'{x!r:>{w}}' "" '\\'' \\\n            + 1_000.0if x:=y else...\n\n\n  \n\x0c@d\n
    naïve_Ж2 = "\N{BULLET} ж 🙂"
'''
BROKEN = (
    '"""never closed\n  x = \'a', "def f(:\n\t  x\n y", "'\\", "0x 1__0 $?`", "a\\\nb", " ", "",
    "\ufeffx\u2028y\x00\x85",
)  # fmt: skip


@pytest.fixture(scope="module")
def code():
    texts = [(LIBRARY / name).read_text(encoding="utf-8") for name in FILES[:3]]
    return Tokenizer.train(texts=texts, kind="code", vocab_size=600)


def lexed(text):
    """The tokens of Python's lexer, as places in characters; line ends and indentation included."""
    starts = [0]
    for line in io.StringIO(text):
        starts.append(starts[-1] + len(line))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        begin, end = (starts[row - 1] + column for row, column in (token.start, token.end))
        if token.string and begin < end and token.type != tokenize.ENDMARKER:
            yield begin, end, token


@pytest.mark.parametrize("name", FILES)
def test_no_token_crosses_one_of_pythons_lexer(code, name):
    text = (LIBRARY / name).read_text(encoding="utf-8")
    offsets = code.inner.encode(text).offsets
    borders = {place for begin, end, _ in lexed(text) for place in (begin, end)}
    assert len(borders) > 1000
    for begin, end in offsets:
        begin += text[begin] == " " and end - begin > 1  # the space before a token is no part of it
        assert not any(place in borders for place in range(begin + 1, end)), text[begin:end]


def test_names_operators_and_numbers_are_those_of_the_lexer(code):
    """Before merges are learned, each is one piece."""
    kinds = (tokenize.NAME, tokenize.OP, tokenize.NUMBER)
    split = code.inner.pre_tokenizer
    for name in FILES:
        text = (LIBRARY / name).read_text(encoding="utf-8")
        pieces = {}
        for piece, (begin, end) in split.pre_tokenize_str(text):
            pieces[end] = text[begin:end].removeprefix(" ") if piece else ""
        for _, end, token in lexed(text):
            if token.type in kinds:
                assert pieces.get(end) == token.string, (name, token)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", [SOURCE, *BROKEN, "ACGTTGCAacgtNNRYACG\n>x", "é<pad>[MASK]<0x41>"])
def test_every_text_survives_the_round_trip(kind, text, tmp_path):
    tokenizer = Tokenizer.train(texts=["def f(x): return x\n" * 3], kind=kind, vocab_size=400)
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.kind == tokenizer.kind == kind
    wanted = text.translate(str.maketrans("acgt", "ACGT")) if kind == "dna" else text
    assert loaded.decode(loaded.encode(text)) == wanted
    assert loaded.encode(text) == tokenizer.encode(text)


def test_random_code_survives_the_round_trip(code):
    text, rng = (LIBRARY / "typing.py").read_text(encoding="utf-8"), random.Random(0)
    for _ in range(200):
        first = rng.randrange(len(text))
        part = text[first : first + rng.randrange(200)]
        cut = rng.randrange(len(part) + 1)
        part = part[:cut] + rng.choice(["'", '"""', "\\", "\n\t", "é", "\r\n", "#", "\0"]) + part[cut:]
        assert code.decode(code.encode(part)) == part


def test_frequent_names_are_one_token_with_the_space_before_them(code):
    assert code.pieces(code.encode("x = self\n")) == ["x", "·=", "·self", "↵"]
    assert code.pieces(code.encode("\n        return")) == ["↵", "········", "return"]  # whatever the indentation


@pytest.mark.parametrize(("size", "bases"), [(400, 3), (1024, 4), (262, 1), (8000, 6)])
def test_dna_is_read_in_words_of_bases(size, bases):
    tokenizer = Tokenizer.train(texts=[""], kind="dna", vocab_size=size)
    sequence = "".join(random.Random(0).choices("ACGT", k=5 * bases)) + "N" + "T"
    pieces = tokenizer.pieces(tokenizer.encode(sequence))
    assert pieces[:5] == [sequence[i : i + bases] for i in range(0, 5 * bases, bases)] and pieces[5:] == ["N", "T"]
    assert tokenizer.encode("acgTTTacg") == tokenizer.encode("ACGTTTACG")
    assert len(tokenizer) == len(SPECIALS) + 256 + (4**bases if bases > 1 else 0)


def test_bytes_are_bytes():
    tokenizer = Tokenizer.train(texts=[""], kind="bytes", vocab_size=1024)
    assert len(tokenizer) == 3 + 256
    ids = tokenizer.encode("aé\n")
    assert b"".join(tokenizer.bytes_of(id) for id in ids) == "aé\n".encode() and len(ids) == 4
    assert tokenizer.decode(ids[:2]) == "a�"
    table = np.array([tokenizer.bytes_of(id)[0] for id in tokenizer.byte_ids])
    assert (table == np.arange(256)).all()
