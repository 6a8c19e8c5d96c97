"""Configs that ask for more than their weights hold: refused on the meta device, before anything is allocated."""

import hashlib
import importlib.util
import json
import shutil
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
from torch.nn.modules.module import register_module_parameter_registration_hook

from regard.hub import load_model, save_model
from regard.hub.adapter import begin_from, fingerprint, load_adapter, save_adapter, tune
from regard.hub.checkpoint import export_model, peek_model
from regard.hub.llama2c import HEADER, read_llama2c_tokenizer
from regard.hub.mapping import MOST_LABELS
from regard.hub.skeleton import TooManyError, at_most, skeleton
from regard.models import build, preset
from regard.models.towers import describe_tower
from regard.registry import models

TEXT = dict(dim=8, heads=2, ffn_dim=12, depth=2, vocab_size=23, max_len=16)
IMAGE = dict(dim=8, heads=2, ffn_dim=12, depth=1, image=16, patch=8, channels=3)
HUGE = 16_000_000


@contextmanager
def nothing_allocated():
    """Raise an error as soon as a parameter is made that has memory."""

    def check(module, name, parameter):
        assert parameter is None or parameter.device.type == "meta", f"{name} {tuple(parameter.shape)} is allocated"

    hook = register_module_parameter_registration_hook(check)
    try:
        yield
    finally:
        hook.remove()


def change(path, **fields):
    """Overwrite fields of a config.json; a dotted name leads into an object of it."""
    stored = json.loads((path / "config.json").read_text())
    for name, value in fields.items():
        *parts, last = name.split("__")
        inner = stored
        for part in parts:
            inner = inner[part]
        inner[last] = value
    (path / "config.json").write_text(json.dumps(stored))
    return path


def refusal(path):
    with nothing_allocated(), pytest.raises(ValueError) as caught:
        load_model(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("family", "sizes", "field", "value", "words"),
    [
        ("gpt", TEXT, "vocab_size", HUGE, ["embedding.weight has shape (23, 8)", f"asks for ({HUGE}, 8)"]),
        ("gpt", TEXT, "dim", HUGE, ["query.weight has shape (8, 8)", f"asks for ({HUGE}, {HUGE})"]),
        ("gpt", TEXT, "ffn_dim", HUGE, ["feedforward", f"{HUGE}"]),
        ("gpt", TEXT, "depth", HUGE, ["more than", "parts", "only 31 tensors", f"(depth={HUGE})"]),
        ("gpt", TEXT, "max_len", HUGE, ["position.angles would have shape", f"max_len={HUGE}"]),
        ("gpt", TEXT, "vocab_size", 2**60, ["vocab_size=1152921504606846976 is too large, at most 16,777,216"]),
        ("gpt", TEXT | dict(position="learned"), "max_len", HUGE, ["position.table has shape (16, 8)", f"({HUGE}, 8)"]),
        ("transformer", TEXT, "max_len", HUGE, ["table would have shape", f"max_len={HUGE}"]),
        ("bert", TEXT | dict(shared=True), "depth", HUGE, ["more than", "parts"]),
        ("lstm", dict(dim=8, vocab_size=23), "depth", HUGE, ["more than", "parts"]),
        ("vit", IMAGE, "image", HUGE, ["position.table has shape (5, 8)"]),
        ("vit", IMAGE, "channels", HUGE, ["project.weight has shape"]),
        ("vit", IMAGE, "labels", ["a"] * 5000, ["labels has 5,000 entries, the weights hold 2,"]),
    ],
)
def test_sizes_beyond_the_weights(tmp_path, family, sizes, field, value, words):
    save_model(build(family, preset(family, "tiny", **sizes)), tmp_path)
    message = refusal(change(tmp_path, **{field: value}))
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("kind", "family", "sizes", "fields"),
    [
        ("gpt2", "gpt", TEXT | dict(position="learned"), ("n_layer", "vocab_size", "n_positions", "n_embd")),
        ("bert", "bert", TEXT | dict(task="mask"), ("num_hidden_layers", "vocab_size", "max_position_embeddings")),
        ("vit", "vit", IMAGE | dict(labels=("a", "b")), ("num_hidden_layers", "image_size", "intermediate_size")),
    ],
)
def test_sizes_beyond_foreign_weights(tmp_path, kind, family, sizes, fields):
    export_model(build(family, preset(family, "tiny", **sizes)), tmp_path, kind=kind, bos=1, eos=1, pad=0)
    load_model(tmp_path)
    whole = (tmp_path / "config.json").read_text()
    for field in fields:
        refusal(change(tmp_path, **{field: HUGE}))
        (tmp_path / "config.json").write_text(whole)
    if kind == "vit":
        names = {str(i): "a" for i in range(MOST_LABELS + 1)}
        for changed in (dict(id2label=None, num_labels=HUGE), dict(id2label=names)):
            assert "num_labels=" in refusal(change(tmp_path, **changed))


@pytest.fixture
def adapter(tmp_path):
    """A run with LoRA, and its base."""
    base, run = tmp_path / "base", tmp_path / "run"
    save_model(build("gpt", preset("gpt", "tiny", **TEXT)), base)
    model = begin_from(load_model(base), load_model(base).config)
    tune(model, "lora", 2)
    save_adapter(model, run, base=base, mode="lora", rank=2)
    load_model(run)
    return run, load_model(base)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (dict(adapter__rank=HUGE), f"({HUGE}, 8)"),
        (dict(adapter__rank=10**12), "rank=1000000000000 is too large"),
        (dict(depth=HUGE), "more than"),
        (dict(adapter__tune="none"), "adapter.tune takes head|lora"),
    ],
)
def test_an_adapter_beyond_its_weights(adapter, fields, words):
    run, base = adapter
    change(run, **fields)
    with nothing_allocated(), pytest.raises(ValueError) as caught:
        load_adapter(run, base, json.loads((run / "config.json").read_text()))
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_an_adapter_that_is_its_own_base(adapter):
    run, _ = adapter
    change(run, adapter__base=str(run), adapter__base_sha256=fingerprint(run))
    with pytest.raises(ValueError, match="config.json: adapter.base is the run itself, or leads to it") as caught:
        load_model(run)
    assert "\n" not in str(caught.value)


def test_adapters_that_are_each_other_s_base(adapter, tmp_path):
    run, _ = adapter
    other, third = (shutil.copytree(run, tmp_path / name) for name in ("other", "third"))
    mark = fingerprint(run)  # the same for all of them
    change(other, adapter__base=str(run), adapter__base_sha256=mark)
    load_model(other)  # on top of another adapter, as it may be
    change(run, adapter__base=str(other), adapter__base_sha256=mark)
    change(third, adapter__base=str(run), adapter__base_sha256=mark)
    for path, words in ((run, "or leads to it; name its"), (other, "or leads to it"), (third, "more than 16 bases")):
        assert f"{path / 'config.json'}: " in refusal(path) and words in refusal(path)


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("x" * 5000, "which is missing; restore it"),
        ("a\0b", "which is missing; restore it"),
        ("../..", "has changed since"),
        ("/dev", "no such file: /dev/config.json"),
        ("/dev/zero", "config.json"),
    ],
)
def test_the_base_of_an_adapter_is_anything(adapter, base, words):
    """A base may be anywhere, as runs may be, but only weights that have the stored checksum are used."""
    run, _ = adapter
    nothing = hashlib.sha256(b"").hexdigest()  # of the files that a folder without weights has
    message = refusal(change(run, adapter__base=base, adapter__base_sha256="0" if ".." in base else nothing))
    assert words in message and len(message) < 1000


def test_a_tower_beyond_its_weights(tmp_path):
    tower = build("vit", preset("vit", "tiny", **IMAGE))
    sizes = dict(image=16, queries=3, dim=8, depth=1, decoder_depth=1, heads=2, ffn_dim=8, labels=("a",))
    save_model(build("detr", preset("detr", "tiny", **sizes, tower=describe_tower(tower))), tmp_path)
    load_model(tmp_path)
    described = json.loads(describe_tower(tower))
    assert "more than" in refusal(change(tmp_path, tower=json.dumps(described | {"depth": HUGE})))
    assert "too large" in refusal(change(tmp_path, tower=json.dumps(described | {"depth": 2**40})))
    refusal(change(tmp_path, tower="["))


def test_layers_of_a_llama2c_file(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(HEADER.pack(2, 2, 2**30, 1, 1, 2, 2) + bytes(1000))
    assert "as a llama2.c file its sizes would be (2, 2, 1073741824, 1, 1, 2, 2)" in refusal(path)
    path.write_bytes(HEADER.pack(2, 2, 1, 1, 1, 2**30, 2) + bytes(1000))
    assert "has 1028 bytes, its header asks for 8589934" in refusal(path)
    path.write_bytes(HEADER.pack(3, 2, 1, 1, 1, 2, 2) + bytes(1000))
    assert "its sizes would be (3," in refusal(path)


def test_a_vocabulary_of_llama2c_that_goes_back(tmp_path):
    """A length below zero would read the same entry again, for each of two billion ids."""
    (tmp_path / "tokenizer.bin").write_bytes(struct.pack("<i", 1) + struct.pack("<fi", 1.0, -8) * 2)
    with pytest.raises(ValueError, match="is not a llama2.c vocabulary of 2147483647 entries"):
        read_llama2c_tokenizer(tmp_path / "tokenizer.bin", 2**31 - 1)


def test_peeking_is_bounded_too(tmp_path):
    save_model(build("gpt", preset("gpt", "tiny", **TEXT)), tmp_path)
    assert next(peek_model(tmp_path).parameters()).device.type == "meta"
    with pytest.raises(ValueError, match="more than 8,000 layers and other parts are asked for"):
        peek_model(change(tmp_path, depth=HUGE))


def test_the_caller_of_other_threads_is_not_counted(tmp_path):
    """Two models may be built at once; only the parts of this thread's are counted."""
    with ThreadPoolExecutor(1) as pool, at_most(3):
        pool.submit(lambda: [torch.nn.Linear(1, 1) for _ in range(100)]).result()
        with pytest.raises(TooManyError):
            [torch.nn.Linear(1, 1) for _ in range(100)]


@pytest.mark.parametrize("family", list(models))
def test_shapes_by_hand_are_those_of_the_meta_device(family):
    """Names, shapes and types of all tensors, also of the computed ones."""
    config = preset(family, "tiny" if "tiny" in models[family].presets else min(models[family].presets))
    with torch.device("meta"):
        plain = models[family](config)
    bones = skeleton(lambda: models[family](config), None, {})
    for kind in ("named_parameters", "named_buffers"):
        theirs, ours = (
            {name: (tensor.shape, tensor.dtype) for name, tensor in getattr(model, kind)()} for model in (plain, bones)
        )
        assert ours == theirs


def test_loading_samples_nothing(tmp_path, monkeypatch):
    save_model(build("gpt", preset("gpt", "tiny", **TEXT)), tmp_path)
    sampled = []
    real = torch.Tensor.uniform_
    monkeypatch.setattr(torch.Tensor, "uniform_", lambda t, *args, **options: sampled.append(type(t)) or real(t))
    load_model(tmp_path)
    assert torch.nn.Parameter not in sampled


def odd_tables():
    """Tables that constructors make by ordinary calls, some of them with keywords."""
    index = torch.arange(8)
    return {
        "size": torch.randn(size=(3, 4)), "end": torch.arange(end=8), "rows": torch.eye(8)[index],
        "axis": torch.cat([torch.ones(2, 3), torch.ones(2, 3)], axis=1), "hot": torch.nn.functional.one_hot(index, 8),
        "thirds": torch.arange(0, 1, 0.25), "product": index * 2, "quotient": index / 2, "half": index * 0.5,
    }  # fmt: skip


def test_tables_on_meta_have_the_shapes_and_types_of_real_ones():
    made = skeleton(odd_tables, {}, {})
    for name, wanted in odd_tables().items():
        assert (made[name].shape, made[name].dtype) == (wanted.shape, wanted.dtype), name
        assert made[name].device.type == "meta"


def test_models_are_built_by_many_threads(tmp_path):
    save_model(build("gpt", preset("gpt", "tiny", **TEXT)), tmp_path)
    with ThreadPoolExecutor(8) as pool:
        loaded = list(pool.map(load_model, [tmp_path] * 24))
    assert len({tuple(model.state_dict()) for model in loaded}) == 1


def test_a_constructor_that_computes_with_values_is_named(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import regard.config\nimport torch\ndef build():\n    return torch.ones(3).sum().item()"
    )
    spec = importlib.util.spec_from_file_location("mine", tmp_path / "mine.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(
        ValueError, match=r"cannot be built on the meta device .*mine.py, line 4\); correct its sizes, or"
    ):
        skeleton(lambda: module.build(), None, {})
