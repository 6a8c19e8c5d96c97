"""Losses of encoders against those that `transformers` computes with the same weights."""

import pytest
import torch
import torch.nn.functional as F

from regard.data.sets.batches import IGNORE, Batch
from regard.objectives.labels import TEMPERATURE, similarity, span, text_labels, token_labels
from regard.objectives.masked import masked_tokens
from tests.parity.peers import VOCAB, batch, encoder, saved

LABELS = {"id2label": {0: "a", 1: "b", 2: "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}


@pytest.fixture(autouse=True, scope="module")
def quiet():
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def inputs(seed=5):
    """What both take: padded rows in two segments."""
    ids, lengths, attention = batch(seed=seed)
    types = (torch.arange(ids.shape[1]) > lengths[:, None] // 2).long() * attention
    theirs = dict(input_ids=ids, attention_mask=attention, token_type_ids=types)
    return dict(ids=ids, lengths=lengths, types=types), theirs, attention.bool()


def targets_of(ids, real, choices, seed=7):
    """Some real tokens have a target, the others none."""
    generator = torch.Generator().manual_seed(seed)
    some = (torch.rand(ids.shape, generator=generator) < 0.4) & real
    some[:, 0] = True
    return torch.randint(choices, ids.shape, generator=generator).where(some, IGNORE)


def agree(ours, summed, count, theirs):
    """The mean a target is their loss, and every gradient of ours is finite; returns the gradients."""
    assert (summed / count).item() == pytest.approx(theirs.item(), abs=1e-5)
    (summed / count).backward()
    return {name: p.grad for name, p in ours.named_parameters() if p.grad is not None}


def test_hidden_tokens(tmp_path):
    model = encoder("bert", "ForMaskedLM")
    ours, (own, given, real) = saved(model, tmp_path), inputs()
    targets = targets_of(own["ids"], real, VOCAB)
    summed, count = masked_tokens(ours, Batch(own, targets, ()))
    grads = agree(ours, summed, count, model(**given, labels=targets).loss)
    assert count == int((targets != IGNORE).sum())
    assert grads.keys() == {n for n, _ in ours.named_parameters()} and all(g.abs().sum() > 0 for g in grads.values())


def test_hidden_tokens_and_the_next_sentence(tmp_path):
    model = encoder("bert", "ForPreTraining")
    ours, (own, given, real) = saved(model, tmp_path), inputs()
    targets, labels = targets_of(own["ids"], real, VOCAB), torch.tensor([0, 1, 1, 0, 1])
    summed, count = masked_tokens(ours, Batch(own, targets, (), labels))
    grads = agree(ours, summed, count, model(**given, labels=targets, next_sentence_label=labels).loss)
    assert grads["pair_head.out.weight"].abs().sum() > 0 and grads["pooler.dense.weight"].abs().sum() > 0


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_labels_of_texts(tmp_path, smoothing):
    model = encoder("bert", "ForSequenceClassification", **LABELS)
    ours, (own, given, _) = saved(model, tmp_path), inputs()
    labels = torch.tensor([2, 0, 1, 1, 2])
    summed, count = text_labels(ours, Batch(own, labels, ()), smoothing=smoothing)
    theirs = model(**given, labels=labels)
    wanted = F.cross_entropy(theirs.logits, labels, label_smoothing=smoothing) if smoothing else theirs.loss
    grads = agree(ours, summed, count, wanted)
    assert count == 5 and grads["head.out.weight"].abs().sum() > 0


def test_labels_of_tokens(tmp_path):
    model = encoder("bert", "ForTokenClassification", **LABELS)
    ours, (own, given, real) = saved(model, tmp_path), inputs()
    targets = targets_of(own["ids"], real, 3)
    summed, count = token_labels(ours, Batch(own, targets, ()))
    agree(ours, summed, count, model(**given, labels=targets).loss)
    assert count == int((targets != IGNORE).sum())


def test_spans(tmp_path):
    """Theirs lets padding take part in the softmax, so rows are compared where there is none."""
    model = encoder("bert", "ForQuestionAnswering")
    ours, (own, given, _) = saved(model, tmp_path), inputs()
    row = int(own["lengths"].argmax())
    own, given = (
        {name: value[row : row + 1].repeat_interleave(3, 0) for name, value in x.items()} for x in (own, given)
    )
    ends = torch.tensor([[0, 0], [3, 5], [7, 12]])
    summed, count = span(ours, Batch(own, ends, ()))
    theirs = model(**given, start_positions=ends[:, 0], end_positions=ends[:, 1]).loss
    agree(ours, summed, count, theirs)
    assert count == 3


def test_padding_takes_no_part_in_a_span(tmp_path):
    ours, (own, _, _) = saved(encoder("bert", "ForQuestionAnswering"), tmp_path), inputs()
    ends = torch.stack([torch.zeros(5, dtype=torch.long), own["lengths"] - 1], dim=1)
    together, _ = span(ours, Batch(own, ends, ()))
    alone = 0.0
    for row, length in enumerate(own["lengths"].tolist()):
        cut = {
            name: value[row : row + 1] if name == "lengths" else value[row : row + 1, :length]
            for name, value in own.items()
        }
        alone += span(ours, Batch(cut, ends[row : row + 1], ()))[0].item()
    assert together.item() == pytest.approx(alone, abs=1e-4)


def test_likeness_by_hand(tmp_path):
    model = encoder("bert")
    ours, (own, given, real) = saved(model, tmp_path), inputs()
    own, given = ({name: value[:4] for name, value in x.items()} for x in (own, given))
    alike = torch.tensor([1.0, 0.3])
    vectors = model(**given).last_hidden_state
    means = torch.stack([row[mask].mean(0) for row, mask in zip(vectors, real[:4], strict=True)]).detach()
    cosine = [[float(torch.dot(a, b) / a.norm() / b.norm()) for b in means[2:]] for a in means[:2]]
    squares = (cosine[0][0] - 1.0) ** 2 + (cosine[1][1] - 0.3) ** 2
    found = torch.tensor(cosine[0]).div(TEMPERATURE).log_softmax(0)[0].item()  # only the first pair means the same
    summed, count = similarity(ours, Batch(own, alike, ()))
    assert count == 2 and summed.item() == pytest.approx(squares - found, abs=1e-4)
    summed.backward()
    assert ours.embedding.weight.grad.abs().sum() > 0
