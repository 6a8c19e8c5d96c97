"""Negative sampling by matrix products against a loop over pairs, and its gradient against autograd's."""

import torch
import torch.nn.functional as F

from regard.data.sets.batches import IGNORE, Batch
from regard.models import SkipGram, SkipGramConfig
from regard.objectives.noise import neighbours, noise_contrast

WINDOW, CENTRES, NOISE = 3, 7, 5


def example(seed=0, vocab=11):
    torch.manual_seed(seed)
    model = SkipGram(SkipGramConfig(vocab_size=vocab, dim=4)).double()
    for table in (model.embedding, model.contexts):
        torch.nn.init.normal_(table.weight)
    ids = torch.randint(vocab, (2, CENTRES + 2 * WINDOW))
    reach = torch.randint(1, WINDOW + 1, (2, CENTRES))
    ids[0, :WINDOW], ids[1, -WINDOW - 2 :], reach[1, -2:] = -1, -1, IGNORE  # the text begins, and ends
    return model, Batch({"ids": ids, "noise": torch.randint(vocab, (2, NOISE))}, reach, (0, 1))


def by_pairs(model, batch, negatives):
    """The loss and the number of pairs, one pair after the other."""
    loss, count, x, c = torch.zeros((), dtype=torch.float64), 0, model.embedding.weight, model.contexts.weight
    for ids, reach, noise in zip(batch.inputs["ids"], batch.targets, batch.inputs["noise"], strict=True):
        for centre in range(CENTRES):
            for step in range(-WINDOW, WINDOW + 1):
                other = ids[WINDOW + centre + step]
                if step and abs(step) <= reach[centre] and other >= 0:
                    word = x[ids[WINDOW + centre]]
                    loss = loss - F.logsigmoid(word @ c[other])
                    loss = loss - negatives * F.logsigmoid(-(c[noise] @ word)).mean()
                    count += 1
    return loss, count


def test_the_loss_and_its_gradient_are_those_of_a_loop_over_pairs():
    model, batch = example()
    wanted, count = by_pairs(model, batch, 5)
    wanted.backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    loss, pairs = noise_contrast(model, batch, negatives=5)
    (3 * loss).backward()
    assert pairs == count > 20
    torch.testing.assert_close(loss, wanted)
    for parameter, grad in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, 3 * grad)
    with torch.no_grad():
        torch.testing.assert_close(noise_contrast(model, batch, negatives=5)[0], wanted)


def test_a_neighbour_is_another_word_within_reach():
    ids = torch.tensor([[-1, 4, 4, 9, -1]])
    near = neighbours(ids, torch.tensor([[1, 2, 1]]))
    assert near[0].int().tolist() == [[0, 0, 1, 0, 0], [0, 1, 0, 1, 0], [0, 0, 1, 0, 0]]
    assert not neighbours(ids, torch.full((1, 3), IGNORE)).any()
