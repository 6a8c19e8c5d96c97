"""The rule of each family: which pieces it has, how many, and over which tokens they run."""

from regard.cost.count import Count, Flops, Setting, register_count
from regard.cost.pieces import (
    GATES,
    PositionCost,
    RecurrentSize,
    attention_parameters,
    feedforward_flops,
    feedforward_parameters,
    is_fused,
    key_flops,
    linear_parameters,
    query_flops,
    recurrent_flops,
    recurrent_kept,
    recurrent_parameters,
    score_flops,
    widths,
)
from regard.cost.stack import attention_of, norms_parameters, position_of, stack_kept, stack_live
from regard.models.seq2seq import Seq2SeqConfig
from regard.models.transformer import TransformerConfig


@register_count(TransformerConfig)
def transformer(config: TransformerConfig, at: Setting) -> Count:
    """Encoder and decoder stacks; keys and values for cross-attention are made once for each source token."""
    T, S, B = at.length, at.source_length, at.batch
    position = position_of(config, T, S)
    depth, decoder_depth = config.depth, config.decoder_blocks
    final = config.ends_with_norm
    encoder_own, own = attention_of(config), attention_of(config, causal=True)
    cross = attention_of(config, cross=True)
    table = config.vocab_size * config.dim
    attention = attention_parameters(own)
    feedforward = feedforward_parameters(config.dim, config.ffn_dim, activation=config.activation, bias=config.bias)
    forward = feedforward_flops(config.dim, config.ffn_dim, activation=config.activation)
    placed = 2 * position.matrix(config)
    _, key_width, _ = widths(own)
    return Count(
        parameters={
            "embeddings": table * (1 if config.tie in ("all", "inputs") else 2),
            "positions": 2 * position.parameters(config),
            "encoder_attention": depth * attention,
            "encoder_feedforward": depth * feedforward,
            "encoder_norms": norms_parameters(config, depth=depth, parts=2, final=final),
            "decoder_self_attention": decoder_depth * attention,
            "decoder_cross_attention": decoder_depth * attention_parameters(cross),
            "decoder_feedforward": decoder_depth * feedforward,
            "decoder_norms": norms_parameters(config, depth=decoder_depth, parts=3, final=final),
            "head": (table if config.tie in ("none", "inputs") else 0) + (config.vocab_size if config.head_bias else 0),
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
        activations=transformer_activations(config, position, at),
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


def transformer_activations(config: TransformerConfig, position: PositionCost, at: Setting) -> dict[str, int]:
    """Kept by each part in training; otherwise the widest layer of the two stacks."""
    B, T, S = at.batch, at.length, at.source_length
    if not at.training:
        encoding = stack_live(config, position, batch=B, length=S, causal=False)
        decoding = stack_live(config, position, batch=B, length=T, context=S, causal=True)
        return {"widest_layer": max(encoding, decoding)}
    noise = config.dim if config.dropout else 0
    projected = position.matrix(config) // config.dim
    depth, final = config.decoder_blocks, config.ends_with_norm
    return {
        "embeddings": B * (S + T) * (noise + projected),
        "encoder": stack_kept(config, position, depth=config.depth, batch=B, length=S, causal=False, final=final),
        "decoder": stack_kept(config, position, depth=depth, batch=B, length=T, context=S, causal=True, final=final),
    }


@register_count(Seq2SeqConfig)
def seq2seq(config: Seq2SeqConfig, at: Setting) -> Count:
    """A bidirectional encoder, a bridge for each sentence, a decoder that may look back."""
    T, S, B, D = at.length, at.source_length, at.batch, config.dim
    parts = 2 if config.cell == "lstm" else 1
    additive, looks = config.score == "additive", config.score != "none"
    encoder, decoder = recurrent_sizes(config)
    attention = {"none": 0, "additive": linear_parameters(D, D) + D * D + D, "dot": 0, "general": D * D}
    lstm = "an LSTM on a CPU runs in oneDNN, whose workspace in training is two to ten times what is counted"
    return Count(
        parameters={
            "embeddings": config.vocab_size * D,
            "encoder": recurrent_parameters(encoder),
            "bridge": parts * linear_parameters(D, D),
            "attention": attention[config.score],
            "decoder": recurrent_parameters(decoder),
            "readout": linear_parameters(2 * D, D),
            "head": 0,
        },
        flops_per_token={
            "source": Flops(matrices=recurrent_flops(encoder) + (2 * D * D if additive else 0)),
            "target": Flops(
                matrices=recurrent_flops(decoder)
                + (2 * D * D if config.score in ("additive", "general") else 0)
                + 2 * 2 * D * D
                + 2 * D * config.vocab_size,
                attention=2 * 2 * D * S if looks else 0,
            ),
        },
        flops_per_sequence=2 * D * D * parts * config.depth,
        activations=seq2seq_activations(config, at),
        attention_matrices={"decoder_cross": B * T * S} if looks else {},
        matrices_held=("decoder_cross",) if additive else (),
        cache={
            "state": B * parts * config.depth * D,
            "source": B * D * (S * (2 if additive else 1) if looks else 1),
        },
        scores=B * T * config.vocab_size,
        notes=(lstm,) if config.cell == "lstm" and at.training else (),
    )


def recurrent_sizes(config: Seq2SeqConfig) -> tuple[RecurrentSize, RecurrentSize]:
    """Encoder and decoder; the decoder reads the context too where that is known before its step."""
    D, inputs = config.dim, config.dim * (2 if config.score in ("none", "additive") else 1)
    return (
        RecurrentSize(cell=config.cell, inputs=D, dim=D // 2, depth=config.depth, directions=2),
        RecurrentSize(cell=config.cell, inputs=inputs, dim=D, depth=config.depth),
    )


def seq2seq_activations(config: Seq2SeqConfig, at: Setting) -> dict[str, int]:
    """Kept by each part in training; otherwise the wider of reading and writing."""
    T, S, B, D = at.length, at.source_length, at.batch, config.dim
    additive = config.score == "additive"
    if not at.training:
        gates = GATES[config.cell] + (1 if config.cell == "lstm" else 0)  # an LSTM's second state as well
        reading = S * 6
        if additive:  # one query's sums with all keys while outputs gather; then all outputs joined
            writing = S * 2 + max(S * 2 + T * 3, T * 7)
        elif config.score == "none":  # inputs are twice as wide
            writing = T * (6 + gates)
        else:
            writing = S + T * max(4 + gates, 7)
        return {"widest_layer": B * D * max(reading, writing)}
    encoder, decoder = (recurrent_kept(size, dropout=config.dropout) for size in recurrent_sizes(config))
    states = D if config.score != "none" else 0
    # A decoder that looks back first takes each step by itself; the plain cell then hands over a copied state.
    copied = config.depth * D if additive and config.cell == "rnn" else 0
    attention = {"none": 0, "additive": S * (D + 2), "dot": 2 * D + S + 1, "general": 3 * D + S + 1}
    noise = D if config.dropout else 0
    return {
        "embeddings": B * (S + T) * noise,
        "encoder": B * S * (encoder + states),
        "decoder": B * T * (decoder + copied),
        "attention": B * T * attention[config.score],
        "readout": B * T * (3 * D + 2 * noise),
    }
