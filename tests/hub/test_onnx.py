"""Every family as an ONNX graph: onnxruntime gives our logits, for other numbers of rows and other lengths too."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.calling import call, fails
from tests.laws.cases import SMALL
from tests.recipes.tiny import SIZES, shared

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

CLOSE = 1e-4
REFUSED = {"captioner", "mae", "rnn", "seq2seq"}
"""Families that PyTorch cannot export: recurrent loops, and patches that are sorted."""
CHILD = """
import json, sys
from pathlib import Path
import onnxruntime, torch
from regard.doctor.case import example
from regard.hub.onnx import export_onnx
from tests.laws.cases import SMALL, case_of

def far(session, model, inputs):
    with torch.no_grad():
        wanted = model(**inputs)
    read = {one.name for one in session.get_inputs()}
    (got,) = session.run(None, {name: value.numpy() for name, value in inputs.items() if name in read})
    return (torch.from_numpy(got) - wanted).abs().max().item()

for family in sorted(SMALL):
    torch.manual_seed(0)
    path = Path(sys.argv[1]) / f"{family}.onnx"
    try:
        model = case_of(family).build().eval()
        export_onnx(model, path)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        fewer = example(model, rows=2)
        for name in {"target", "ids", "types"} & fewer.keys():
            fewer[name] = fewer[name][:, :4] if "lengths" not in fewer or name == "target" else fewer[name]
        result = [far(session, model, example(model)), far(session, model, fewer)]
    except Exception as error:
        result = f"{type(error).__name__}: {error}"
    print(json.dumps([family, result]), flush=True)
"""
"""Runs in a process of its own: the checks of shapes in tests would be recorded in the graphs."""


@pytest.fixture(scope="module")
def differences(tmp_path_factory):
    root = Path(__file__).parents[2]
    words = [sys.executable, "-c", CHILD, str(tmp_path_factory.mktemp("onnx"))]
    done = subprocess.run(words, capture_output=True, text=True, cwd=root)
    return dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(SMALL))
def test_logits(family, differences):
    if family in REFUSED:
        assert "as an ONNX graph; use it with regard serve" in differences[family]
        return
    assert isinstance(differences[family], list), differences[family]
    assert max(differences[family]) <= CLOSE


@pytest.fixture(scope="module")
def convert():
    """Runs `regard convert` in a process of its own, and returns what it prints."""

    def run(*words, missing=()):
        hidden = f"import sys; sys.modules.update(dict.fromkeys({tuple(missing)!r}))"
        code = f"{hidden}; from regard.cli import main; sys.argv[0] = 'regard'; main()"
        line = [sys.executable, "-c", code, "convert", *map(str, words)]
        return subprocess.run(line, cwd=Path(__file__).parents[2], capture_output=True, text=True).stderr

    return run


def test_a_file_or_a_directory(convert, tmp_path_factory, tmp_path, capsys):
    import numpy as np
    import onnxruntime
    import torch

    from regard.tasks import load

    run = shared(tmp_path_factory).run("lm")
    assert "checked: onnxruntime's outputs differ by at most" in convert(run, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    task = load(run)
    ids = np.array([task.encode("The red cat")])
    with torch.no_grad():
        wanted = task.model(torch.from_numpy(ids)).numpy()
    assert np.abs(session.run(None, {"ids": ids})[0] - wanted).max() <= CLOSE
    capsys.readouterr()
    assert "exists; choose another name" in fails(capsys, "convert", run, tmp_path / "model.onnx")
    assert "leave out --to" in fails(capsys, "convert", run, tmp_path / "x.onnx", "--to", "hf")
    call("convert", run, tmp_path / "theirs")
    assert (tmp_path / "theirs" / "config.json").exists()


def test_the_labels_of_a_classifier_are_in_its_graph(convert, tmp_path_factory, tmp_path):
    import onnxruntime

    from regard.tasks import load

    run = shared(tmp_path_factory).run("classify")
    convert(run, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    assert json.loads(session.get_modelmeta().custom_metadata_map["labels"]) == list(load(run).model.config.labels)


def test_a_translator_without_a_layout_becomes_a_graph_that_translates(convert, tmp_path_factory, tmp_path, capsys):
    """The program of docs/export.md, which needs no regard, gives our greedy translation."""
    from regard.recipes import fit, recipe
    from regard.tasks import load

    sizes = {name: value for name, value in SIZES.items() if name != "data.vocab_size"}
    run = tmp_path / "run"
    fit(recipe("translate", sizes | {"data.epoch_size": 60, "data.vocab_size": 320}), run, quiet=True)
    lines = convert(run, tmp_path / "demo").splitlines()
    assert "position='rotary' would have to be" in lines[0] and lines[0].endswith("; so it becomes an ONNX graph")
    files = ["generation_config.json", "model.onnx", "tokenizer.json"]
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == files
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
    (program,) = [text for text in re.findall(r"```python\n(.*?)```", page, re.S) if "target" in text]
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    expected = load(run).translate("two cats", beams=1, max_new_tokens=20)[0].text
    assert done.stdout.strip() == expected.strip(), done.stderr
    capsys.readouterr()
    line = fails(capsys, "convert", run, tmp_path / "none", "--to", "hf")
    assert "an ONNX graph can: leave out --to hf" in line and not (tmp_path / "none").exists()
    lines = convert(run, tmp_path / "none", missing=["onnxscript"]).splitlines()
    assert len(lines) == 1 and lines[0].endswith("needs more packages: pip install 'regard[onnx]'")
    assert "ONNX files need more packages: pip install 'regard[onnx]'" in convert(
        run, tmp_path / "none", "--to", "onnx", missing=["onnx"]
    )
    assert not (tmp_path / "none").exists()


def test_a_linear_probe_becomes_a_graph(convert, tmp_path_factory, tmp_path):
    """A classifier that was kept as a probe of the frozen encoder, which no published architecture has."""
    from regard.recipes import fit, recipe
    from regard.tasks import load

    tiny, run = shared(tmp_path_factory), tmp_path / "run"
    given = {"data.base": str(tiny.run("bert")), "train.lr": 1e-12, "train.steps": 2}
    fit(recipe("classify", tiny.files["classify"] | given), run, quiet=True)
    assert not load(run).model.config.pooler
    lines = convert(run, tmp_path / "demo").splitlines()
    assert "so it becomes an ONNX graph" in lines[0] and (tmp_path / "demo" / "model.onnx").exists()
