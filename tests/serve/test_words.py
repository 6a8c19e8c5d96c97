"""Models of words, by a table or by their characters: texts that their configs do not limit have a limit."""

import pytest
import torch

from regard.hub import save_model
from regard.models import build, preset
from regard.nn import spelling
from regard.nn.spelling import SpelledWords
from regard.tasks import load
from regard.tasks.word_vectors import LONGEST, MOST_TERMS
from regard.tokens.words import word_tokenizer
from tests.serve.running import serving_here
from tests.serve.talking import refused

SPELLED = dict(dim=8, hidden_dim=12, vocab_size=262, filters=(4, 4), depth=1, max_len=16, dropout=0.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, tokenizer = tmp_path_factory.mktemp("words"), word_tokenizer(["a b c the cat sat"], vocab_size=20)
    torch.manual_seed(0)
    save_model(build("skipgram", preset("skipgram", "small", vocab_size=len(tokenizer), dim=12)), folder / "table")
    tokenizer.save(folder / "table")
    save_model(build("bilstm", preset("bilstm", "tiny", **SPELLED)), folder / "spelled")
    return folder


@pytest.fixture(scope="module")
def server(folder):
    with serving_here({name: folder / name for name in ("table", "spelled")}) as server:
        yield server


def embedding(server, model, text, **fields):
    answer = server.post("/v1/embeddings", model=model, input=text, **fields)
    assert answer.status == 200, answer.body
    return answer.json["data"][0]["embedding"], answer.json["usage"]["prompt_tokens"]


def test_a_mean_of_millions_of_words_is_refused(server):
    for text in ("a b " * 900_000, "a b " * (LONGEST // 2 + 1)):
        assert f"context {'of' if len(text) > 3e6 else 'is'}" in refused(
            server.post("/v1/embeddings", model="table", input=text)
        )
    vector, count = embedding(server, "table", "a b " * (LONGEST // 2 + 1), truncate=True)
    assert count == LONGEST and vector == pytest.approx(embedding(server, "table", "a b")[0], abs=1e-5)


def test_a_sum_has_few_words_and_few_neighbours(server):
    def ask(text, **fields):
        return server.post("/v1/nearest", model="table", input=[text], **fields)

    assert ask(" + ".join(["a"] * MOST_TERMS)).status == 200
    assert f"a sum of more than {MOST_TERMS} words" in refused(ask(" + ".join(["a"] * (MOST_TERMS + 1))))
    for count in (-5, 0, 10**9):
        assert "count should be" in refused(ask("a", count=count))


def test_spelled_words_are_served(server, folder):
    words = "the cat sat on a mat"
    vector, count = embedding(server, "spelled", words)
    assert vector == pytest.approx(load(folder / "spelled").embed(words).tolist(), abs=1e-5) and count == 8
    long = "cat " * 30
    assert "text 1 has 32 tokens, the context is 16" in refused(
        server.post("/v1/embeddings", model="spelled", input=long)
    )
    assert embedding(server, "spelled", long, truncate=True)[1] == 16
    assert "far more than the context" in refused(
        server.post("/v1/embeddings", model="spelled", input="cat " * 100_000)
    )
    assert "no vocabulary of tokens" in refused(server.post("/v1/tokenize", model="spelled", text="a"))


@torch.no_grad()
def test_many_words_are_spelled_a_few_at_a_time(monkeypatch):
    words = SpelledWords(262, 6, 4, (3, 2), 1)
    ids = torch.randint(262, (3, 7, 9))
    whole = words(ids)
    sizes, real = [], words.filtered
    monkeypatch.setattr(words, "filtered", lambda part: sizes.append(len(part)) or real(part))
    monkeypatch.setattr(spelling, "AT_ONCE", 8)
    torch.testing.assert_close(words(ids), whole)
    assert sizes == [8, 8, 5]


def test_a_word_has_few_characters():
    """No weight has this size: a config could ask for gigabytes a word."""
    with pytest.raises(ValueError, match="word_length=1001 must be at most 1000"):
        preset("bilstm", "tiny", word_length=1001)
