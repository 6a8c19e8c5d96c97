"""Ray's actors answer as one process does, whatever becomes of them: pip install 'regard[ray]' for these tests."""

import json
import os
import signal
from functools import partial
from pathlib import Path

import pytest

from regard.tasks.actors import answers_of_actors, shares
from regard.tasks.bulk import Part
from tests.cli.calling import call, fails
from tests.recipes.tiny import shared

pytestmark = pytest.mark.filterwarnings("ignore")  # of Ray itself
TEXTS = [f"The {colour} {animal} sees {number} cats." for number in range(20) for colour in ("red", "blue")
         for animal in ("dog", "bird")]  # fmt: skip


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return shared(tmp_path_factory)


@pytest.fixture
def ray(monkeypatch):
    found = pytest.importorskip("ray", reason="pip install 'regard[ray]'")
    monkeypatch.setenv("RAY_worker_niceness", "0")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return found


def test_each_actor_takes_a_gpu_or_a_cpu():
    cluster = {"CPU": 8.0, "GPU": 2.0}
    assert shares(cluster, "cpu", None) == ({"num_cpus": 1}, 8) and shares(cluster, "cpu", 3) == ({"num_cpus": 1}, 3)
    assert shares(cluster, "auto", None) == shares(cluster, "cuda", 2) == ({"num_gpus": 1}, 2)
    assert shares({"CPU": 4.0}, "auto", None) == ({"num_cpus": 1}, 4)
    with pytest.raises(ValueError, match="--actors 3: each takes a GPU, and the cluster has 2; use --actors 2"):
        shares(cluster, "cuda:0", 3)
    with pytest.raises(ValueError, match="each takes a GPU, and the cluster has 0; add machines, or use --device cpu"):
        shares({"CPU": 4.0}, "cuda", None)


@pytest.mark.usefixtures("ray")
def test_actors_write_the_file_that_one_process_writes(tiny, tmp_path, capsys):
    for number in range(4):
        rows = [
            json.dumps({"id": 20 * number + i, "text": text}) + "\n" for i, text in enumerate(TEXTS[20 * number :][:20])
        ]
        (tmp_path / f"{number}.jsonl").write_text("".join(rows))
    files = ("--input", tmp_path / "?.jsonl")
    engine = ("--engine", "ray", "--actors", 2)
    few = ("--max-new-tokens", 4, "--temperature", 1.0, "--seed", 3)
    for verb, run, out, words in (
        ("classify", "classify", "labels.jsonl", ()), ("generate", "lm", "texts.jsonl", few),
        ("embed", "embed", "v.npy", ()),
    ):  # fmt: skip
        (tmp_path / "ray").mkdir(exist_ok=True)
        call(verb, tiny.run(run), *files, "--out", tmp_path / out, *words)
        call(verb, tiny.run(run), *files, "--out", tmp_path / "ray" / out, *words, *engine)
        assert (tmp_path / out).read_bytes() == (tmp_path / "ray" / out).read_bytes(), verb
    capsys.readouterr()
    line = fails(
        capsys, "classify", tiny.run("classify"), *files, "--out", tmp_path / "o.txt", *engine[:2], "--actors", 99
    )
    assert "--actors 99: each takes a CPU, and the cluster has" in line


def length_or_death(task, method, texts, options, first):
    """The length of each text; the first process that comes to the last text is killed."""
    marker = Path(task)
    if TEXTS[-1] in texts and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if "" in texts:
        raise ValueError(f"text {texts.index('') + 1} is empty")
    return [({"length": len(text)}, str(len(text))) for text in texts]


@pytest.mark.usefixtures("ray")
def test_an_actor_that_is_killed_loses_nothing_and_a_mistake_names_its_text(tmp_path):
    parts = [Part(list(range(n, n + 8)), TEXTS[n : n + 8], {}, n) for n in range(0, len(TEXTS), 8)]
    work = partial(answers_of_actors, partial(str, tmp_path / "killed"), work=length_or_death, method="", options={},
                   device="cpu", count=2)  # fmt: skip
    answers = sorted(work(parts))
    assert (tmp_path / "killed").exists()
    assert answers == [[index, {"length": len(text)}, str(len(text))] for index, text in enumerate(TEXTS)]
    with pytest.raises(ValueError, match=r"^text 18 is empty$"):
        list(work([parts[0], Part([16, 17], ["a", ""], {}, 16)]))
    assert list(work([])) == []


@pytest.mark.usefixtures("ray")
def test_a_model_that_another_machine_does_not_have_is_one_line(tmp_path):
    def load():
        raise FileNotFoundError("no run")

    part = Part([0], ["a"], {}, 0)
    with pytest.raises(ValueError, match=r"^no run$"):
        list(answers_of_actors(load, [part], length_or_death, "", {}, device="cpu", count=1))
