"""Bad input of language models and tasks: one line that names file and line where there is one, and the cure."""

import json
import re
import shutil

import pytest
from safetensors.torch import load_file, save_file

from tests.cli.calling import fails, options
from tests.recipes.tiny import SIZES

FEW = options(SIZES)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty place to work in; nothing may be left there but what the test wrote."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys, here, *words):
    """The one line; and that nothing new is there."""
    before = sorted(here.rglob("*"))
    line = fails(capsys, *words)
    assert sorted(here.rglob("*")) == before, "nothing is left behind"
    return line


def write(here, name, text):
    (here / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return name


GOOD = "".join(f'{{"text": "cat {i}", "label": "{"ab"[i % 2]}"}}\n' for i in range(20))


@pytest.mark.parametrize(
    ("task", "name", "text", "message"),
    [
        ("classify", "t.jsonl", GOOD + '{"text": "x"}\n', r"t.jsonl, line 21: no 'label', only 'text'; add it, or say"),
        ("classify", "t.jsonl", GOOD + '{"text": "x", \n', "t.jsonl, line 21: not JSON"),
        ("classify", "t.tsv", "a cat\tx\na dog\n", "t.tsv, line 2: got 1 columns, but 2 in the first line"),
        ("classify", "t.csv", 'text,label\n"a cat,x\n', "t.csv, line 2: not CSV"),
        ("classify", "t.docx", "a cat\tx\n", "t.docx: classify reads"),
        ("classify", "t.tsv", "a cat\tx\n", "t.tsv: one example cannot be split; give --data.valid"),
        ("classify", "t.tsv", "", "t.tsv: the file is empty"),
        ("classify", "t.tsv", b"a cat\tx\n\xff\ty\n", "t.tsv, line 2: not UTF-8"),
        (
            "tag",
            "t.conll",
            "The O\ncat\n",
            "t.conll, line 2: got one column; give a word, a tab or a space, and its tag",
        ),
        ("tag", "t.conll", "The O\ncat ANIMAL\n", "t.conll, line 2: the tag 'ANIMAL' is neither O nor like B-NAME"),
        ("answer", "t.jsonl", '{"question": "q", "passage": "p"}\n', "t.jsonl, line 1: no 'answer'"),
        (
            "answer",
            "t.jsonl",
            '{"question": "q", "passage": "p", "answer": "z"}\n',
            "the answer 'z' is not in the passage",
        ),
        ("embed", "t.csv", "a,b,score\nx,y,7\n", "t.csv, line 2: the score 7 is not from 0 to 1"),
        ("instruct", "t.jsonl", '{"prompt": "p"}\n', "t.jsonl, line 1: no 'answer', only 'prompt'"),
    ],
)
def test_examples(task, name, text, message, capsys, here):
    write(here, name, text)
    line = refused(capsys, here, "train", task, "--data.train", name, "--out", "run", *FEW)
    assert line.startswith("regard: error: ") and message in line


def test_a_label_that_training_never_showed(capsys, here):
    write(here, "train.tsv", "".join(f"cat {i}\t{'ab'[i % 2]}ird\n" for i in range(20)))
    write(here, "valid.tsv", "one\taird\ntwo\tbirt\n")
    words = ["--data.train", "train.tsv", "--data.valid", "valid.tsv", "--out", "run"]
    line = refused(capsys, here, "train", "classify", *words)
    assert "valid.tsv, line 2: label 'birt' does not occur in train.tsv; did you mean 'bird'?" in line
    write(here, "train.conll", "a B-CAT\n\nb O\n\n")
    write(here, "valid.conll", "a O\n\nb B-DOG\n")
    line = refused(
        capsys, here, "train", "tag", "--data.train", "train.conll", "--data.valid", "valid.conll", "--out", "run"
    )
    assert "valid.conll, line 3: label 'DOG' does not occur in train.conll; known: CAT" in line


@pytest.mark.parametrize("name", ["lm", "bert", "spans"])
def test_texts(name, capsys, here):
    write(here, "empty.txt", "\n \n")
    write(here, "latin.txt", "one\ntwo\ncaf\xe9\n".encode("latin1"))
    write(here, "good.txt", "a cat. " * 50)
    for files, message in (
        (["empty.txt"], "empty.txt: the file is empty; give one with text"),
        (["good.txt", "latin.txt"], "latin.txt, line 3: not UTF-8; convert it: iconv -f latin1 -t utf-8 latin.txt"),
        (["none.txt"], "none.txt: no such file; check the path"),
        (["."], ".: is a directory; give its text files"),
    ):
        assert message in refused(capsys, here, "train", name, "--data.text", *files, "--out", "run", *FEW)
    assert "give --data.text too" in refused(capsys, here, "train", name, "--data.valid-text", "good.txt")


def test_a_text_that_is_too_short(capsys, here):
    write(here, "short.txt", "abc")
    words = ["--data.text", "short.txt", "--out", "run", *FEW]
    assert "fewer than two tokens to learn from; give more of it" in refused(capsys, here, "train", "lm", *words)
    assert "too short to be cut into two stretches; give more of it" in refused(capsys, here, "train", "bert", *words)
    assert "at least 2" in refused(capsys, here, "train", "spans", *words)


def broken(tiny, here, how):
    """A copy of a trained encoder with something wrong."""
    shutil.copytree(tiny.run("bert"), here / "base", ignore=shutil.ignore_patterns("checkpoints"))
    weights = here / "base" / "model.safetensors"
    tensors = load_file(weights)
    if how == "shard":
        names = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(tensors)}
        (here / "base" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
        one = sorted(set(names.values()))[0]
        save_file({name: tensors[name] for name in tensors if names[name] == one}, here / "base" / one)
        weights.unlink()
    elif how == "shape":
        save_file(tensors | {"embedding.weight": tensors["embedding.weight"][:, :-1].contiguous()}, weights)
    elif how == "missing":
        save_file({name: value for name, value in tensors.items() if name != "embedding.weight"}, weights)
    else:
        weights.rename(here / "base" / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("shard", r"no such file: base/model-00002-of-00002.safetensors, shard 2 of 2; download or save"),
        ("shape", r"base/model.safetensors: embedding.weight has shape \(\d+, 15\), config.json asks for \(\d+, 16\)"),
        ("missing", r"base/model.safetensors: 1 missing tensors: embedding.weight"),
        ("pickle", r"base holds pytorch_model.bin, a pickle, which could run code when read.*save_pretrained"),
    ],
)
def test_checkpoints_to_start_from(how, message, tiny, capsys, here):
    broken(tiny, here, how)
    given = options(tiny.files["classify"])
    line = refused(capsys, here, "finetune", "base", "--task", "classify", "--out", "run", *given)
    assert re.search(message, line), line
    assert re.search(message, refused(capsys, here, "fill", "base", "a [MASK]"))


@pytest.mark.parametrize(
    ("run", "words", "message"),
    [
        ("lm", ["classify", "RUN", "x"], "RUN writes, it does not classify; choose another model"),
        (
            "bert",
            ["tag", "RUN", "x"],
            "RUN fills in hidden words and embeds, it does not tag; regard finetune RUN --task tag",
        ),
        ("classify", ["generate", "RUN", "x"], "RUN labels texts and embeds, it does not generate"),
        ("t5", ["answer", "RUN", "x", "--passage", "y"], "RUN translates and writes, it does not answer"),
        (
            "lm",
            ["generate", "RUN", "word " * 400],
            "tokens, the model's context is 128; shorten it, or train with a larger",
        ),
        (
            "lm",
            ["generate", "RUN", ""],
            "the prompt is empty and this model has no BOS token; give it some text",
        ),
        ("lm", ["generate", "RUN", "x", "--temperature", "-1"], "temperature=-1.0 must be above 0"),
        ("bert", ["fill", "RUN", "no hole"], "text 1 has no [MASK]; write it where a word is to be filled in"),
        ("tag", ["tag", "RUN", "cat " * 500], "text 1 has 503 tokens, the context is 256; split it"),
        ("embed", ["embed", "RUN", "--search", "x"], "--search and --in go together"),
        ("embed", ["embed", "RUN", "--in", "x.txt"], "--search and --in go together"),
        ("embed", ["embed", "RUN", "--search", "x", "--in", "none.txt"], "none.txt: no such file"),
        ("embed", ["embed", "RUN", "x", "--input", "y.txt"], "give either TEXT or --input, not both"),
        ("answer", ["answer", "RUN", "x"], "give the text to search: either --passage or --in FILE"),
        (
            "answer",
            ["answer", "RUN", "q " * 400, "--passage", "p " * 300],
            "leaves 0 tokens of passage beside a question",
        ),
        ("spans", ["eval", "RUN"], "RUN was only pre-trained; train it for tasks: regard train t5 --data.base RUN"),
        ("classify", ["eval", "RUN", "--few-shot", "2"], "examples in a prompt are for language models"),
        ("classify", ["eval", "RUN", "--data.task", "tag"], "RUN was trained to classify; leave out --data.task tag"),
        ("classify", ["eval", "RUN", "--data.tset", "x"], "unknown key 'tset'; did you mean 'test'?"),
        ("lm", ["look", "RUN", "a cat", "--word", "cat"], "give a list of at least two"),
        ("bert", ["look", "RUN", "a cat", "a dog", "--word", "cat"], "text 2 does not have the word 'cat'"),
        (
            "lm",
            ["finetune", "RUN", "--task", "tag", "--data.train", "x.conll"],
            "RUN is a gpt; tag needs an encoder such as bert",
        ),
        (
            "bert",
            ["finetune", "RUN", "--task", "instruct", "--data.train", "x.csv"],
            "RUN is a bert; instructions are for language models",
        ),
        ("bert", ["train", "t5", "--data.base", "RUN"], "RUN is a bert; t5 starts from a T5"),
        (
            "bert",
            ["train", "lm", "--out", "RUN", "--resume"],
            "RUN is a run of bert, not of lm; go on with regard train",
        ),
        (
            "lm",
            ["train", "lm", "--out", "RUN", "--resume", "--model.dim", "32"],
            "was trained with another model, data",
        ),
        (
            "classify",
            ["compare", "RUN", "--by", "time"],
            "RUN is no language model of running text; translators: --by length",
        ),
    ],
)
def test_models_asked_for_what_they_cannot(run, words, message, tiny, capsys, here):
    path = str(tiny.run(run))
    line = refused(capsys, here, *[word.replace("RUN", path) for word in words])
    assert message.replace("RUN", path) in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "classify", "--data.tune", "lora"], "tune='lora' needs weights to start from; give --data.base"),
        (["train", "classify", "--data.tune", "lor"], "data.tune takes all|head|lora, got 'lor'"),
        (["train", "classify", "--data.valid", "x.tsv"], "validation examples without training examples"),
        (["train", "classify", "--data.columns", "text"], "columns are given as text=sentence,label=class"),
        (["train", "lm", "--model", "grue"], "unknown model 'grue'; did you mean 'gru'?"),
        (
            ["train", "translate", "--model", "gru"],
            "gru is no model for the data of translate: its features takes ids, and these give",
        ),
        (["train", "bert", "--data.rate", "2"], "rate=2.0 is not between 0 and 1"),
        (["train", "spans", "--data.span", "0"], "span at least 1"),
        (["finetune", "nowhere", "--task", "classify", "--data.train", "x.csv"], "no such directory: nowhere"),
        (["finetune", "nowhere", "--task", "classify", "--resume"], "holds no run to resume"),
        (["generate", "nowhere", "x"], "no such directory: nowhere"),
    ],
)
def test_settings(words, message, capsys, here):
    assert message in refused(capsys, here, *words)


def test_a_task_that_is_none(capsys, here):
    line = refused(capsys, here, "finetune", "x", "--task", "clasify")
    assert "--task 'clasify' is not one of" in line and "did you mean 'classify'?" in line
