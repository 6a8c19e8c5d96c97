"""The rule of each family: which pieces it has, how many, and over which tokens they run."""

from regard.cost.count import Count, Flops, Setting, register_count
from regard.cost.pieces import (
    GATES,
    PositionCost,
    attention_kept,
    attention_live,
    attention_parameters,
    feedforward_flops,
    feedforward_kept,
    feedforward_live,
    feedforward_parameters,
    is_fused,
    kernel_costs,
    key_flops,
    linear_parameters,
    norm_kept,
    norm_parameters,
    position_costs,
    query_flops,
    recurrent_flops,
    recurrent_kept,
    recurrent_parameters,
    score_flops,
    widths,
)
from regard.models.seq2seq import Seq2SeqConfig
from regard.models.transformer import TransformerConfig
from regard.nn.attention import AttentionConfig
from regard.nn.block import BlockConfig


def attention_of(config: BlockConfig, *, causal: bool = False, cross: bool = False) -> AttentionConfig:
    """The config of a block's attention layer: its own, or the cross one, which takes no position."""
    return AttentionConfig(
        dim=config.dim, heads=config.heads, kv_heads=config.kv_heads, head_dim=config.head_dim, bias=config.bias,
        dropout=config.attention_dropout, kernel=config.kernel, causal=causal,
        biased=position_costs[config.position].biases and not cross,
    )  # fmt: skip


def position_of(config: BlockConfig, *lengths: int) -> PositionCost:
    """The cost of a config's position scheme, after a check that it reaches these lengths."""
    position = position_costs[config.position]
    if position.limited and max(lengths) > config.max_len:
        raise ValueError(
            f"length {max(lengths)} is past max_len={config.max_len} of {config.position} positions; "
            f"use a length up to {config.max_len} or a larger max_len"
        )
    return position


def block_norms(config: BlockConfig, *, depth: int, parts: int, final: bool) -> int:
    """Parameters of the norms of a stack whose blocks have `parts` residual parts."""
    return (depth * parts + final) * norm_parameters(config.norm, config.dim)


def stack_kept(
    config: BlockConfig, position: PositionCost, *, depth: int, batch: int, length: int, context: int | None = None,
    causal: bool, final: bool,
) -> int:  # fmt: skip
    """Numbers that a stack keeps for the backward pass, its output included."""
    tokens, parts = batch * length, 2 if context is None else 3
    noise = config.dim if config.dropout else 0
    around = parts * (norm_kept(config.norm, config.dim) + noise)
    feedforward = feedforward_kept(config.dim, config.ffn_dim, activation=config.activation, dropout=config.ffn_dropout)
    sizes = dict(batch=batch, queries=length)
    own = attention_of(config, causal=causal)
    attention = attention_kept(own, position, **sizes, keys=length, own=True)
    if context is not None:
        cross = attention_of(config, cross=True)
        attention += attention_kept(cross, position, **sizes, keys=context, own=False)
    end = config.dim + (norm_kept(config.norm, config.dim) if final else 0)
    return depth * (tokens * (around + feedforward) + attention) + tokens * end


def stack_live(
    config: BlockConfig, position: PositionCost, *, batch: int, length: int, context: int | None = None, causal: bool
) -> int:
    """Numbers at the widest moment of a stack without gradients; a context stays throughout."""
    sizes = dict(batch=batch, queries=length)
    moments = [
        batch * length * feedforward_live(config.ffn_dim, activation=config.activation),
        attention_live(attention_of(config, causal=causal), position, **sizes, keys=length, own=True),
    ]
    if context is not None:
        moments.append(attention_live(attention_of(config, cross=True), position, **sizes, keys=context, own=False))
    # Callers hold the stack's and the block's input, the block its stream and, where norms come first, the norm's.
    streams = 4 if config.norm_place == "pre" else 3
    return max(moments) + batch * config.dim * (streams * length + (context or 0))


@register_count(TransformerConfig)
def transformer(config: TransformerConfig, at: Setting) -> Count:
    """Encoder and decoder stacks; keys and values for cross-attention are made once for each source token."""
    T, S, B = at.length, at.source_length, at.batch
    position = position_of(config, T, S)
    depth, decoder_depth = config.depth, config.decoder_depth or config.depth
    final = config.norm_place == "pre" if config.final_norm is None else config.final_norm
    encoder_own, own = attention_of(config), attention_of(config, causal=True)
    cross = attention_of(config, cross=True)
    table = config.vocab_size * config.dim
    attention = attention_parameters(own)
    feedforward = feedforward_parameters(config.dim, config.ffn_dim, activation=config.activation, bias=config.bias)
    forward = feedforward_flops(config.dim, config.ffn_dim, activation=config.activation)
    placed = 2 * position.matrix(config)
    _, key_width, _ = widths(own)
    noise = B * config.dim if config.dropout else 0
    joined = B * position.matrix(config) // config.dim
    if at.training:
        sizes = dict(batch=B, final=final)
        activations = {
            "embeddings": (S + T) * (noise + joined),
            "encoder": stack_kept(config, position, depth=depth, length=S, causal=False, **sizes),
            "decoder": stack_kept(config, position, depth=decoder_depth, length=T, context=S, causal=True, **sizes),
        }
    else:
        encoding = stack_live(config, position, batch=B, length=S, causal=False)
        decoding = stack_live(config, position, batch=B, length=T, context=S, causal=True)
        activations = {"widest_layer": max(encoding, decoding)}

    return Count(
        parameters={
            "embeddings": table * (1 if config.tie == "all" else 2),
            "positions": position.parameters(config),
            "encoder_attention": depth * attention,
            "encoder_feedforward": depth * feedforward,
            "encoder_norms": block_norms(config, depth=depth, parts=2, final=final),
            "decoder_self_attention": decoder_depth * attention,
            "decoder_cross_attention": decoder_depth * attention_parameters(cross),
            "decoder_feedforward": decoder_depth * feedforward,
            "decoder_norms": block_norms(config, depth=decoder_depth, parts=3, final=final),
            "head": (table if config.tie == "none" else 0) + (config.vocab_size if config.head_bias else 0),
        },
        flops_per_token={
            "source": Flops(
                matrices=placed
                + depth * (query_flops(own) + key_flops(own) + forward)
                + decoder_depth * key_flops(cross),
                attention=depth * score_flops(own, S),
            ),
            "target": Flops(
                matrices=placed
                + decoder_depth * (query_flops(own) + key_flops(own) + query_flops(cross) + forward)
                + 2 * table,
                attention=decoder_depth * (score_flops(own, T) + score_flops(cross, S)),
            ),
        },
        activations=activations,
        attention_matrices={
            "encoder": B * config.heads * S * S * depth,
            "decoder_self": B * config.heads * T * T * decoder_depth,
            "decoder_cross": B * config.heads * T * S * decoder_depth,
        },
        matrices_held=tuple(
            kind
            for kind, layer in {"encoder": encoder_own, "decoder_self": own, "decoder_cross": cross}.items()
            if not is_fused(layer, position, training=at.training)
        ),
        cache={
            "self": decoder_depth * B * T * 2 * key_width,
            "cross": decoder_depth * B * S * 2 * key_width,
        },
        scores=B * T * config.vocab_size,
    )


@register_count(Seq2SeqConfig)
def seq2seq(config: Seq2SeqConfig, at: Setting) -> Count:
    """A bidirectional encoder, a bridge for each sentence, a decoder that may look back."""
    T, S, B, D = at.length, at.source_length, at.batch, config.dim
    parts = 2 if config.cell == "lstm" else 1
    additive, looks = config.score == "additive", config.score != "none"
    feeds_context = config.score in ("none", "additive")
    layers = dict(depth=config.depth)
    encoder = (config.cell, D, D // 2)
    decoder = (config.cell, 2 * D if feeds_context else D, D)
    kernel = kernel_costs["general"] if config.score == "general" else kernel_costs["additive"] if additive else None
    noise = D if config.dropout else 0
    if at.training:
        dropped = dict(**layers, dropout=config.dropout)
        # A decoder that looks back first takes each step by itself; the plain cell then hands over a copied state.
        copied = config.depth * D if additive and config.cell == "rnn" else 0
        attention = {
            "none": 0,
            "additive": T * S * (D + 2),
            "dot": T * (2 * D + S + 1),
            "general": T * (3 * D + S + 1),
        }
        activations = {
            "embeddings": B * (S + T) * noise,
            "encoder": B * S * (recurrent_kept(*encoder, **dropped, bidirectional=True) + (D if looks else 0)),
            "decoder": B * T * (recurrent_kept(*decoder, **dropped) + copied),
            "attention": B * attention[config.score],
            "readout": B * T * (3 * D + 2 * noise),
        }
    else:
        gates = GATES[config.cell] * D
        reading = S * (3 * D + gates)
        writing = S * 2 * D * (2 if additive else 1) + T * (4 * D + (0 if additive else gates))
        activations = {"widest_layer": B * max(reading, writing)}
    states = 2 if additive else 1
    return Count(
        parameters={
            "embeddings": config.vocab_size * D,
            "encoder": recurrent_parameters(*encoder, **layers, bidirectional=True),
            "bridge": parts * linear_parameters(D, D),
            "attention": (linear_parameters(D, D) + linear_parameters(D, D, bias=False) if additive else 0)
            + (kernel.parameters(1, D) if kernel else 0),
            "decoder": recurrent_parameters(*decoder, **layers),
            "readout": linear_parameters(2 * D, D),
            "head": 0,
        },
        flops_per_token={
            "source": Flops(
                matrices=recurrent_flops(*encoder, **layers, bidirectional=True) + (2 * D * D if additive else 0)
            ),
            "target": Flops(
                matrices=recurrent_flops(*decoder, **layers)
                + (2 * D * D if config.score in ("additive", "general") else 0)
                + 2 * 2 * D * D
                + 2 * D * config.vocab_size,
                attention=2 * 2 * D * S if looks else 0,
            ),
        },
        flops_per_sequence=2 * D * D * parts * config.depth,
        activations=activations,
        attention_matrices={"decoder_cross": B * T * S} if looks else {},
        matrices_held=("decoder_cross",) if additive else (),
        cache={"state": B * parts * config.depth * D, "source": B * D * (S * states if looks else 1)},
        scores=B * T * config.vocab_size,
        notes=("an LSTM on a CPU runs in oneDNN, whose workspace in training is two to ten times what is counted",)
        if config.cell == "lstm" and at.training
        else (),
    )
