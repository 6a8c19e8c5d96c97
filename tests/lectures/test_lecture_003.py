"""Lecture 003: attention as a learned similarity."""

import torch

from regard.doctor.laws import close
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.kernels import Full, General, attend


def test_softmax_has_a_plus_sign():
    """np.exp(−x) turns the order around: the largest score would get the smallest weight."""
    x = torch.tensor([-8.96, 8.84, -2.15, 4.1], dtype=torch.float64)
    _, weights = attend(x[None, None, None], torch.zeros(1, 1, 4, 1).double())
    assert [f"{w:.3g}" for w in weights.flatten().tolist()] == ["1.84e-08", "0.991", "1.67e-05", "0.00866"]
    slide = (-x).exp() / (-x).exp().sum()
    printed = torch.tensor([9.99e-01, 1.85e-08, 1.10e-03, 2.13e-06], dtype=torch.float64)
    close(slide / printed, torch.ones(4).double(), "what the slide prints", 0.005)
    assert slide.argmax() == x.argmin() and weights.argmax() == x.argmax()


def test_the_generalized_dot_product():
    """q W_q W_kᵀ kᵀ, as projections in front of `full` or as one matrix in `general`."""
    N_e, N_s = 6, 4
    x = torch.randn(1, 1, 7, N_e, dtype=torch.float64)
    W_q, W_k = torch.randn(2, N_e, N_s, dtype=torch.float64)
    scores = torch.stack([torch.stack([q @ W_q @ W_k.T @ k for k in x[0, 0]]) for q in x[0, 0]])
    wanted = scores.softmax(-1) @ x
    close(Full(heads=1, head_dim=N_s)(x @ W_q, x @ W_k, x, scale=1.0)[0], wanted, "projected")
    general = General(heads=1, head_dim=N_e).double()
    general.matrix.data = (W_q @ W_k.T)[None]
    close(general(x, x, x, scale=1.0)[0], wanted, "bilinear")


def test_w_v_maps_embeddings_not_words():
    """W_v is N_e × N_o: its size does not depend on how many words there are."""
    N_e, N_o = 6, 10
    layer = Attention(AttentionConfig(dim=N_e, heads=1, head_dim=N_o))
    W_k, W_v = layer.key_value.weight.chunk(2)
    assert W_v.shape == (N_o, N_e)  # PyTorch keeps the transpose
    for N_w in (3, 8):
        _, v = layer.split(layer.key_value(torch.randn(1, N_w, N_e))).chunk(2, dim=1)
        assert v.shape == (1, 1, N_w, N_o)
