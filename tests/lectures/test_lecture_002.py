"""Lecture 002: queries, keys and values, with its worked example computed by our own core."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from regard.data.sets.batches import pair_batch
from regard.doctor.laws import close, differs
from regard.models import Seq2Seq, Seq2SeqConfig
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.block import Block, BlockConfig
from regard.nn.feedforward import FeedForward
from regard.nn.kernels import Additive, Full, attend
from regard.nn.positions import Grid, Position, RelativeBias, sinusoids
from regard.train.schedule import inverse_sqrt

# "The cat sat on the mat"; the features are animal, action, object, definite.
WORDS = ["the", "cat", "sat", "on", "the", "mat"]
KEYS = [[0, 0, 0, 1], [1, 0, 0.3, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
VALUES = [[0.1, 0, 0, 0.8], [0.9, 0, 0.1, 0.7], [0, 0.9, 0, 0.3], [0, 0, 0.5, 0], [0, 0, 0, 0.9], [0, 0, 0.9, 0.6]]
LOOKING_FOR_AN_ANIMAL, LOOKING_FOR_AN_ACTION = [0.9, 0.1, 0.2, 0.3], [0.1, 0.9, 0.1, 0.1]


def tensor(rows):
    return torch.tensor(rows, dtype=torch.float64)


def look_up(query, **how):
    """One query to the six words, by the registered kernel: output 4, weights 6."""
    q, k, v = tensor([query])[None, None], tensor(KEYS)[None, None], tensor(VALUES)[None, None]
    out, weights = Full(heads=1, head_dim=4)(q, k, v, weights=True, **how)
    close(Full(heads=1, head_dim=4)(q, k, v, **how)[0], out, "the fused kernel")
    return out[0, 0, 0], weights[0, 0, 0]


def softmax(scores):
    """The core's own softmax: the weights of `attend`."""
    scores = tensor(scores)[None, None, None]
    return attend(scores, torch.zeros(1, 1, scores.shape[-1], 1).double())[1][0, 0, 0]


def test_cat_to_chat():
    scores = tensor(KEYS) @ tensor(LOOKING_FOR_AN_ANIMAL)
    close(scores, tensor([0.30, 0.96, 0.10, 0.00, 0.30, 0.20]), "q · k")
    powers = (scores / math.sqrt(4)).exp()
    assert round(powers.sum().item(), 3) == 7.096

    out, weights = look_up(LOOKING_FOR_AN_ANIMAL)
    close(weights, powers / powers.sum(), "weights")
    assert [round(w, 2) for w in weights.tolist()] == [0.16, 0.23, 0.15, 0.14, 0.16, 0.16]
    assert [round(x, 4) for x in out.tolist()] == [0.2213, 0.1333, 0.2334, 0.5756]


def test_the_lectures_output_was_rounded_midway():
    out, weights = look_up(LOOKING_FOR_AN_ANIMAL)
    rounded = tensor([round(w, 2) for w in weights.tolist()]) @ tensor(VALUES)
    assert [round(x, 3) for x in rounded.tolist()] == [0.223, 0.135, 0.237, 0.574]
    close(rounded, out, "the rounded way", 0.004)


def test_the_output_is_not_mostly_animal():
    out, _ = look_up(LOOKING_FOR_AN_ANIMAL)
    animal, action, thing, definite = out.tolist()
    assert definite > thing > animal > action


def test_cat_to_chat_through_a_whole_attention_layer():
    """Projections that pass on what they get: the context carries key and value side by side."""
    layer = Attention(AttentionConfig(dim=4, heads=1, context_dim=8, bias=False)).double()
    with torch.no_grad():
        for projection in (layer.query, layer.key_value, layer.out):
            nn.init.eye_(projection.weight)
    out = layer(tensor([[LOOKING_FOR_AN_ANIMAL]]), torch.cat([tensor([KEYS]), tensor([VALUES])], dim=-1))
    assert [round(x, 4) for x in out[0, 0].tolist()] == [0.2213, 0.1333, 0.2334, 0.5756]


def test_looking_for_an_action_attends_to_sat():
    _, weights = look_up(LOOKING_FOR_AN_ACTION)
    assert WORDS[weights.argmax()] == "sat" and round(weights.max().item(), 3) == 0.231


def test_the_row_of_weights_is_not_the_softmax_of_its_scores():
    """.58 .10 .04 .28 is wrong, and no temperature would make it right."""
    scores, slide = [2.1, 0.3, -0.5, 1.8], [0.58, 0.10, 0.04, 0.28]
    assert [round(w, 3) for w in softmax(scores).tolist()] == [0.505, 0.083, 0.038, 0.374]
    low, high = [w - 0.005 for w in slide], [w + 0.005 for w in slide]
    # the inverse temperature is the slope of the logarithms: two pairs of weights, two ranges that do not meet
    slope = lambda a, b, i, j: math.log(a[i] / b[j]) / (scores[i] - scores[j])  # noqa: E731
    assert slope(low, high, 0, 3) > slope(high, low, 0, 1)


def test_eight_tenths_fall_on_the_first_word():
    """The weights belong to the source's words; under target words .8 seems to be on "chat"."""
    source = "The cat sat on the mat".split()
    weights = [0.8, 0.15, 0.02, 0.01, 0.01, 0.01]
    assert len(weights) == len(source) and math.isclose(sum(weights), 1.0)
    assert source[weights.index(0.8)] == "The"


def test_library_and_student_scores_are_no_weights_yet():
    library, students = [0.1, 0.9, 0.5], [0.95, 0.1, 0.3, 0.9]
    assert math.isclose(sum(library), 1.5) and math.isclose(sum(students), 2.25)
    for scores in (library, students):
        assert math.isclose(softmax(scores).sum().item(), 1.0)


def test_hard_lookup_is_the_limit_of_a_low_temperature():
    best = tensor(VALUES)[WORDS.index("cat")]
    errors = [(look_up(LOOKING_FOR_AN_ANIMAL, scale=1 / t)[0] - best).abs().max().item() for t in (1, 0.3, 0.1, 0.01)]
    assert errors == sorted(errors, reverse=True) and errors[0] > 0.1 and errors[-1] < 1e-9


def test_softmax_saturates_for_large_scores_not_for_small_ones():
    scores = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64)
    close(softmax((1e-9 * scores).tolist()), torch.full((3,), 1 / 3).double(), "x → 0: even", 1e-7)
    close(softmax((1e3 * scores).tolist()), tensor([0.0, 0.0, 1.0]), "x → ∞: one-hot")


@pytest.mark.parametrize("d", [4, 64, 256])
def test_scores_have_variance_d_and_scaled_ones_variance_1(d):
    """Seen in the kernel: ln w₁ − ln w₂ is the difference of two scores, with twice their variance."""
    n = 8000
    q, k = torch.randn(n, 1, 1, d), torch.randn(n, 1, 2, d)
    assert math.isclose((q @ k.transpose(-1, -2)).var().item(), d, rel_tol=0.05)
    _, weights = Full(heads=1, head_dim=d)(q, k, k, weights=True)
    assert math.isclose((weights[..., 0].log() - weights[..., 1].log()).var().item(), 2, rel_tol=0.1)


def test_each_query_attends_to_itself_most_if_queries_are_keys():
    """With Q = K = V, what matches is what is retrieved: the score of a vector with itself is its squared length."""
    x = F.normalize(torch.randn(1, 1, 7, 5), dim=-1)
    _, weights = Full(heads=1, head_dim=5)(x, x, x, weights=True)
    assert torch.equal(weights[0, 0].argmax(-1), torch.arange(7))
    close(weights[0, 0].log().diff(dim=0).diff(dim=1), (x @ x.mT)[0, 0].diff(dim=0).diff(dim=1) / 5**0.5, "QKᵀ", 1e-5)


def test_additive_attention():
    """attn(q, k) = w · tanh(W_q q + W_k k)."""
    kernel = Additive(heads=1, head_dim=5).double()
    W_q, W_k = torch.randn(5, 3).double(), torch.randn(5, 4).double()  # queries and keys of different width
    q, k, v = torch.randn(6, 3).double(), torch.randn(7, 4).double(), torch.randn(7, 2).double()
    scores = torch.stack([torch.stack([kernel.vector[0] @ (W_q @ a + W_k @ b).tanh() for b in k]) for a in q])
    out, _ = kernel((q @ W_q.T)[None, None], (k @ W_k.T)[None, None], v[None, None])
    close(out[0, 0], scores.softmax(-1) @ v, "additive attention")


@pytest.mark.parametrize("score", ["dot", "general"])
def test_luong(score):
    """z_t = RNN(y_{t−1}, z_{t−1}); α ∝ exp(z_t · W h); what is scored is tanh(W_c [z_t; c_t])."""
    model = Seq2Seq(Seq2SeqConfig(vocab_size=53, dim=14, score=score, cell="lstm", dropout=0.0)).double()
    if score == "general":
        model.kernel.matrix.data.normal_()
    source, lengths, target = torch.randint(53, (3, 7)), torch.tensor([7, 2, 5]), torch.randint(53, (3, 5))
    got = model(source, lengths, target)
    E = model.embedding.weight * math.sqrt(14)
    W = model.kernel.matrix[0] if score == "general" else torch.eye(14).double()
    for b in range(3):
        h, last = model.encoder(E[source[b : b + 1, : lengths[b]]])
        z, _ = model.decoder.layers(E[target[b : b + 1]], tuple(model.bridge(last)))
        for t in range(5):
            alpha = torch.stack([z[0, t] @ W @ h_j for h_j in h[0]]).exp()
            c = (alpha / alpha.sum()) @ h[0]
            scores = model.embedding.weight @ model.readout(torch.cat([z[0, t], c])).tanh()
            close(scores, got[b, t], f"sentence {b}, word {t}", 1e-6)


def test_without_attention_the_decoder_sees_one_vector():
    """The bottleneck: two sources with the same last state cannot be told apart, however they differ."""
    model = Seq2Seq(Seq2SeqConfig(vocab_size=53, dim=14, score="none", dropout=0.0)).double()
    source, lengths, target = torch.randint(53, (2, 7)), torch.tensor([7, 7]), torch.randint(53, (2, 5))
    cache = model.new_cache(5)
    model.read(cache, source, lengths)
    assert cache.values.shape == (2, 1, 14)
    cache.state = [part[:, :1].expand(-1, 2, -1).contiguous() for part in cache.state]
    cache.values = cache.values[:1].expand(2, -1, -1)
    out = model.write(target[:1].expand(2, -1), cache)
    close(out[0], out[1], "two sources with one last state", 1e-12)


def block(**changes):
    config = BlockConfig(dim=12, heads=3, ffn_dim=29, dropout=0.0, norm_place="post", **changes)
    return Block(config, Position(dim=12, heads=3, head_dim=4, max_len=9), causal=False, cross=False).double()


def test_an_encoder_layer_has_four_steps():
    """FFN(LayerNorm(X + MultiHead(X))) loses the second residual and the second norm of its own four steps."""
    layer, x = block(), torch.randn(2, 5, 12, dtype=torch.float64)
    z = x + layer.attention(x)
    z = F.layer_norm(z, (12,))
    h = z + layer.feedforward(z)
    close(layer(x), F.layer_norm(h, (12,)), "the four steps")
    differs(layer(x), layer.feedforward(F.layer_norm(x + layer.attention(x), (12,))), "the one-line formula")


def test_the_residual_keeps_what_attention_found():
    """In x + FFN(x + Attention(x)) a silent FFN silences attention too; in a block it does not."""
    config = BlockConfig(dim=12, heads=3, ffn_dim=29, dropout=0.0)
    layer = Block(config, Position(dim=12, heads=3, head_dim=4, max_len=9), causal=False, cross=False).double()
    nn.init.zeros_(layer.feedforward.down.weight), nn.init.zeros_(layer.feedforward.down.bias)
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    close(layer(x), x + layer.attention(layer.norms["attention"](x)), "x + Attention(Norm(x))")
    one_line = x + layer.feedforward(x + layer.attention(x))
    close(one_line, x, "the lecture's f(x)")
    differs(layer(x), one_line, "attention was lost")


def test_a_position_wise_layer_is_a_convolution_of_width_one():
    layer, x = FeedForward(12, 29, activation="relu", bias=True), torch.randn(2, 7, 12)
    hidden = F.conv1d(x.mT, layer.up.weight[..., None], layer.up.bias).relu()
    close(layer(x), F.conv1d(hidden, layer.down.weight[..., None], layer.down.bias).mT, "two 1 × 1 convolutions", 1e-6)
    close(layer(x.roll(1, dims=1)), layer(x).roll(1, dims=1), "shifted in, shifted out", 1e-6)


def test_a_grid_of_positions():
    """The lecture's code: rows repeated along columns, columns along rows, side by side."""
    h, w, dim = 3, 5, 12
    rows, columns = sinusoids(h, dim // 2), sinusoids(w, dim // 2)
    both = torch.cat([rows.unsqueeze(1).repeat(1, w, 1), columns.unsqueeze(0).repeat(h, 1, 1)], dim=-1).flatten(0, 1)
    scheme = Grid(columns=w, dim=dim, heads=3, head_dim=4, max_len=h * w)
    close(scheme.embed(torch.zeros(1, h * w, dim))[0], both, "2-D waves")


def test_pairs_of_waves_end_before_half_the_width():
    """i = 0 … d/2 would name d + 2 numbers: the last pair is d/2 − 1."""
    assert sinusoids(1, 12).shape[1] == 2 * len(range(12 // 2)) == 12


def test_a_relative_position_is_inside_the_scale_here_and_outside_in_lecture_001():
    sizes = dict(dim=12, heads=3, head_dim=4, max_len=9)
    inside, outside = (RelativeBias(inside_scale=flag, **sizes) for flag in (True, False))
    outside.table = inside.table
    close(inside.bias().dense(7, 7), outside.bias().dense(7, 7) / math.sqrt(4), "r/√d", 1e-7)


def test_the_learning_rate():
    rate = lambda step: inverse_sqrt(step, dim=512, warmup=4000)  # noqa: E731
    assert f"{rate(1):.2e}" == "1.75e-07"
    assert f"{rate(4000):.2e}" == "6.99e-04"
    assert max(range(1, 20_000), key=rate) == 4000
    assert math.isclose(rate(16_000), rate(4000) / 2)
    with pytest.raises(ZeroDivisionError):
        rate(0)  # step^−½: steps count from 1


def test_the_sentence_has_12_words():
    assert len("The agreement on the European Economic Area was signed in August 1992".split()) == 12


def test_teacher_forcing_shifts_by_one_and_keeps_the_length():
    """The lecture's input has 4 tokens, its target 5: "assis" is missing from the input."""
    sos, eos, le, chat, s_est, assis = range(6)
    batch = pair_batch([[9, 9]], [[le, chat, s_est, assis]], bos=sos, eos=eos, pad_id=7)
    assert batch.inputs["target"].tolist() == [[sos, le, chat, s_est, assis]]
    assert batch.targets.tolist() == [[le, chat, s_est, assis, eos]]
    assert torch.equal(batch.inputs["target"][:, 1:], batch.targets[:, :-1])
