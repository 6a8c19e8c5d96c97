"""Against `torch.nn.Transformer`, with its weights: norms first and last, both activations, a padded source."""

import pytest
import torch
from torch import nn

from regard.models import Transformer, TransformerConfig

DIM, HEADS, HIDDEN, VOCAB = 21, 3, 37, 23


def copy_attention(ours, theirs):
    q, kv = theirs.in_proj_weight.split([DIM, 2 * DIM])
    q_bias, kv_bias = theirs.in_proj_bias.split([DIM, 2 * DIM])
    ours.query.weight.copy_(q), ours.query.bias.copy_(q_bias)
    ours.key_value.weight.copy_(kv), ours.key_value.bias.copy_(kv_bias)
    ours.out.load_state_dict(theirs.out_proj.state_dict())


def copy_layer(ours, theirs):
    copy_attention(ours.attention, theirs.self_attn)
    norms = {"attention": theirs.norm1, "feedforward": theirs.norm2}
    if ours.cross is not None:
        copy_attention(ours.cross, theirs.multihead_attn)
        norms = {"attention": theirs.norm1, "cross": theirs.norm2, "feedforward": theirs.norm3}
    for part, norm in norms.items():
        ours.norms[part].load_state_dict(norm.state_dict())
    ours.feedforward.up.load_state_dict(theirs.linear1.state_dict())
    ours.feedforward.down.load_state_dict(theirs.linear2.state_dict())


@torch.no_grad()
def twins(*, norm_place, activation):
    theirs = nn.Transformer(
        DIM, HEADS, 2, 3, HIDDEN, activation=activation, norm_first=norm_place == "pre", batch_first=True
    ).eval()
    for parameter in theirs.parameters():
        if parameter.dim() == 1:  # biases start at 0 and norms at 1: a swapped pair would not show
            parameter += 0.3 * torch.randn_like(parameter)
    config = TransformerConfig(
        dim=DIM, heads=HEADS, depth=2, decoder_depth=3, ffn_dim=HIDDEN, vocab_size=VOCAB, activation=activation,
        norm_place=norm_place, final_norm=True,
    )  # fmt: skip
    ours = Transformer(config).eval()
    for stack, their_stack in ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)):
        for block, layer in zip(stack.blocks, their_stack.layers, strict=True):
            copy_layer(block, layer)
        stack.norm.load_state_dict(their_stack.norm.state_dict())
    return ours, theirs


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True", "ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("norm_place", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_features(norm_place, activation):
    ours, theirs = twins(norm_place=norm_place, activation=activation)
    lengths = torch.tensor([11, 2, 7, 1, 5])
    source, target = torch.randint(0, VOCAB, (5, 11)), torch.randint(0, VOCAB, (5, 13))
    hidden = torch.arange(11) >= lengths[:, None]
    with torch.no_grad():
        wanted = theirs(
            ours.source_embedding(source),
            ours.target_embedding(target),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(13),
            tgt_is_causal=True,
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
        )
        got = ours.features(source, lengths, target)
    assert wanted.std() > 0.5
    assert (got - wanted).abs().max() <= 1e-5
