"""A plugin has the rights of our own files: train, eval, verb, look, cost, serve and laws, with no edit anywhere."""

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np
import pytest
from PIL import Image

from tests.browser.conftest import CHROMIUM, FLAGS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DRIVER = """
import contextlib, io, json, sys
from regard.cli import main
for words in json.load(sys.stdin):
    sys.argv, out, err = ["regard", *words], io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""
"""Runs several commands in one process, which imports torch once."""
STEPS = ("--train.steps", "4", "--train.warmup", "1", "--train.eval-every", "4", "--quiet")
CASES = {
    "mixer": dict(train=["train", "vit", "--model", "mixer"], family="mixer", verb="classify", route="images"),
    "convencoder": dict(
        train=["train", "classify", "--model", "convencoder", "--data.train", "labels.tsv"], family="convencoder",
        verb="classify", route="classifications",
    ),
    "estimate": dict(train=["train", "estimate"], family="estimator", verb="estimate", route="estimate"),
    "waves": dict(train=["train", "period"], family="wave", verb="period", route="period"),
}  # fmt: skip

ITEMS = {"mixer": "image.png", "waves": "wave.csv"}
"""The files that plugins of other modalities than text read."""
ANSWERS = {"labels", "number", "period"}


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}"}


@pytest.fixture(scope="module", params=CASES)
def journey(request, tmp_path_factory):
    """All commands of one plugin, and what each printed."""
    name, folder = request.param, tmp_path_factory.mktemp(request.param)
    case = CASES[name]
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) * 3).save(folder / "image.png")
    rows = [f"the {colour} {number}\t{colour}\n" for number in range(12) for colour in ("red", "blue")]
    (folder / "labels.tsv").write_text("text\tlabel\n" + "".join(rows))
    (folder / "wave.csv").write_text("0.5\n1.5\n-0.5\n" * 5)
    item = ITEMS.get(name, "the red one")
    plain = {
        "train": [*case["train"], "--out", "run", *STEPS, "--json"],
        "eval": ["eval", "run", "--limit", "8", "--json"],
        "verb": [case["verb"], "run", item, "--json"],
        "page": ["look", "run", item, "--out", "page.html"],
        "heads": ["look", "run", item, "--view", "heads"],
        "cost": ["cost", "run", "--json"],
        "laws": ["doctor", case["family"]],
        "translate": ["translate", "run", item],
    }
    words = [["--plugin", name, *command] for command in plain.values()]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER], input=json.dumps(words), capture_output=True, text=True, cwd=folder,
        env=environment(),
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) == len(plain), done.stderr
    return name, folder, dict(zip(plain, map(json.loads, lines), strict=True))


def test_it_trains_and_is_scored(journey):
    _, folder, found = journey
    assert found["train"][0] == 0, found["train"]
    assert json.loads(found["train"][1])["steps"] == 4
    assert found["eval"][0] == 0 and json.loads(found["eval"][1])["examples"] > 0, found["eval"]
    assert (folder / "run/model.safetensors").is_file()


def test_its_verb_answers_in_json(journey):
    name, _, found = journey
    code, out, err = found["verb"]
    assert code == 0, err
    answer = json.loads(out)
    assert {"mixer": "image", "waves": "wave"}.get(name, "text") in answer
    assert ANSWERS & answer.keys()


def test_it_is_looked_into(journey):
    """Attention where there is some; a family without it is answered in one line."""
    name, folder, found = journey
    assert found["page"][0] == 0 and (folder / "page.html").stat().st_size > 10_000, found["page"]
    code, out, err = found["heads"]
    if name == "mixer":
        assert code == 2 and err.count("\n") == 1 and "has no attention" in err
    else:
        assert code == 0 and "head" in out


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_the_page_opens_in_a_browser(journey):
    from playwright.sync_api import sync_playwright

    _, folder, _ = journey
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        page, errors = browser.new_page(), []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto((folder / "page.html").as_uri())
        page.locator("main").first.wait_for()
        assert errors == [] and len(page.inner_text("body")) > 100
        browser.close()


def test_its_cost_is_counted_without_code_of_its_own(journey):
    _, _, found = journey
    cost = json.loads(found["cost"][1])
    assert cost["parameters"]["total"] > 1000 and cost["flops"]["forward"] > 0


def test_the_laws_run_on_it(journey):
    code, out, err = journey[2]["laws"]
    assert code == 0, out + err
    assert "every parameter learns" in out and "broken" not in out


def test_a_verb_that_it_does_not_have_is_one_line(journey):
    code, out, err = journey[2]["translate"]
    assert code == 2 and out == "" and err.count("\n") == 1 and "it does not translate" in err


@pytest.mark.parametrize(
    ("plugin", "recipe", "family", "reason"),
    [
        ("convencoder", "tag", "convencoder", "it is built for the task classify; use bert"),
        ("convencoder", "bert", "convencoder", "it has no pooler and task; use bert"),
        ("estimate", "estimate", "bert", "it is built for the task fill; use estimator"),
    ],
)
def test_a_family_of_another_task_is_one_line(tmp_path, plugin, recipe, family, reason):
    words = ["--plugin", plugin, "train", recipe, "--model", family, "--out", "run", *STEPS]
    done = subprocess.run(
        [sys.executable, "-m", "regard", *words], capture_output=True, text=True, cwd=tmp_path, env=environment()
    )
    assert done.returncode == 2 and not (tmp_path / "run").exists()
    assert f"{family} is no model for the data of {recipe}: {reason}" in done.stderr and "Traceback" not in done.stderr


def test_the_server_has_a_route_for_it(journey):
    import base64

    name, folder, _ = journey
    item = "the red one"
    if name == "mixer":
        item = "data:image/png;base64," + base64.b64encode((folder / "image.png").read_bytes()).decode()
    process = subprocess.Popen(
        [sys.executable, "-m", "regard", "--plugin", name, "serve", "run", "--port", "0", "--threads", "1"],
        stderr=subprocess.PIPE, text=True, cwd=folder, env=environment(),
    )  # fmt: skip
    try:
        lines = iter(process.stderr.readline, "")
        address = next(line.split()[1].rstrip("/") for line in lines if line.startswith("page "))
        sent = {"wave": [[0.5], [1.5], [-0.5]]} if name == "waves" else {"input": item}
        body = json.dumps({"model": "run"} | sent).encode()
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(f"{address}/v1/{CASES[name]['route']}", body, headers)) as answer:
            (row,) = json.load(answer)["data"]
        assert ANSWERS & row.keys()
    finally:
        process.terminate()
        process.wait(240)
        process.stderr.close()
