"""A real `regard serve` with tiny models, and Chromium to look at its page. Skipped where there is no Chromium."""

import json
import shutil
import subprocess
import sys
from functools import cached_property
from urllib.request import urlopen

import pytest
import torch

from regard.inside.page import Page
from regard.recipes import fit
from regard.tasks import load
from tests.browser.seen import SEE, TEXT, make_seen, words_for
from tests.recipes.tiny import FACTS, plan, shared
from tests.serve.running import serving_here

CHROMIUM = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
"""The shell is the same engine without a window around it, and a new visitor there costs a third."""
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--use-fake-ui-for-media-stream",
    "--use-fake-device-for-media-stream",
)  # fmt: skip
HTML = "<img src=x onerror=alert(1)>"
KEY = "it's a $ecret"
PATIENCE = 120_000
"""Milliseconds, for machines that are busy."""
SEEDED = """localStorage.getItem("regard.settings.chat")
    ?? localStorage.setItem("regard.settings.chat", JSON.stringify({ seed: "1" }))"""
"""An untrained model's first token may be its last: with a seed it always is, or never."""
UNASKED = """; localStorage.setItem("regard.examples", "false")"""
"""Nothing runs by itself: a test asks for what it looks at."""


def pytest_collection_modifyitems(items):
    for item in items:
        if CHROMIUM is None and "tests/browser" in item.path.as_posix():
            item.add_marker(pytest.mark.skip(reason="no Chromium"))


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """A model for every view, by the name that it is served under."""
    tiny, folder = shared(tmp_path_factory), tmp_path_factory.mktemp("browser")

    def made(name, recipe, **fields):
        fit(plan(recipe, {key.replace("__", "."): value for key, value in fields.items()}), folder / name, quiet=True)
        return folder / name

    (folder / "html.txt").write_text(f"{HTML}\n" * 400, encoding="utf-8")
    (folder / "pairs.tsv").write_text("".join(f"the {c} {a}\t{a} {c} the\n" for c, a in FACTS), encoding="utf-8")
    lines = [f"the {c} {a} is here\t{HTML if c == 'red' else c}\n" for c, a in FACTS]
    (folder / "labels.tsv").write_text("".join(lines), encoding="utf-8")
    # The same weights told to have a long memory: it writes until somebody stops it.
    shutil.copytree(tiny.run("gru"), folder / "endless")
    config = json.loads((folder / "endless/config.json").read_text())
    (folder / "endless/config.json").write_text(json.dumps(config | {"max_len": 100_000}))
    return {
        "writer": made("writer", "lm", data__text=[str(folder / "html.txt")], train__steps=60),
        "endless": folder / "endless",
        "chatter": tiny.run("instruct"),
        "translator": made("translator", "translate", data__pairs=str(folder / "pairs.tsv"), train__steps=30),
        "judge": made("judge", "classify", data__train=str(folder / "labels.tsv")),
        "it's <b>odd": tiny.run("embed"),
    }


class Server:
    """`regard serve` in a process of its own, on a free port."""

    def __init__(self, runs, *options):
        models = [f"{name}={path}" for name, path in runs.items()]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "regard.cli", "serve", *models, "--port", "0", "--threads", "1", *options],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    @cached_property
    def address(self):
        """Where it is; known when it is ready."""
        lines = iter(self.process.stderr.readline, "")
        return next(line.split()[1].rstrip("/") for line in lines if line.startswith("page "))

    def metric(self, name, model):
        """A figure of /metrics."""
        with urlopen(f"{self.address}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f'{name}{{model="{model}"}}'))

    def end(self):
        self.process.terminate()
        self.process.wait(240)
        self.process.stderr.close()


@pytest.fixture(scope="session")
def servers(runs):
    """One for everybody and one with a key; they start side by side."""
    servers = [Server(runs), Server({"judge": runs["judge"]}, "--api-key", KEY)]
    yield servers
    for server in servers:
        server.end()


@pytest.fixture(scope="session")
def server(servers):
    return servers[0]


@pytest.fixture(scope="session")
def locked(servers):
    return servers[1]


@pytest.fixture(scope="module")
def browser():
    """Of one file: as long as it is open, an event loop runs, and other tests have their own."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


class Watched:
    """A page, and everything that went wrong on it."""

    def __init__(self, context, address):
        self.page, self.address, self.requests, self.errors = context.new_page(), address, [], []
        self.page.set_default_timeout(PATIENCE)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))

    def open(self, hash=""):
        self.page.goto(f"{self.address}/{hash}")
        return self.page


@pytest.fixture
def visit(browser, server):
    """Opens the page for a visitor with clean storage; at the end nothing may have failed, or left the origin."""
    contexts, watched = [], []

    def visit(hash="", *, address=server.address, examples=False, **how):
        contexts.append(browser.new_context(**({"viewport": {"width": 1100, "height": 800}} | how)))
        contexts[-1].add_init_script(SEEDED if examples else SEEDED + UNASKED)
        watched.append(Watched(contexts[-1], address))
        return watched[-1].open(hash)

    visit.watched = watched
    yield visit
    for context in contexts:
        context.close()
    for one in watched:
        assert one.errors == []
        assert {url for url in one.requests if not url.removeprefix("blob:").startswith(one.address + "/")} == set()


@pytest.fixture(scope="session")
def seen(tmp_path_factory):
    """Models to look into, by name, and a picture."""
    torch.manual_seed(5)
    return make_seen(tmp_path_factory.mktemp("seen"))


@pytest.fixture(scope="session")
def looked(seen):
    """A server of these models; a module whose `server` it is looks at them."""
    with serving_here(seen[0]) as one:
        yield one


@pytest.fixture(scope="session")
def page_of(seen):
    """What a look at a model is in Python."""
    kept = {}

    def page_of(name, *words, **how):
        model = kept.setdefault(name, load(seen[0][name]))
        return Page(model, *(words or words_for(name, seen[1])), **how)

    return page_of


@pytest.fixture
def look(visit, seen):
    """Looks at the input of a model on the page, and waits until the chosen head is drawn, if there is one."""

    def look(name, text=TEXT, heads=True):
        page = visit(f"#/look?model={name}", viewport={"width": 1300, "height": 1000})
        if name in SEE:
            page.get_by_label("Image", exact=True).set_input_files(seen[1])
        else:
            page.get_by_label("Text", exact=True).fill(text)
            page.get_by_role("button", name="Look", exact=True).click()
        if heads:
            drawn(page)
        return page

    return look


def drawn(page, layer=None, head=0):
    which = f'[data-drawn="{layer} {head}"]' if layer is not None else "[data-drawn]"
    page.locator(f'[data-matrix="base"]{which}').wait_for(state="attached")


@pytest.fixture
def offline(browser, page_of, tmp_path):
    """The same page as a file, without a network; at the end nothing may have been asked for."""
    contexts, watched = [], []

    def offline(name, *words, heads=True):
        path = tmp_path / f"{name}.html"
        page_of(name, *words).save(path)
        contexts.append(browser.new_context(offline=True, viewport={"width": 1300, "height": 1000}))
        watched.append(Watched(contexts[-1], path.as_uri()))
        watched[-1].page.goto(path.as_uri())
        if heads:
            drawn(watched[-1].page)
        return watched[-1].page, path

    yield offline
    for context in contexts:
        context.close()
    for one in watched:
        assert one.errors == []
        assert {url for url in one.requests if not url.startswith((one.address, "data:"))} == set()
