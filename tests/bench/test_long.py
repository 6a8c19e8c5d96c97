"""Long texts: a memory as long as the text, or as a window, changes nothing; positions have their losses."""

import json

import pytest
import torch

from regard.bench.long import LongConfig, by_position, open_model
from regard.models import GPT, GPTConfig
from regard.nn.cache import RecentKeyValues
from tests.cli.calling import call, fails

SIZES = dict(vocab_size=13, dim=16, heads=2, depth=2, ffn_dim=16, dropout=0.0, max_len=64)


def through(model, ids, segment, memory=None):
    """The logits of a text that is read in segments."""
    cache = model.new_cache(ids.shape[1])
    if memory is not None:
        cache.own = [RecentKeyValues(memory) for _ in cache.own]
    with torch.no_grad():
        parts = [model.head(model.features(part, cache=cache)) for part in ids.split(segment, dim=1)]
    assert cache.length == ids.shape[1]
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("position", ["rotary", "alibi", "none"])
def test_a_memory_as_long_as_the_text_is_the_whole_text(position):
    torch.manual_seed(0)
    model = GPT(GPTConfig(**SIZES, position=position)).double().eval()
    ids = torch.randint(13, (2, 41))
    torch.testing.assert_close(through(model, ids, 7, 64), model(ids))
    short = through(model, ids, 7, 5)
    torch.testing.assert_close(short[:, :7], model(ids)[:, :7])
    assert not torch.allclose(short[:, -1], model(ids)[:, -1])


def test_a_window_needs_no_more_memory_than_its_radius():
    torch.manual_seed(0)
    model = GPT(GPTConfig(**SIZES, kernel="window:radius=6")).double().eval()
    ids = torch.randint(13, (1, 53))
    torch.testing.assert_close(through(model, ids, 9, 6), model(ids))
    cache = [RecentKeyValues(6)]
    assert cache[0].constant and cache[0].length == 0


def test_rows_of_a_memory_follow_beams():
    memory = RecentKeyValues(4)
    k = torch.randn(2, 1, 3, 2)
    memory.attend(lambda q, k, v, **options: (v, None), k, k, k)
    memory.select(torch.tensor([1, 1, 0]))
    torch.testing.assert_close(memory.k, k[[1, 1, 0]])


def test_losses_by_position_and_one_line_of_figures(capsys):
    rows = by_position(torch.arange(1500.0))
    assert [(row["from"], row["to"]) for row in rows] == [(0, 256), (256, 1024), (1024, 1500)]
    assert rows[0]["loss"] == 127.5
    call(
        "bench",
        "long",
        "--models",
        "gpt:depth=1,lstm",
        "--tokens",
        90,
        "--segment",
        32,
        "--memory",
        16,
        "--quiet",
        "--json",
    )
    found = json.loads(capsys.readouterr().out)["rows"]
    assert [row["cache"] for row in found] == ["segments alone", "last 16", "all", "all"]
    assert all(row["tokens"] == 90 and row["seconds"] > 0 for row in found)


def test_mistakes_are_one_line(capsys):
    with pytest.raises(ValueError, match="nothing to measure"):
        LongConfig(models=())
    assert "bert is no language model" in fails(capsys, "bench", "long", "--models", "bert", "--quiet")
    with pytest.raises(ValueError, match="unknown model"):
        open_model(LongConfig(models=("gtp",)), "gtp")
