import itertools

import numpy as np
import pytest
import torch

from regard.data.sets.batches import (
    IGNORE,
    Batch,
    IdPair,
    Stream,
    TextStream,
    bucket,
    pair_collate,
    text_batches,
    window_batch,
)


def some_pairs(count=211, seed=3):
    rng = np.random.default_rng(seed)
    sources = [rng.integers(3, 29, rng.integers(1, 23)).tolist() for _ in range(count)]
    targets = [rng.integers(3, 29, rng.integers(1, 19)).tolist() for _ in range(count)]
    return [IdPair(s, t, n) for n, (s, t) in enumerate(zip(sources, targets, strict=True))]


def stream_of(pairs, seed):
    return Stream(lambda epoch: pairs, pair_collate(bos=1, eos=2, pad_id=0), 113, seed=seed)


def test_every_example_once_and_no_batch_too_large():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 41, (307, 2))
    groups = bucket(lengths, 101, np.random.default_rng(1))
    assert sorted(np.concatenate(groups).tolist()) == list(range(307))
    for group in groups:
        assert len(group) == 1 or lengths[group].max() * len(group) <= 101


def test_buckets_waste_little():
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 41, (4001, 1)).repeat(2, axis=1)
    groups = bucket(lengths, 1024, np.random.default_rng(1))
    padded = sum(lengths[group].max() * len(group) for group in groups)
    assert lengths[:, 0].sum() / padded > 0.95


def test_a_sentence_longer_than_the_budget_stands_alone():
    assert [len(group) for group in bucket(np.array([[500, 3], [2, 2], [2, 2]]), 10, None)] == [2, 1]


@pytest.mark.parametrize("skip", [0, 1, 7, 53])
def test_resuming_gives_the_same_batches(skip):
    pairs = some_pairs()
    stream = stream_of(pairs, 5)
    whole = [next_ for next_, _ in zip(stream.batches(), range(70), strict=False)]
    epoch, index, _ = whole[skip - 1] if skip else (0, 0, None)
    again = [next_ for next_, _ in zip(stream.batches(epoch, index), range(70 - skip), strict=False)]
    assert [(e, i, b.examples) for e, i, b in again] == [(e, i, b.examples) for e, i, b in whole[skip:]]
    assert len({e for e, _, _ in whole}) > 1, "the test must cross an epoch"


def test_epochs_are_shuffled_differently_and_seeds_matter():
    pairs = some_pairs()

    def order(seed):
        stream = stream_of(pairs, seed)
        return [batch.examples for (_, _, batch), _ in zip(stream.batches(), range(60), strict=False)]

    assert order(1) == order(1) != order(2)
    first = order(1)
    assert first[:20] != first[-20:]


# ---- one long text ----------------------------------------------------------------------------------------------


def text_stream(length=211, context=7, rows=3, seed=5):
    return TextStream(np.arange(100, 100 + length), context, rows, seed)


def test_a_text_is_read_once_an_epoch_and_every_position_says_the_next_token():
    stream, epochs = text_stream(), {0: [], 1: []}
    for epoch, _, batch in stream.batches():
        if epoch > 1:
            break
        assert torch.equal(batch.targets, batch.inputs["ids"] + 1), "each token of this text is one more than the last"
        epochs[epoch] += batch.inputs["ids"].flatten().tolist()
    for seen in epochs.values():
        assert len(seen) == len(set(seen)) and 211 - 2 * 7 < len(seen) < 211
    assert min(epochs[0]) % 7 != min(epochs[1]) % 7, "each epoch cuts at other places"


@pytest.mark.parametrize("skip", [0, 1, 9, 25])
def test_a_text_resumes_to_the_same_batches(skip):
    whole = list(itertools.islice(text_stream().batches(), 40))
    epoch, index, _ = whole[skip - 1] if skip else (0, 0, None)
    again = list(itertools.islice(text_stream().batches(epoch, index), 40 - skip))
    assert [(e, i, b.examples) for e, i, b in again] == [(e, i, b.examples) for e, i, b in whole[skip:]]
    assert whole[-1][0] > 1, "the test must cross epochs"


def test_a_text_shorter_than_a_window_is_still_a_batch():
    _, _, batch = next(text_stream(length=4).batches())
    assert batch.inputs["ids"].shape == (1, 7)
    assert batch.targets[0].tolist() == [101, 102, 103, *[IGNORE] * 4] and batch.tokens == 3


@pytest.mark.parametrize("length", [2, 7, 8, 9, 50])
def test_validation_says_every_token_but_the_first_exactly_once(length):
    batches = list(text_batches(np.arange(length), 7, 2))
    said = torch.cat([batch.targets[batch.targets != IGNORE] for batch in batches])
    assert said.tolist() == list(range(1, length)) and all(len(batch.targets) <= 2 for batch in batches)


def test_window_batch_by_hand():
    batch = window_batch(np.array([9, 8, 7, 6, 5]), np.array([0, 3]), 3)
    assert batch.inputs["ids"].tolist() == [[9, 8, 7], [6, 5, 5]]
    assert batch.targets.tolist() == [[8, 7, 6], [5, IGNORE, IGNORE]] and batch.examples == (0, 3)


def test_tokens_are_those_written_or_else_those_read():
    ids, lengths = torch.ones(2, 5, dtype=torch.long), torch.tensor([5, 3])
    assert Batch({"ids": ids, "lengths": lengths}, torch.tensor([1, 0]), ()).tokens == 8
    assert Batch({"ids": ids}, torch.tensor([[1, IGNORE], [2, 3]]), ()).tokens == 3
    collate = pair_collate(bos=1, eos=2, pad_id=0)
    assert collate([IdPair([5, 6, 7], [8]), IdPair([5], [8, 9])]).tokens == 5


def test_count_is_the_number_of_batches_of_an_epoch():
    stream = stream_of(some_pairs(), 5)
    assert stream.count() == sum(1 for _ in itertools.takewhile(lambda item: item[0] == 0, stream.batches()))


def test_once_gives_every_example_in_order_of_length():
    numbers = [n for batch in stream_of(some_pairs(), 5).once(some_pairs()) for n in batch.examples]
    assert sorted(numbers) == list(range(211))
