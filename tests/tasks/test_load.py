"""A directory becomes an object with the verbs that its model knows; the others say what it can do instead."""

import pytest

from regard.hub import save_generation, save_model
from regard.models import build, preset
from regard.tasks import (
    EntityTagger,
    LanguageModel,
    MaskFiller,
    QuestionAnswerer,
    TextClassifier,
    TextEncoder,
    TextToText,
    Translator,
    load,
    load_for,
)
from regard.tokens import Tokenizer

SIZES = dict(dim=16, heads=2, ffn_dim=24, depth=1, vocab_size=262, max_len=32)
KINDS = {
    "none": TextEncoder, "mask": MaskFiller, "pretrain": MaskFiller, "classify": TextClassifier,
    "tag": EntityTagger, "answer": QuestionAnswerer,
}  # fmt: skip


def saved(path, family, **fields):
    sizes = SIZES if family != "gru" else {name: SIZES[name] for name in ("dim", "depth", "vocab_size", "max_len")}
    save_model(build(family, preset(family, "tiny", **sizes, **fields)), path)
    Tokenizer.train(texts=["some text"], vocab_size=262, specials=("<mask>",)).save(path)
    if family != "bert":
        save_generation(path, bos=0, eos=2, pad=0)
    return path


@pytest.mark.parametrize("task", KINDS)
def test_an_encoder_is_loaded_for_its_task(task, tmp_path):
    labels = ["a", "b"] if task in ("classify", "tag") else []
    assert type(load(saved(tmp_path, "bert", task=task, labels=labels))) is KINDS[task]


@pytest.mark.parametrize(
    ("family", "kind"),
    [("gpt", LanguageModel), ("gru", LanguageModel), ("t5", TextToText), ("transformer", Translator)],
)
def test_a_model_that_writes(family, kind, tmp_path):
    assert type(load(str(saved(tmp_path, family)))) is kind


@pytest.mark.parametrize(
    ("family", "fields", "verb", "message"),
    [
        ("gpt", {}, "classify", "writes, it does not classify; choose another model"),
        ("t5", {}, "fill", "translates and writes, it does not fill; choose another model"),
        ("bert", {"task": "none"}, "tag", "embeds, it does not tag; regard finetune .* --task tag"),
        ("bert", {"task": "mask"}, "answer", "fills in hidden words and embeds, it does not answer; regard finetune"),
        ("bert", {"task": "mask"}, "generate", "it does not generate; choose another model"),
        ("bert", {"task": "answer"}, "fill", "answers questions and embeds, it does not fill; choose another model"),
    ],
)
def test_a_verb_that_the_model_does_not_know(family, fields, verb, message, tmp_path):
    saved(tmp_path, family, **fields)
    with pytest.raises(ValueError, match=f"{tmp_path} {message}" if " it " in message[3:] else message):
        load_for(verb, tmp_path)


def test_a_verb_that_it_knows(tmp_path):
    assert isinstance(load_for("embed", saved(tmp_path, "bert", task="none")), TextEncoder)


def test_nothing_there(tmp_path):
    with pytest.raises(ValueError, match="no such directory: .*; give the directory that holds config.json"):
        load(tmp_path / "none")
    save_model(build("gpt", preset("gpt", "tiny", **SIZES)), tmp_path)
    with pytest.raises(ValueError, match="tokenizer.json: no such file"):
        load(tmp_path)
