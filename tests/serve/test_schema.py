"""The OpenAPI description against the server itself, by schemathesis."""

import subprocess
import sys
from pathlib import Path

import pytest

from regard.hub import save_model
from tests.inside.seeing import vit
from tests.serve.running import PATIENCE, serving

KEY = "secret"
LEFT_OUT = [
    # A body that the description allows can still be refused: texts longer than the model's context, more texts times
    # n than one request may ask for, sampling together with beams, as many second texts as first ones. No description
    # can say so. All others are refused as described (negative_data_rejection), and answers are as described.
    "positive_data_acceptance",
]


@pytest.fixture(scope="module")
def server(made, tmp_path_factory):
    """A server with a key and models of every kind, but none whose texts take long."""
    short = {name: path for name, path in made.items() if name != "endless"}
    save_model(vit(labels=("a", "b")), vit_path := tmp_path_factory.mktemp("vit"))
    with serving(short | {"vit": vit_path}, "--api-key", KEY) as process:
        process.headers = {"Authorization": f"Bearer {KEY}"}
        yield process


@pytest.mark.parametrize("count", [8, pytest.param(150, marks=pytest.mark.slow)])
@pytest.mark.timeout(1800)
def test_the_server_is_as_described(server, count, tmp_path):
    """All phases (examples, edges of every field, random bodies, sequences of calls) and all other default checks."""
    command = Path(sys.executable).with_name("schemathesis")
    words = ["run", server.address + "/openapi.json", "--header", f"Authorization: Bearer {KEY}", "--no-color"]
    words += ["--request-timeout", str(PATIENCE), "--suppress-health-check", "all"]  # for machines that are busy
    words += ["--max-examples", str(count), "--seed", "1", "--exclude-checks", ",".join(LEFT_OUT)]
    done = subprocess.run([command, *words], capture_output=True, text=True, timeout=1800, cwd=tmp_path)
    summary = done.stdout[done.stdout.find("= FAILURES =") :][:6000] + done.stdout[-1500:]
    assert done.returncode == 0, summary + done.stderr
    assert "Tested: 15" in done.stdout, summary
    server.wait_until_idle("gpt", "chat", "t5", "translate")


def test_names_and_neutral_fields_are_described(server):
    description = server.get("/openapi.json").json

    def fields(path):
        body = description["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        return description["components"]["schemas"][body.rpartition("/")[2]]["properties"]

    assert fields("/v1/completions")["model"]["enum"] == ["gpt", "t5", "chat"]
    assert fields("/v1/translations")["model"]["enum"] == ["translate", "t5"]
    assert fields("/v1/embeddings")["model"]["enum"] == ["embed", "classify", "qa"]
    assert len(fields("/v1/tokenize")["model"]["enum"]) == 7
    assert fields("/v1/images")["model"]["enum"] == ["vit"] and fields("/v1/answer")["model"]["enum"] == ["qa"]
    assert fields("/v1/completions")["best_of"]["enum"] == [None, 1]
    assert fields("/v1/chat/completions")["tools"]["enum"] == [None, [], {}, False]
