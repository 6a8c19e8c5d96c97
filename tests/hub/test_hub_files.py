"""The files of a checkpoint: weights in shards, and where a checkpoint is found."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.hub import save_model
from regard.hub.files import read_tensors
from regard.hub.remote import PATTERNS, find, pinned, revision_of
from regard.models import Bert, BertConfig
from regard.recipes import fit, recipe
from regard.runs.recipe import Recipe
from regard.tokens import Tokenizer

# --- shards

TENSORS = {
    "a.weight": torch.arange(35, dtype=torch.float32).reshape(5, 7),
    "b.weight": torch.arange(33).reshape(11, 3).to(torch.bfloat16),
    "c.counts": torch.arange(13),
    "c.scale": torch.tensor(2.5, dtype=torch.float64),
}
PLACES = {name: f"model-{number:05}-of-00002.safetensors" for name, number in zip(TENSORS, (1, 2, 2, 1), strict=True)}


@pytest.fixture
def sharded(tmp_path):
    for shard in set(PLACES.values()):
        save_file({name: tensor for name, tensor in TENSORS.items() if PLACES[name] == shard}, tmp_path / shard)
    write_index(tmp_path, PLACES)
    return tmp_path


def write_index(directory, places):
    content = {"metadata": {"total_size": 1}, "weight_map": places}
    (directory / "model.safetensors.index.json").write_text(json.dumps(content))


def test_shards_are_read_as_they_are_stored(sharded):
    found = read_tensors(sharded)
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor)


def test_one_file_goes_before_an_index(sharded):
    save_file({"only": torch.zeros(3)}, sharded / "model.safetensors")
    assert list(read_tensors(sharded)) == ["only"]


def test_what_transformers_writes_in_shards(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_embd=20, n_layer=3, n_head=2, vocab_size=101, n_positions=17)
    model = transformers.GPT2LMHeadModel(config)
    model.save_pretrained(tmp_path / "one")
    model.save_pretrained(tmp_path / "many", max_shard_size="20KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    whole, parts = load_file(tmp_path / "one" / "model.safetensors"), read_tensors(tmp_path / "many")
    assert parts.keys() == whole.keys() and all(torch.equal(parts[name], whole[name]) for name in whole)


def message(call, *arguments):
    with pytest.raises(ValueError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_damaged_shards_are_named(sharded):
    first, second = (sharded / shard for shard in sorted(set(PLACES.values())))
    index = sharded / "model.safetensors.index.json"
    write_index(sharded, PLACES | {"d.bias": second.name})
    assert message(read_tensors, sharded).startswith(f"{second} has no tensor d.bias, which model.safetensors.index")
    for bad in ("../elsewhere.safetensors", "/etc/passwd", 3):
        write_index(sharded, PLACES | {"d.bias": bad})
        assert "no weight_map of tensors to files beside it" in message(read_tensors, sharded)
    for bad in ("..", "", "a\0b", "a" * 5000):
        write_index(sharded, PLACES | {"d.bias": bad})
        assert message(read_tensors, sharded).startswith("no such file: ")
    index.write_text("{}")
    assert message(read_tensors, sharded).startswith(f"{index} has no weight_map")
    index.write_text('{"weight_map": ')
    assert message(read_tensors, sharded).startswith(f"{index} is not valid JSON")
    write_index(sharded, PLACES)
    second.write_bytes(second.read_bytes()[:-5])
    assert message(read_tensors, sharded).startswith(f"{second} is cut short or damaged")
    first.unlink()
    text = message(read_tensors, sharded)
    assert text.startswith(f"no such file: {first}, shard 1 of 2; download or save the checkpoint again")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "model.pt", "last.ckpt"])
def test_pickles_are_refused_with_the_cure(tmp_path, name):
    (tmp_path / name).write_bytes(b"never read")
    text = message(read_tensors, tmp_path)
    assert f"holds {name}, a pickle" in text and "safe_serialization=True" in text


# --- paths and names on the Hub


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A `huggingface_hub` that notes what it is asked for, and answers or raises what `hub.answer` says."""
    errors = pytest.importorskip("huggingface_hub").errors
    fake = ModuleType("huggingface_hub")
    fake.errors, fake.calls, fake.answer = errors, [], str(tmp_path / "snapshot")

    def snapshot_download(name, *, revision, allow_patterns):
        fake.calls.append((name, revision, allow_patterns))
        if isinstance(fake.answer, Exception):
            raise fake.answer
        return fake.answer

    fake.snapshot_download = snapshot_download
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    (tmp_path / "here" / "run").mkdir(parents=True)
    (tmp_path / "here" / "model.bin").write_bytes(b"")
    monkeypatch.chdir(tmp_path / "here")
    return fake


def test_what_exists_is_itself(hub, tmp_path):
    assert find("run") == Path("run") and find(tmp_path / "here" / "run") == tmp_path / "here" / "run"
    assert find("model.bin") == Path("model.bin")
    (tmp_path / "here" / "gpt2").mkdir()
    assert find("gpt2") == Path("gpt2")
    assert hub.calls == []


@pytest.mark.parametrize("name", ["gpt2", "facebook/bart-base", "Helsinki-NLP/opus-mt-en-de", "owner/name.v1_2"])
@pytest.mark.parametrize("revision", [None, "main", "0123abc", "refs/pr/1"])
def test_names_on_the_hub(hub, tmp_path, name, revision):
    assert find(f"hf:{name}" + (f"@{revision}" if revision else "")) == tmp_path / "snapshot"
    assert hub.calls == [(name, revision, PATTERNS)]
    assert not any("bin" in pattern or pattern == "*" for pattern in PATTERNS)


def test_a_name_that_is_nearly_right_gets_the_run_that_was_meant(hub, tmp_path):
    for name in ("reviews", "demo"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.json").write_text("{}")
    (tmp_path / "runs" / "reveiw").mkdir()  # no run
    where = tmp_path / "runs" / "reveiws"
    assert message(find, where) == f"no such directory: {where}; did you mean {tmp_path / 'runs' / 'reviews'}?"
    assert "did you mean" not in message(find, tmp_path / "runs" / "other") and hub.calls == []


@pytest.mark.parametrize(
    "name", ["gpt2", "runs/demo", "owner/name", "gpt3", "./owner/name", "/owner/name", "owner/name/more", "../name",
             "~/name", "run/second", "owner/na me", "owner/", Path("owner/name"), "gpt2.bin", "-owner/name"],
)  # fmt: skip
def test_a_path_that_does_not_exist_is_never_tried_on_the_hub(hub, name):
    text = message(find, name)
    assert text.startswith(f"no such directory: {name}; give the directory that holds config.json")
    assert "a model of the Hub is named hf:" in text and hub.calls == []


def test_the_habit_of_a_bare_name_gets_its_cure(hub):
    assert message(find, "owner/name").endswith("; a model of the Hub is named hf:owner/name")
    assert message(find, "gpt2").endswith("; a model of the Hub is named hf:gpt2")


@pytest.mark.parametrize("name", ["hf:", "hf:owner/", "hf:a/b/c", "hf:../name", "hf:owner/name@", "hf:-owner/name"])
def test_what_is_no_name_of_the_hub(hub, name):
    assert message(find, name) == f"{name}: models of the Hub are named hf:owner/name, or hf:owner/name@revision"
    assert hub.calls == []


def test_the_revision_is_resolved(hub, tmp_path):
    commit = "0123456789" * 4
    hub.answer = str(tmp_path / "models--owner--name" / "snapshots" / commit)
    assert pinned("hf:owner/name") == pinned("hf:owner/name@main") == f"hf:owner/name@{commit}"
    assert pinned("runs/demo") == "runs/demo" and revision_of(Path("runs/demo")) is None


def test_a_run_stores_the_revision_of_its_base(hub, tmp_path):
    model = Bert(BertConfig(dim=24, heads=3, ffn_dim=20, depth=2, vocab_size=300, max_len=16, task="pretrain"))
    hub.answer = str(tmp_path / "snapshots" / ("0123456789" * 4))
    save_model(model, hub.answer)
    texts = [f"{word} number {number}" for number in range(300) for word in ("red", "blue")]
    Tokenizer.train(texts=texts, kind="bpe", vocab_size=300, specials=("<mask>",)).save(Path(hub.answer))
    (tmp_path / "train.csv").write_text("text,label\n" + "".join(f"{text},{text.split()[0]}\n" for text in texts[:80]))
    plan = recipe(
        "classify", {"data.base": "hf:owner/name", "data.train": str(tmp_path / "train.csv"), "train.steps": 1}
    )
    fit(plan, tmp_path / "out", quiet=True)
    assert Recipe.load(tmp_path / "out" / "recipe.toml").data.base == "hf:owner/name@" + "0123456789" * 4


def error(name):
    """An error of the Hub's own, made without the request that it would carry."""
    kind = getattr(sys.modules["huggingface_hub"].errors, name)
    return kind.__new__(kind)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("RepositoryNotFoundError", ["is no model on the Hub", "check the spelling"]),
        ("GatedRepoError", ["behind terms", "accept them"]),
        ("LocalEntryNotFoundError", ["not in the Hub's cache", "HF_HUB_OFFLINE", "local directory"]),
        ("OfflineModeIsEnabled", ["not in the Hub's cache", "HF_HUB_OFFLINE"]),
    ],
)
def test_errors_of_the_hub_are_one_line(hub, name, words):
    hub.answer = error(name)
    text = message(find, "hf:owner/name")
    assert text.startswith("hf:owner/name ") and all(word in text for word in words)


def test_any_other_error_is_one_line_too(hub):
    hub.answer = OSError("first\n  second")
    assert message(find, "hf:owner/name") == (
        "hf:owner/name could not be fetched from the Hub (first second); give a local directory"
    )


def test_without_the_extra(hub, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert message(find, "hf:gpt2") == "hf:gpt2: models of the Hub need an extra: pip install 'regard[hub]'"


def test_the_real_cache_offline(tmp_path):
    """The library itself, in a process of its own: what is in the cache is found, the rest is an error, no network."""
    pytest.importorskip("huggingface_hub")
    snapshot = tmp_path / "models--owner--name" / "snapshots" / ("0123456789" * 4)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (tmp_path / "models--owner--name" / "refs").mkdir()
    (tmp_path / "models--owner--name" / "refs" / "main").write_text(snapshot.name)
    code = (
        "from regard.hub.remote import find\nprint(find('hf:owner/name'))\n"
        "try:\n    find('hf:owner/other')\nexcept ValueError as error:\n    print(error)"
    )
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path)}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, cwd=root
    )
    found, missing = done.stdout.splitlines()
    assert found == str(snapshot)
    assert missing.startswith("hf:owner/other is not in the Hub's cache")
