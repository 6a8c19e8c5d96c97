"""The tree of a beam search is the search that the engine runs, candidate by candidate."""

from dataclasses import replace

import pytest
import torch

from regard.decode.engine import Engine
from regard.decode.requests import Request
from regard.decode.tree import beam_tree
from regard.models import GPT, LSTM, GPTConfig, Transformer, TransformerConfig
from regard.models.recurrent import LSTMConfig

SIZES = dict(vocab_size=23, dim=16, heads=2, ffn_dim=20, depth=1, dropout=0.0, max_len=40)
ASKED = Request(prompt=[1, 7], max_len=9, ends=(2, 5), forbidden=(0, 3), beams=3, n_best=3, length_penalty=0.7)
SOURCE = {"source": torch.tensor([4, 9, 11])}
BUILT = {
    "gpt": (lambda: GPT(GPTConfig(**SIZES)), ASKED),
    "lstm": (lambda: LSTM(LSTMConfig(vocab_size=23, dim=16)), ASKED),
    "transformer": (lambda: Transformer(TransformerConfig(**SIZES)), replace(ASKED, prompt=[1], inputs=SOURCE)),
    "few tokens": (lambda: GPT(GPTConfig(**SIZES | dict(vocab_size=8))), replace(ASKED, beams=6, n_best=6)),
}


@pytest.mark.parametrize("name", BUILT)
@pytest.mark.parametrize("early", [False, True])
def test_a_tree_has_the_hypotheses_of_the_engine_and_its_greedy_choice(name, early):
    build, request = BUILT[name]
    torch.manual_seed(3)
    model = build().double().eval()
    for weight in model.parameters():
        weight.data += 0.2 * torch.randn_like(weight)  # without near-ties
    request = replace(request, early_stopping=early)
    tree = beam_tree(model, request)
    ticket, alone = Engine(model).serve([request, replace(request, beams=1, n_best=1)])
    assert [one.ids for one in tree.hypotheses] == [one.ids for one in ticket.result()]
    assert [one.score for one in tree.hypotheses] == pytest.approx([one.score for one in ticket.result()], abs=1e-5)
    assert [id for id, _ in tree.greedy] == alone.ids
    assert [one for _, one in tree.greedy] == pytest.approx(alone.log_probs, abs=1e-5)


def test_candidates_continue_beams_of_the_step_before_and_sum_up():
    torch.manual_seed(0)
    tree = beam_tree(GPT(GPTConfig(**SIZES)), ASKED)
    totals: dict[int | None, float] = {0: 0.0}
    for step in tree.steps:
        assert [one.total for one in step] == sorted((one.total for one in step), reverse=True)
        assert len(step) == 2 * ASKED.beams and sum(one.fate == "kept" for one in step) == ASKED.beams
        for rank, one in enumerate(step):
            assert one.total == pytest.approx(totals[one.origin] + one.log_prob, abs=1e-5)
            assert one.id not in ASKED.forbidden
            assert (one.id in ASKED.ends and rank < ASKED.beams) == (one.fate == "ended")
        totals = {one.beam: one.total for one in step if one.fate == "kept"}
        assert list(totals) == [0, 1, 2]
