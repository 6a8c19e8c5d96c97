"""Running text: what is read, what is held out, what is recorded, what is refused."""

import hashlib

import pytest

from regard.data.generated.docs import documentation, documentation_hash
from regard.data.readers.text_files import read_text
from regard.data.sets.running_text import TextConfig


def test_nothing_given_is_the_documentation():
    data = TextConfig()
    assert data.embedded and data.split() == (documentation("train"), documentation("valid"))
    assert data.digest() == documentation_hash()


def test_files_in_their_order_and_the_last_tenth_held_out(tmp_path):
    (tmp_path / "a").write_bytes(b"first\r\nline")
    (tmp_path / "b").write_text("x" * 90)
    data = TextConfig(text=(str(tmp_path / "b"), str(tmp_path / "a")))
    text, held_out = data.split()
    assert text + held_out == "x" * 90 + "\nfirst\nline" and len(held_out) == 10 and not data.embedded


def test_validation_files_are_the_validation(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(name * 20)
    data = TextConfig(text=(str(tmp_path / "a"),), valid_text=(str(tmp_path / "b"),))
    assert data.split() == ("a" * 20, "b" * 20)
    assert data.digest() == hashlib.sha256(b"a" * 20 + b"\0" + b"b" * 20).hexdigest()


def test_the_digest_is_of_the_text_not_of_its_name(tmp_path):
    for name, text in (("a", "one text"), ("b", "one text"), ("c", "one test")):
        (tmp_path / name).write_text(text)
    one, same, other = (TextConfig(text=(str(tmp_path / name),)).digest() for name in "abc")
    assert one == same != other


def test_the_shortest_text_is_split(tmp_path):
    (tmp_path / "a").write_text("abcd")
    assert TextConfig(text=(str(tmp_path / "a"),)).split() == ("ab", "cd")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "the file is empty; give one with text"),
        (b" \n\t\n", "the file is empty"),
        (b"one\ntwo\n\xff\xfe", "line 3: not UTF-8; convert it: iconv"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, raw, message):
    (tmp_path / "a").write_bytes(raw)
    with pytest.raises(ValueError, match=f"{tmp_path / 'a'}.*{message}"):
        read_text((str(tmp_path / "a"),))


def test_no_file_a_directory_and_validation_alone(tmp_path):
    with pytest.raises(ValueError, match="none: no such file; check the path"):
        read_text((str(tmp_path / "none"),))
    with pytest.raises(ValueError, match="is a directory; give its text files"):
        read_text((str(tmp_path),))
    with pytest.raises(ValueError, match="validation text without training text; give --data.text too"):
        TextConfig(valid_text=("a",))
