"""Models leave the memory when others need it: the one used the longest ago, and never one that answers."""

import shutil
import weakref
from concurrent.futures import ThreadPoolExecutor

import click
import pytest

from regard.cli.serve import Size
from regard.serve.model_store import ServedModel
from regard.serve.settings import Settings
from tests.cli.calling import fails
from tests.serve.running import events_of, eventually, serving, serving_here
from tests.serve.talking import first_event, read_all, refused

CACHE = 2**20
"""Bytes of each model's key/value cache: more than the weights."""


def asked(server, model):
    answer = server.post("/v1/completions", model=model, prompt="The cat", max_tokens=5, temperature=0)
    assert answer.status == 200, answer.body
    return answer.json["choices"]


def loaded(server):
    return [one["id"] for one in server.get("/v1/models").json["data"] if one["loaded"]]


@pytest.fixture(scope="module")
def size(made):
    """The memory of one model."""
    with serving_here({"a": made["gpt"]}, memory=CACHE) as server:
        asked(server, "a")
        (record,) = server.get("/v1/models").json["data"]
    assert CACHE < record["memory"] < 2 * CACHE
    return record["memory"]


def test_the_one_used_the_longest_ago_leaves(made, size):
    models = {name: made["gpt"] for name in "abc"}
    with serving_here(models, memory=CACHE, models_memory=2 * size) as server:
        alone = asked(server, "a")
        model = weakref.ref(server.store.models["a"].task.model)
        asked(server, "b")
        asked(server, "a")
        assert loaded(server) == ["a", "b"]
        asked(server, "c")
        assert loaded(server) == ["a", "c"]
        assert asked(server, "b") == alone and loaded(server) == ["b", "c"]
        assert model() is None, "its memory is free"
        assert asked(server, "a") == alone and loaded(server) == ["a", "b"]
        figures = server.figures()
        assert [figures[f"regard_model_evictions_total[{name}]"] for name in "abc"] == [1, 1, 1]
        assert [figures[f"regard_model_memory_bytes[{name}]"] for name in "abc"] == [size, size, 0]
        assert [figures[f"regard_model_loaded[{name}]"] for name in "abc"] == [1, 1, 0]
        assert [one["evictions"] for one in server.get("/v1/models").json["data"]] == [1, 1, 1]


def test_only_the_weights_that_are_read_are_counted(made, tmp_path):
    shutil.copytree(made["gpt"], tmp_path / "both")
    shutil.copy(tmp_path / "both" / "model.safetensors", tmp_path / "both" / "consolidated.safetensors")
    settings = Settings(memory=CACHE)
    once, twice = (ServedModel("a", str(path), settings).least_memory for path in (made["gpt"], tmp_path / "both"))
    assert once == twice > CACHE
    (tmp_path / "both" / "model.safetensors").unlink()
    assert ServedModel("a", str(tmp_path / "both"), settings).least_memory == CACHE, "loading says what is missing"


def text_of(raw):
    """The text of a stream, which must have come to its proper end."""
    events = events_of(b"".join(line for line in raw.split(b"\r\n") if line.startswith(b"data:")))
    assert events[-1]["choices"][0]["finish_reason"] == "length"
    return "".join(event["choices"][0]["text"] for event in events)


def test_a_model_that_answers_does_not_leave(made, size):
    """One that is needed waits; the stream goes on to its end; a new request for it comes after the other's turn."""
    models = {"endless": made["endless"], "other": made["gpt"]}
    long = dict(model="endless", prompt="a", max_tokens=30, temperature=0, stream=True)
    with (
        serving_here(models, memory=CACHE, models_memory=size + CACHE // 2) as server,
        ThreadPoolExecutor(2) as clients,
    ):
        alone = text_of(server.post("/v1/completions", **long).body)
        endless = server.store.models["endless"]
        with server.held("endless"):
            connection = server.send("/v1/completions", **long)
            received = first_event(connection)
            other = clients.submit(asked, server, "other")
            eventually(lambda: endless.leaving)
            again = clients.submit(server.post, "/v1/completions", **long)
            assert loaded(server) == ["endless"] and not other.done() and not again.done()
            assert server.get("/health").json["models"]["other"] == "loading"
        with connection:
            received += read_all(connection)
        assert text_of(received) == alone
        assert other.result() and text_of(again.result().body) == alone
        assert [one.evictions for one in server.store] == [1, 1]
        eventually(lambda: [one.users for one in server.store] == [0, 0])


def test_a_client_that_leaves_holds_no_model(made, size):
    models = {"endless": made["endless"], "other": made["gpt"]}
    with serving_here(models, memory=CACHE, models_memory=size + CACHE // 2) as server:
        with server.send("/v1/completions", model="endless", prompt="a", max_tokens=2000, stream=True) as connection:
            first_event(connection)
        asked(server, "other")
        assert loaded(server) == ["other"]


def test_a_model_larger_than_the_limit_is_refused(made, size):
    models = {"gpt": made["gpt"], "embed": made["embed"]}
    with serving_here(models, memory=CACHE, models_memory=CACHE) as server:
        message = refused(server.post("/v1/completions", model="gpt", prompt="a"), 503)
        assert message.startswith("model 'gpt' needs 1.") and "MB, --models-memory is 1.05 MB; " in message
        assert server.post("/v1/embeddings", model="embed", input="a").status == 200, "others are served"
        assert server.get("/v1/models/gpt").json["error"] == message
        assert server.get("/health").json["models"] == {"gpt": "failed", "embed": "loaded"}


def test_looks_leave_with_their_model(made, size):
    with serving_here({name: made["gpt"] for name in "ab"}, memory=CACHE, models_memory=size) as server:
        look = server.post("/v1/look", model="a", input="The cat").json["look"]
        assert server.post("/v1/look/layer", model="a", look=look, layer=0).status == 200
        model = weakref.ref(server.store.models["a"].task.model)
        asked(server, "b")
        assert model() is None
        assert server.post("/v1/look/layer", model="a", look=look, layer=0).error["code"] == "look_gone"


def test_without_a_limit_all_models_stay(made):
    with serving_here({name: made["gpt"] for name in "abc"}) as server:
        for name in "abc":
            asked(server, name)
        assert loaded(server) == ["a", "b", "c"]


# ---- the option -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "size"), [("4GB", 4 * 10**9), ("1.5 GiB", 3 * 2**29), ("500mb", 5 * 10**8), ("70", 70), ("1TB", 10**12)]
)
def test_sizes(word, size):
    assert Size().convert(word, None, None) == size


def test_what_is_no_size(made, capsys):
    for word in ("", "four", "4 QB", "-1GB", "nan", "1e9", "4GBs"):
        with pytest.raises(click.BadParameter, match="write 4GB or 500MB"):
            Size().convert(word, None, None)
    assert "must be above 0" in fails(capsys, "serve", made["gpt"], "--models-memory", "0GB")
    with pytest.raises(ValueError, match="models_memory"):
        Settings(models_memory=0)


def test_the_option(made, capsys):
    models = {"a": made["gpt"], "b": made["gpt"]}
    with serving(models, "--models-memory", "1.2MB", "--memory-gb", 0.0009) as server:
        assert asked(server, "a") == asked(server, "b") and loaded(server) == ["b"]
        assert "evicted a for b" in server.log
    words = [f"{name}={path}" for name, path in models.items()]
    small = ("--models-memory", "1.2MB", "--memory-gb", 0.0009, "--preload", "--port", 0)
    assert "holds not all models at once" in fails(capsys, "serve", *words, *small)
