"""The views of a GPT-2 against what transformers gives: its weights, their gradients, its hidden states."""

import pytest
import torch

from regard.hub.checkpoint import load_model
from regard.inside.explain import ablation, gradient, lens, rollout
from regard.inside.explain.gradients import gradients
from tests.inside.explain.asking import question

IDS = torch.tensor([[3, 7, 1, 12, 5, 7, 2]])
HEADS, SIZE = 3, 4


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.disable_progress_bar()
    config = transformers.GPT2Config(
        vocab_size=17, n_embd=HEADS * SIZE, n_head=HEADS, n_layer=3, n_positions=16, initializer_range=0.4,
        attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(4)
    theirs = transformers.GPT2LMHeadModel(config).eval()
    path = tmp_path_factory.mktemp("gpt2")
    theirs.save_pretrained(path)
    return theirs, load_model(path)


def test_rollout(both):
    theirs, ours = both
    said = theirs(IDS, output_attentions=True)
    reached = torch.eye(IDS.shape[1])
    for weights in said.attentions:
        reached = (0.5 * weights[0].mean(0) + 0.5 * torch.eye(IDS.shape[1])) @ reached
    torch.testing.assert_close(rollout(question(ours, IDS)), reached.detach(), atol=1e-6, rtol=1e-5)


def test_gradients_of_weights(both):
    theirs, ours = both
    asked = question(ours, IDS, [2, 6])
    seen, every = gradients(asked)
    found = list(every)
    for row, (output, choice) in enumerate(zip(asked.outputs.rows, asked.outputs.columns, strict=True)):
        said = theirs(IDS, output_attentions=True)
        wanted = torch.autograd.grad(said.logits[0, output, choice], said.attentions)
        paths = torch.eye(IDS.shape[1])
        for name, one, weights in zip(seen.names, wanted, said.attentions, strict=True):
            visible = torch.ones_like(one[0]).tril()  # what is hidden has no weight, and its gradient no meaning
            torch.testing.assert_close(found[row][name] * visible, one[0] * visible, atol=1e-5, rtol=1e-4)
            paths = paths + (one[0] * weights[0]).clamp(min=0).mean(0).detach() @ paths
        torch.testing.assert_close(gradient(asked)[row], paths[output], atol=1e-5, rtol=1e-4)


def test_lens(both):
    theirs, ours = both
    states = theirs(IDS, output_hidden_states=True).hidden_states
    wanted = [theirs.lm_head(theirs.transformer.ln_f(state)) for state in states[:-1]] + [theirs.lm_head(states[-1])]
    found = lens(question(ours, IDS))
    torch.testing.assert_close(found, torch.cat(wanted).softmax(-1).detach(), atol=1e-6, rtol=1e-4)


@torch.no_grad()
def test_a_head_that_is_switched_off(both):
    theirs, ours = both
    found = ablation(question(ours, IDS[:, :6]))
    targets = torch.tensor([*IDS[0, 1:6].tolist(), 0])

    def loss():
        return torch.nn.functional.cross_entropy(theirs(IDS[:, :6]).logits[0], targets)

    base = loss()
    for block, effects in zip(theirs.transformer.h, found.values(), strict=True):
        for head in range(HEADS):
            rows = block.attn.c_proj.weight[head * SIZE : (head + 1) * SIZE]
            kept = rows.clone()
            rows.zero_()
            torch.testing.assert_close(effects[head], loss() - base, atol=1e-5, rtol=1e-3)
            rows.copy_(kept)
