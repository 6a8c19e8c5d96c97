"""The rule of the captioner: convolutions once a picture, then one of two decoders that reads their places."""

from dataclasses import replace

from regard.cost.attention import attention_parameters, kernel_costs, key_flops, query_flops, widths
from regard.cost.count import Count, Flops, Setting, register_count
from regard.cost.pieces import linear_parameters
from regard.cost.recurrent import seq2seq
from regard.cost.stack import (
    attention_of,
    embedding_kept,
    norms_parameters,
    position_of,
    stack_flops,
    stack_kept,
    stack_live,
    stack_notes,
    stack_parameters,
)
from regard.models.captioner import CaptionerConfig
from regard.nn.patches import sides


@register_count(CaptionerConfig)
def captioner(config: CaptionerConfig, at: Setting) -> Count:
    """What is seen is seen once; words are as many as the setting says."""
    rows, columns = config.grid
    at = replace(at, source_length=rows * columns)
    decoder = recurrent_decoder(config, at) if config.decoder == "recurrent" else transformer_decoder(config, at)
    parameters, flops, kept = eye(config)
    activations = decoder.activations
    if at.training:
        activations = {"convolutions": at.batch * kept} | activations
    return replace(
        decoder,
        parameters={"convolutions": parameters, "places": rows * columns * config.dim} | decoder.parameters,
        flops_per_sequence=flops + decoder.flops_per_sequence,
        activations=activations,
    )


def eye(config: CaptionerConfig) -> tuple[int, int, int]:
    """Parameters of the convolutions, FLOPs of a picture, and numbers kept of it in training."""
    halvings, channels = len(config.widths), config.channels
    rows, columns = (side + -side % 2**halvings for side in sides(config.image))
    parameters = flops = 0
    kept = channels * rows * columns
    for i, width in enumerate(config.widths):
        if i:  # at the finer grid
            parameters += linear_parameters(9 * channels, channels)
            flops += 2 * 9 * channels * channels * rows * columns
            kept += channels * rows * columns
        rows, columns = rows // 2, columns // 2
        parameters += linear_parameters(16 * channels, width) + 2 * width
        flops += 2 * 16 * channels * width * rows * columns
        kept += (2 * width + 2) * rows * columns  # the norm's input and statistics, and what is left of it
        channels = width
    parameters += linear_parameters(channels, config.dim)
    return parameters, flops + 2 * channels * config.dim * rows * columns, kept


def recurrent_decoder(config: CaptionerConfig, at: Setting) -> Count:
    """As in seq2seq, with places for words that were read."""
    D, S, parts = config.dim, at.source_length, 2 if config.cell == "lstm" else 1
    count = seq2seq(config.recurrent, at)
    keys = 2 * D * D * S if config.score == "additive" else 0
    kept = {name: number for name, number in count.activations.items() if name != "encoder"}
    if at.training:
        kept["embeddings"] = at.batch * at.length * (D if config.dropout else 0)
    parameters = {name: number for name, number in count.parameters.items() if name not in ("encoder", "bridge")}
    return replace(
        count,
        parameters=parameters | {"first_state": parts * linear_parameters(D, D)},
        flops_per_token={"any": count.flops_per_token["target"]},
        flops_per_sequence=count.flops_per_sequence + keys,
        activations=kept,
    )


def transformer_decoder(config: CaptionerConfig, at: Setting) -> Count:
    """The decoder of a Transformer; keys and values of the places are made once."""
    T, S, B, depth = at.length, at.source_length, at.batch, config.depth
    position, final = position_of(config, T), config.norm_place == "pre"
    own, cross = attention_of(config, causal=True), attention_of(config, cross=True)
    kernel, looks = kernel_costs[config.kernel], kernel_costs[cross.kernel]
    table = config.vocab_size * config.dim
    stack = stack_parameters(config, depth=depth, final=final)
    looking = Flops(matrices=query_flops(cross), attention=looks.score_flops(cross, S)) * depth
    around = Flops(matrices=2 * (position.matrix(config.dim) + table))
    summary = looks.summary_flops(cross) * depth * S
    if at.training:
        activations = {
            "embeddings": B * T * embedding_kept(config, position, config.dim, normed=False),
            "decoder": stack_kept(
                config, position, depth=depth, batch=B, length=T, context=S, causal=True, final=final
            ),
        }  # fmt: skip
    else:
        activations = {"widest_layer": stack_live(config, position, batch=B, length=T, context=S, causal=True)}
    return Count(
        parameters={
            "embeddings": table,
            "positions": position.parameters(config, config.dim),
            "self_attention": stack["attention"],
            "cross_attention": depth * attention_parameters(cross),
            "feedforward": stack["feedforward"],
            "norms": norms_parameters(config, depth=depth, parts=3, final=final),
            "head": 0,
        },
        flops_per_token={"any": stack_flops(config, depth=depth, keys=T, causal=True) + looking + around},
        flops_per_sequence=key_flops(cross) * depth * S + summary,
        attention_per_sequence=summary,
        activations=activations,
        attention_matrices={
            "decoder_self": B * config.heads * T * T * depth,
            "decoder_cross": B * config.heads * T * S * depth,
        },
        matrices_held=tuple(
            kind
            for kind, layer in {"decoder_self": own, "decoder_cross": cross}.items()
            if kernel_costs[layer.kernel].holds(layer, position, training=at.training)
        ),
        cache={"self": depth * B * kernel.cache(own, T), "cross": depth * B * S * 2 * widths(cross)[1]},
        scores=B * T * config.vocab_size,
        notes=stack_notes(config, training=at.training),
    )
