"""The rules of the recurrent families."""

from regard.cost.count import Count, Flops, Setting, register_count
from regard.cost.pieces import (
    GATES,
    RecurrentSize,
    linear_parameters,
    recurrent_flops,
    recurrent_kept,
    recurrent_parameters,
)
from regard.models.recurrent import RecurrentConfig
from regard.models.seq2seq import Seq2SeqConfig


def notes(cell: str, at: Setting) -> tuple[str, ...]:
    lstm = "an LSTM on a CPU runs in oneDNN, whose workspace in training is two to ten times what is counted"
    return (lstm,) if cell == "lstm" and at.training else ()


@register_count(RecurrentConfig)
def recurrent(config: RecurrentConfig, at: Setting) -> Count:
    """A language model: its past is one state."""
    T, B, D = at.length, at.batch, config.dim
    parts = 2 if config.cell == "lstm" else 1
    layers = RecurrentSize(cell=config.cell, inputs=D, dim=D, depth=config.depth)
    noise = D if config.dropout else 0
    if at.training:
        activations = {
            "embeddings": B * T * noise,
            "layers": B * T * recurrent_kept(layers, dropout=config.dropout),
            "readout": B * T * (2 * D + 2 * noise),
        }
    else:
        activations = {"widest_layer": B * T * D * (4 + GATES[config.cell])}
    return Count(
        parameters={
            "embeddings": config.vocab_size * D,
            "layers": recurrent_parameters(layers),
            "readout": linear_parameters(D, D),
            "head": 0,
        },
        flops_per_token={"any": Flops(matrices=recurrent_flops(layers) + 2 * D * D + 2 * D * config.vocab_size)},
        activations=activations,
        attention_matrices={},
        matrices_held=(),
        cache={"state": B * parts * config.depth * D},
        scores=B * T * config.vocab_size,
        notes=notes(config.cell, at),
    )


@register_count(Seq2SeqConfig)
def seq2seq(config: Seq2SeqConfig, at: Setting) -> Count:
    """A bidirectional encoder, a bridge for each sentence, a decoder that may look back."""
    T, S, B, D = at.length, at.source_length, at.batch, config.dim
    parts = 2 if config.cell == "lstm" else 1
    additive, looks = config.score == "additive", config.score != "none"
    encoder, decoder = recurrent_sizes(config)
    attention = {"none": 0, "additive": linear_parameters(D, D) + D * D + D, "dot": 0, "general": D * D}
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
        notes=notes(config.cell, at),
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
