"""README.md as a newcomer follows it: all commands and Python in the order written, from a fresh state; with --slow
docs/*.md, too, and the commands that each recipe suggests after its training. Budgets are those of tests/brief.py."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from operator import attrgetter
from pathlib import Path

import pytest

from regard.registry import recipes
from tests.brief import DONE
from tests.document_files import provide
from tests.documents import DOCUMENTS, ROOT, Step, steps_of, words_of

SKIPPED = (
    "git clone",
    "make test",
    "make bench",
    "make check",
    "pip install",
    "python benchmarks/",
    "cd ",
    ". .venv",
    "docker",
)
"""Commands that install, or measure for hours."""
REPLACED = {"make demo": "regard train translate --out runs/demo"}
ELSEWHERE = ("stories260K.bin", " gpt2", "owner/name", "hf:", "example.org")
"""Files, names and hosts that are not on this machine."""
TRAINED = ("--against",)
"""Options that need a model which has learned something."""
READY = re.compile(r"page http://\S+")
PAGE_OPTIONS = {"--out", "--view", "--word", "--json", "--kind", "--layer", "--head", "--at", "--token", "--target"}


class Shell:
    """A folder in which commands are run one after the other, and blocks of Python as one session; a server stays until
    the next one starts."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.server, self.session, self.port = folder, None, None, free_port()
        (folder / "bin").mkdir(exist_ok=True)
        script = folder / "bin" / "regard"
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT / "tests" / "brief.py"} regard "$@"\n')
        script.chmod(0o755)
        self.env = os.environ | {
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}",
            "HOME": str(folder), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "REGARD_PLUGINS"):
            self.env.pop(name, None)

    def run(self, text: str, language: str = "console") -> str:
        """Run a command or a block of Python; return what it printed."""
        text = text.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}")
        if language == "python":
            (self.folder / "block.py").write_text(text, encoding="utf-8")
            return self.go_on("block.py")
        if any(opens_a_server(words) for words in words_of(text)):
            return self.serve(text)
        return self.finish(["bash", "-c", text])

    def go_on(self, block: str) -> str:
        """Run a file of Python in the session; the next one knows its names."""
        log = self.folder / "session.log"
        if self.session is None:
            with log.open("w") as file:
                self.session = subprocess.Popen(
                    [sys.executable, str(ROOT / "tests" / "brief.py"), "session"], cwd=self.folder, env=self.env,
                    text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file,
                )  # fmt: skip
        print(block, file=self.session.stdin, flush=True)
        lines = []
        while (line := self.session.stdout.readline()) not in ("", f"{DONE}\n"):
            lines.append(line)
        if not line:  # an exception has ended it
            self.close()
            raise AssertionError(log.read_text()[-2000:])
        return "".join(lines)

    def finish(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.env,
            text=True,
            capture_output=True,
            timeout=900,
            stdin=subprocess.DEVNULL,
        )
        findings = "doctor" in command[-1].split()  # which are an answer, too
        assert done.returncode in ((0, 1) if findings else (0,)) and "Traceback" not in done.stderr, done.stderr[-2000:]
        return done.stdout

    def serve(self, text: str) -> str:
        """Start a server, and wait until it can be reached."""
        self.stop()
        words = shlex.split(text, comments=True)
        if words[words.index("regard") + 1 :][:1] == ["serve"] or "serve" in words:
            words += ["--port", str(self.port)]
        log = self.folder / "server.log"
        with log.open("w") as file:
            self.server = subprocess.Popen(words, cwd=self.folder, env=self.env, stdout=file, stderr=file)
        end = time.monotonic() + 300
        while not READY.search(log.read_text()):
            assert self.server.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < end, f"no page after five minutes: {log.read_text()[-2000:]}"
            time.sleep(0.2)
        return log.read_text()

    def close(self) -> None:
        """End the session."""
        if self.session is not None:
            self.session.communicate(timeout=240)
            self.session = None

    def stop(self) -> None:
        """Stop the server."""
        if self.server is not None:
            self.server.send_signal(signal.SIGINT)
            self.server.wait(240)
            self.server = None


def opens_a_server(words: list[str]) -> bool:
    """Whether a command serves until it is stopped: `serve`, or `look` that opens a page."""
    words = words[2:] if words[:1] == ["--plugin"] else words
    return words[:1] == ["serve"] or words[:1] == ["look"] and not PAGE_OPTIONS & set(words)


def free_port() -> int:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return place.getsockname()[1]


def is_run(step: Step) -> bool:
    """Whether a step needs nothing but what is here."""
    return not step.text.startswith(SKIPPED) and not any(
        name in step.text.split("#")[0] for name in ELSEWHERE + TRAINED
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files that documents name, and the image model that CHECKPOINT stands for where images are given."""
    folder = tmp_path_factory.mktemp("documents")
    provide(folder)
    (folder / "tests").symlink_to(ROOT / "tests")
    Shell(folder).run("regard train vit --out made/vit --quiet")
    return folder


@pytest.fixture(scope="module")
def runs(files, tmp_path_factory):
    """The files, and the runs of README.md and docs/language-models.md that other documents use."""
    shutil.copytree(files, folder := tmp_path_factory.mktemp("runs") / "files", symlinks=True)
    shell = Shell(folder)
    for command in (
        "regard train translate --out runs/demo",
        "regard sample reviews --out reviews",
        "regard train classify --data.train reviews/train.csv --out runs/reviews",
        "regard train lm --out runs/docs",
    ):
        shell.run(command)
    return folder


@pytest.mark.timeout(1800)
def test_readme_runs_in_the_order_written(files, tmp_path):
    check_steps(ROOT / "README.md", files, tmp_path / "readme")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", DOCUMENTS[1:], ids=attrgetter("stem"))
def test_documents_run_in_the_order_written(path, runs, tmp_path):
    check_steps(path, runs, tmp_path / path.stem)


def check_steps(path: Path, start: Path, folder: Path) -> None:
    """Run the steps of a document in a copy of a folder; raise an error that lists those that fail."""
    shutil.copytree(start, folder, symlinks=True)
    shell, broken = Shell(folder), []
    provided = {str(run.relative_to(folder)) for run in folder.glob("runs/*")}
    for step in filter(is_run, steps_of(path)):
        text = next((new for old, new in REPLACED.items() if step.text.startswith(old)), step.text)
        if {"--data.images", "--data.coco", "--data.voc"} & set(text.split()):
            text = text.replace("CHECKPOINT", "made/vit")
        if own := re.match(r"# (\w+\.py)\n", text):  # a file of the user's
            (folder / own[1]).write_text(text, encoding="utf-8")
            continue
        made = set(re.findall(r"--out (runs/\S+)", text))
        for run in provided & made:  # the document makes it itself
            shutil.rmtree(folder / run)
            provided.remove(run)
        try:
            for run in set(re.findall(r"runs/[\w-]+", text)) - made:
                if (name := run.removeprefix("runs/")) in recipes and not (folder / run).exists():
                    shell.run(f"regard train {name} --no-score --quiet")  # its default place
            shell.run(text, step.language)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            broken.append(f"{step}: {step.text}\n{error}")
    shell.stop()
    shell.close()
    assert not broken, "\n\n".join(broken)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", list(recipes))
def test_what_a_recipe_suggests_runs(name, runs):
    shell = Shell(runs)
    shown = shell.run(f"regard train {name} --out next/{name}")
    commands = [line.strip() for line in shown.partition("Try next:\n")[2].splitlines() if line.strip()]
    verbs = {words[0] for command in commands for words in words_of(command)}
    assert {"serve", "look"} <= verbs, commands
    for command in commands:
        for out in re.findall(r"--out (runs/\S+)", command):
            shutil.rmtree(shell.folder / out, ignore_errors=True)
        shell.run(command)
    shell.stop()
