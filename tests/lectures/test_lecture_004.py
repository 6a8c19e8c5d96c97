"""Lecture 004: the table of weights, masking, training in one step and inference in many."""

import torch

from regard.doctor.laws import close
from regard.models import Transformer, TransformerConfig
from regard.nn.block import BlockConfig
from regard.nn.kernels import attend
from regard.nn.masks import causal

WORDS = ["YOUR", "CAT", "IS", "A", "LOVELY", "CAT"]
TABLE = torch.tensor(
    [
        [0.268, 0.119, 0.134, 0.148, 0.179, 0.152],
        [0.124, 0.278, 0.201, 0.128, 0.154, 0.115],
        [0.147, 0.132, 0.262, 0.097, 0.218, 0.145],
        [0.210, 0.128, 0.206, 0.212, 0.119, 0.125],
        [0.146, 0.158, 0.152, 0.143, 0.227, 0.174],
        [0.195, 0.114, 0.203, 0.103, 0.157, 0.229],
    ],
    dtype=torch.float64,
)


def weights_of(scores, mask=None):
    dense = None if mask is None else mask.dense(6, 6)
    return attend(scores[None, None], torch.zeros(1, 1, 6, 1).double(), mask=dense)[1][0, 0]


def test_rows_sum_to_one_but_for_rounding():
    sums = [round(row, 3) for row in TABLE.sum(1).tolist()]
    assert sums == [1.0, 1.0, 1.001, 1.0, 1.0, 1.001]
    close(weights_of(TABLE.log()), TABLE / TABLE.sum(1, keepdim=True), "the table from its own scores")
    close(weights_of(TABLE.log()), TABLE, "the table", 0.0005)


def test_masked_scores_leave_the_past_and_sum_to_one_again():
    """Hiding happens before the softmax: the weights that remain are shared out anew."""
    masked = weights_of(TABLE.log(), causal())
    assert masked.triu(1).eq(0).all()
    close(masked.sum(1), torch.ones(6).double(), "row sums")
    past = TABLE.tril()
    close(masked, past / past.sum(1, keepdim=True), "the past, shared out anew")
    assert masked[0].tolist() == [1, 0, 0, 0, 0, 0]


def test_heads_share_the_width():
    config = BlockConfig(dim=512, heads=8)
    assert config.head_size == 512 // 8


@torch.no_grad()
def test_training_is_one_time_step_and_inference_one_for_each_token():
    """<SOS> ti amo molto at once gives the scores that appending one token after the other gives; the source is
    read in the first time step only."""
    model = Transformer(TransformerConfig(vocab_size=53, dim=12, heads=3, ffn_dim=29, depth=2)).double().eval()
    source, lengths = torch.randint(53, (1, 6)), torch.tensor([6])
    target = torch.tensor([[1, 11, 12, 13]])  # <SOS> ti amo molto
    at_once = model(source, lengths, target)

    reads = []
    model.encoder.register_forward_hook(lambda *_: reads.append(1))
    cache = model.new_cache(4)
    steps = [model.prefill(target[:, :1], cache, source=source, lengths=lengths)]
    steps += [model.step(target[:, t], cache) for t in (1, 2, 3)]
    close(torch.stack(steps, dim=1), at_once, "four time steps")
    assert len(reads) == 1


def test_768_values_to_768_is_not_a_higher_dimension():
    assert 16 * 16 * 3 == 768
