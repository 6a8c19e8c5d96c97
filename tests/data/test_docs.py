"""Python's documentation as text: all of it once, whole documents in one split, the same on every run."""

import ast
import hashlib
import inspect
import re
import subprocess
import sys
import textwrap
from pydoc_data.topics import topics

import pytest

from regard.data.generated.docs import SPLITS, _docstrings, documentation, documentation_hash, summaries


def everything() -> str:
    return "".join(map(documentation, SPLITS))


def test_docstrings_and_topics_are_there_word_by_word():
    text = everything()
    for thing in (textwrap, textwrap.wrap, re.compile, inspect.getdoc, ast.NodeVisitor, subprocess.run):
        assert inspect.getdoc(thing) in text
    for topic in ("lambda", "specialnames", "formatstrings"):
        assert topics[topic].strip() in text


def test_topics_inside_longer_topics_are_left_out():
    """The help on `with` is a section of that on compound statements; in two splits it would be a leak."""
    assert everything().count('The "with" statement is used to wrap the execution') == 1


def test_docstrings_equal_those_of_ast_walk_in_their_order():
    source = inspect.getsource(textwrap)
    found = [ast.get_docstring(node) for node in ast.walk(ast.parse(source)) if isinstance(node, _DEFINED)]
    expected = sorted(text.strip() for text in found if text)
    assert sorted(_docstrings(ast.parse(source))) == expected and len(expected) > 5
    assert next(_docstrings(ast.parse(source))) == inspect.getdoc(textwrap).strip()


_DEFINED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def test_shares_and_size():
    sizes = {split: len(documentation(split).encode()) for split in SPLITS}
    total = sum(sizes.values())
    assert total > 1_500_000
    assert 0.85 < sizes["train"] / total < 0.95
    assert min(sizes["valid"], sizes["test"]) > 0.02 * total


def test_long_paragraphs_keep_to_their_split():
    paragraphs = {
        split: {" ".join(p.split()) for p in documentation(split).split("\n\n") if len(p) > 200} for split in SPLITS
    }
    for split in ("valid", "test"):
        assert len(paragraphs[split]) > 50
        assert len(paragraphs[split] & paragraphs["train"]) < 0.02 * len(paragraphs[split])


def test_the_hash_is_that_of_the_text_and_the_same_in_another_process():
    here = hashlib.sha256("\0".join(map(documentation, SPLITS)).encode()).hexdigest()
    code = (
        "import sys; from regard.data.generated.docs import documentation_hash; print(documentation_hash())\n"
        "assert 'torch' not in sys.modules and 'tkinter' not in sys.modules and 'turtle' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert documentation_hash() == here == done.stdout.strip(), done.stderr


def test_summaries_have_useful_lengths_and_come_from_the_text():
    for split in SPLITS:
        flat = " ".join(documentation(split).split())
        assert len(summaries(split)) > 20
        for body, first in summaries(split):
            assert 15 <= len(first) <= 90 and first[0].isupper() and first.endswith(".") and "\n" not in first
            assert len(body) <= 600 and body.count(". ") + body.endswith(".") >= 1 and ">>>" not in body
            assert f"{first} {body}" in flat


def test_no_summary_comes_twice():
    firsts = [first.casefold() for split in SPLITS for _, first in summaries(split)]
    assert len(set(firsts)) == len(firsts) > 500


def test_mistakes_name_their_cure():
    for call in (documentation, summaries):
        with pytest.raises(ValueError, match="unknown split 'tset'; did you mean 'test'?"):
            call("tset")


def test_a_python_without_sources_says_so(monkeypatch, tmp_path):
    from regard.data.generated import docs

    monkeypatch.setattr(docs.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(ValueError, match="without the sources of its standard library; give a text of your own"):
        docs._documents.__wrapped__()
