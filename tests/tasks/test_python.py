"""A loaded model in the hands of a Python user: one input or many, plain keywords, its description, its types."""

import inspect
import re
import subprocess
import sys
from typing import Any

import pytest
import torch

import regard
from regard.decode import Sampling
from regard.decode.sample import SamplingOptions
from regard.registry import tasks
from regard.tasks import EntityTagger, LanguageModel, MaskFiller, TextClassifier, Translator, load
from regard.tasks.single import is_single
from tests.tasks.test_language_model import writer
from tests.tasks.test_load import saved


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Untrained models by name."""
    folder = tmp_path_factory.mktemp("runs")
    return {
        "classify": saved(folder / "classify", "bert", task="classify", labels=["bad", "good"]),
        "tag": saved(folder / "tag", "bert", task="tag", labels=["O", "B-X", "I-X"]),
        "answer": saved(folder / "answer", "bert", task="answer"),
        "fill": saved(folder / "fill", "bert", task="mask"),
        "gpt": saved(folder / "gpt", "gpt"),
        "translate": saved(folder / "translate", "transformer"),
    }


def test_a_single_text_gives_a_single_result(runs):
    loaded = {name: load(path) for name, path in runs.items()}
    for name, verb, *more in (
        ("classify", "classify"), ("classify", "embed"), ("tag", "tag"), ("fill", "fill"), ("gpt", "generate"),
        ("translate", "translate"), ("translate", "generate"), ("answer", "answer", "some text"),
    ):  # fmt: skip
        method, text = getattr(loaded[name], verb), "some [MASK]" if verb == "fill" else "some text"
        one, many = method(text, *more), method([text], *([each] for each in more))
        assert torch.equal(one, many[0]) if verb == "embed" else one == many[0], (name, verb)
        assert len(many) == 1
    named = {"texts": "some text"}
    assert loaded["tag"].tag(**named) == loaded["tag"].tag("some text")
    assert loaded["classify"].classify("a", "b") == loaded["classify"].classify(["a"], ["b"])[0]
    assert loaded["classify"].classify([]) == []


def test_what_is_single():
    from pathlib import Path

    import numpy as np
    from PIL import Image

    image = Image.new("RGB", (4, 4))
    assert all(map(is_single, ("a", Path("a"), b"a", image, np.asarray(image), torch.zeros(3, 4, 4), np.zeros((4, 4)))))
    assert not any(map(is_single, ([], ["a"], ("a",), (x for x in "a"), np.zeros((2, 4, 4, 3)), [image])))


def test_sampling_by_keywords():
    one = writer()
    drawn = one.generate(["the cat"], max_new_tokens=12, sampling=Sampling(temperature=1.5, top_p=0.9, seed=3))
    assert one.generate("the cat", max_new_tokens=12, temperature=1.5, top_p=0.9, seed=3) == drawn[0]
    assert "".join(one.stream("the cat", max_new_tokens=12, temperature=1.5, top_p=0.9, seed=3)) == drawn[0]
    engine = regard.Engine(one)
    assert engine.generate("the cat", max_new_tokens=12, temperature=1.5, top_p=0.9, seed=3) == drawn[0]
    greedy = one.generate("the cat", max_new_tokens=12)
    assert one.generate("the cat", max_new_tokens=12, temperature=0) == greedy != drawn[0]
    with pytest.raises(ValueError, match="a seed is for sampling; give a temperature"):
        one.generate("the cat", seed=1)
    with pytest.raises(ValueError, match="both sampling and top_p are given; leave out one"):
        one.generate("the cat", sampling=Sampling(), top_p=0.5)
    with pytest.raises(TypeError, match="there is no option 'temprature'; .*temperature"):
        one.generate("the cat", temprature=1.0)


def test_a_model_says_what_it_is(runs):
    count = sum(p.numel() for p in load(runs["classify"]).model.parameters())
    text = repr(load(runs["classify"], "int8"))
    assert text == (
        f"TextClassifier(family: bert, parameters: {count:,}, labels: bad, good, context: 32 tokens, weights: int8, "
        f"path: {runs['classify']})"
    )
    page = load(runs["classify"])._repr_html_()
    assert "<table>" in page and "bad, good" in page and ".classify(…) labels texts" in page
    wide = load(runs["tag"])
    wide.model.config = type("Config", (), {"labels": tuple("<abcdefghij")})()
    assert "labels: <, a, b, c, d, e, f, g, 3 more" in repr(wide) and "&lt;, a, b" in wide._repr_html_()
    assert repr(writer()).startswith("LanguageModel(family: gpt, parameters: "), "without a path too"


def test_a_verb_of_others_says_what_this_one_does(runs):
    loaded = load(runs["classify"])
    with pytest.raises(AttributeError, match=r"classify labels texts and embeds, it does not translate; load another"):
        loaded.translate("a")
    assert not hasattr(loaded, "translate") and not hasattr(loaded, "_repr_png_")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        loaded.nothing  # noqa: B018
    with pytest.raises(ValueError, match=r"labels texts and embeds: it is a TextClassifier, no Translator; load"):
        load(runs["classify"], as_=Translator)
    assert type(load(runs["gpt"], as_=LanguageModel)) is LanguageModel


def test_every_verb_of_ours_is_known_to_editors():
    from pathlib import Path

    import regard.tasks.loaded

    source = Path(regard.tasks.loaded.__file__).read_text(encoding="utf-8")
    own = {verb.name for name in tasks if tasks[name].__module__.startswith("regard.") for verb in tasks[name].verbs}
    missing = {verb for verb in own if not re.search(rf"^        {verb}( =|:)", source, re.MULTILINE)}
    assert not missing
    for cls, verb in ((LanguageModel, "generate"), (MaskFiller, "fill"), (EntityTagger, "tag")):
        assert list(inspect.signature(getattr(cls, verb)).parameters)[0] == "self", "help() shows the method's own"
        assert inspect.getdoc(getattr(cls, verb))
    assert TextClassifier.classify.__doc__


SNIPPET = """
import regard
from regard.tasks import ImageClassifier, TextClassifier

task = regard.load("run")
reveal_type(task.translate("a"))
reveal_type(task.translate(["a"], beams=2))
reveal_type(task.generate("a", temperature=0.8, top_p=0.9, seed=1))
reveal_type(task.classify("a"))
reveal_type(task.my_own_verb)
translator = regard.load("run", as_=regard.Translator)
reveal_type(translator)
reveal_type(translator.translate("a")[0].text)
translator.classify("a")
translator.translate("a", beans=2)
reveal_type(regard.load("run", as_=TextClassifier).classify(["a"]))
reveal_type(regard.load("run", as_=ImageClassifier).classify("a.png")[0].probability)
reveal_type(regard.__version__)
reveal_type(regard.fit("translate", steps=10))
"""
REVEALED = [
    "list[regard.tasks.translator.Translation]", "list[list[regard.tasks.translator.Translation]]", "str",
    "list[regard.tasks.text_heads.Label]", "Any", "regard.tasks.translator.Translator", "str",
    "list[list[regard.tasks.text_heads.Label]]", "float", "str", "regard.train.loop.Fitted",
]  # fmt: skip


def test_every_option_of_a_verb_is_a_keyword_of_its_method():
    for task in map(tasks.__getitem__, tasks):
        for verb in task.verbs:
            known = inspect.signature(getattr(task, verb.method or verb.name)).parameters
            if any(one.kind is one.VAR_KEYWORD and one.annotation is Any for one in known.values()):
                continue  # handed on
            missing = {option.name for option in verb.options} - known.keys() - SamplingOptions.__annotations__.keys()
            assert not missing, (task.name, verb.name)


@pytest.mark.slow
def test_types_that_editors_see(tmp_path):
    (tmp_path / "user.py").write_text(SNIPPET)
    command = [sys.executable, "-m", "mypy", "--config-file", "", "--ignore-missing-imports"]
    done = subprocess.run([*command, str(tmp_path / "user.py")], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if "user.py" in line]
    revealed = [line.split('"')[1].replace("builtins.", "") for line in lines if "Revealed" in line]
    assert revealed == REVEALED
    errors = [line for line in lines if " error: " in line]
    assert 'no attribute "classify"' in errors[0] and "beans" in errors[1]
    assert [line.split(":")[1] for line in errors] == ["14", "15", "15"], "the second call is one mistake in two lines"


def test_look_takes_what_was_loaded_and_knows_its_tokens(runs):
    for name, verb, text in (("classify", "classify", "some text"), ("gpt", "generate", "some text"),
                             ("translate", "translate", "some text")):  # fmt: skip
        task = load(runs[name])
        options = {} if name == "classify" else {"max_new_tokens": 5}
        options |= {"beams": 1} if name == "translate" else {}
        plain = getattr(task, verb)(text, **options)
        with regard.look(task) as seen:
            watched = getattr(task, verb)(text, **options)
        if name == "translate":  # while it is watched, the model's own layers run, which round scores otherwise
            assert [best.ids for best in watched] == [best.ids for best in plain], "looking changes nothing"
        else:
            assert watched == plain, "looking changes nothing"
        for layer in seen.names:
            queries, keys = seen.tokens_of(layer)
            assert (len(queries), len(keys)) == tuple(seen.attention[layer].shape[2:]), (name, layer)
        wanted = task.tokenizer.pieces(task.tokenizer.encode(text))
        assert [token for token in seen.tokens if token in wanted][: len(wanted)] == wanted
        assert f'"{wanted[0]}"' in seen._repr_html_().replace("&quot;", '"')
    figure = seen.plot()
    assert {label.get_text() for label in figure.axes[0].get_xticklabels()} >= {wanted[0]}
    assert figure._repr_png_().startswith(b"\x89PNG")
    with regard.look(task.model) as seen:
        task.translate(text, beams=1, max_new_tokens=5)
    assert seen.tokens == [] and seen.tokens_of(0) == (None, None), "a module has no tokenizer"
    with pytest.raises(ValueError, match="look watches what regard.load returns, or an nn.Module; got a str"):
        regard.look("runs/x").__enter__()


def test_fit_by_a_recipes_name(tmp_path, monkeypatch):
    (tmp_path / "book.txt").write_text("the cat and the hat. " * 200)
    monkeypatch.chdir(tmp_path)
    sizes = {"model.dim": 16, "model.heads": 2, "model.ffn_dim": 24, "model.depth": 1, "data.vocab_size": 300}
    fitted = regard.fit("lm", steps=2, warmup=1, text="book.txt", batch_tokens=128, quiet=True, **sizes)
    assert fitted.step == 2 and "runs/lm" in repr(load("runs/lm"))
    with pytest.raises(ValueError, match="lm has no field 'stepz'; .*steps"):
        regard.fit("lm", stepz=2)
    with pytest.raises(ValueError, match="vocab_size is a field of data and of model; say which"):
        regard.fit("lm", vocab_size=300, out="x")
    assert not (tmp_path / "x").exists()


def test_a_notebook_shows_progress_in_one_line(monkeypatch, capsys):
    from types import SimpleNamespace

    from regard.train.progress import Line

    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1)))
    line = Line()
    line.show("step 1")
    line.show("step 2", final=True)
    assert capsys.readouterr().err == "\rstep 1\rstep 2\n"
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert not Line().terminal
