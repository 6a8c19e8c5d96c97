import numpy as np
import pytest

from regard.data.batches import IdPair, Stream, bucket, pair_collate


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
