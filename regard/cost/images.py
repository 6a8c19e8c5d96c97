"""The rules of the families that cut images into patches."""

from typing import Any

from regard.cost.attention import kernel_costs
from regard.cost.count import Count, Setting, register_count
from regard.cost.pieces import linear_parameters
from regard.cost.stack import (
    attention_of,
    embedding_kept,
    position_of,
    stack_flops,
    stack_kept,
    stack_live,
    stack_notes,
    stack_parameters,
)
from regard.models.mae import MAEConfig
from regard.models.vit import ViTConfig
from regard.nn.patches import sides


@register_count(ViTConfig)
def vit(config: ViTConfig, at: Setting) -> Count:
    """Patches, one stack that sees everything, and a head for each token that says something of the whole image."""
    config = config.sized
    T, B, D, depth = config.tokens, at.batch, config.dim, config.depth
    position, own, final = position_of(config, T), attention_of(config), config.norm_place == "pre"
    values, heads = config.channels * config.patch**2, 2 if config.teacher == "head" else bool(config.labels)
    labels, patches = len(config.labels), T - config.first
    read = heads * D * labels + (D * D if config.pooler else 0)
    placed = position.matrix(D) * patches
    if at.training:
        rows, columns = sides(config.image)
        activations = {
            "embeddings": B
            * (config.channels * rows * columns + T * embedding_kept(config, position, D, normed=False)),
            "stack": stack_kept(config, position, depth=depth, batch=B, length=T, causal=False, final=final),
        }
    else:
        activations = {"widest_layer": stack_live(config, position, batch=B, length=T, causal=False)}
    return Count(
        parameters={
            "patches": linear_parameters(values, D),
            "first_tokens": config.first * D,
            "positions": position.parameters(config, D),
            **stack_parameters(config, depth=depth, final=final),
            "pooler": linear_parameters(D, D) if config.pooler else 0,
            "head": heads * linear_parameters(D, labels),
        },
        flops_per_token={"any": stack_flops(config, depth=depth, keys=T, causal=False)},
        flops_per_sequence=2 * (patches * values * D + placed + read),
        activations=activations,
        attention_matrices={"self": B * config.heads * T * T * depth},
        matrices_held=("self",) if kernel_costs[config.kernel].holds(own, position, training=at.training) else (),
        cache={},
        scores=0,
        notes=stack_notes(config, training=at.training),
    )


@register_count(MAEConfig)
def mae(config: MAEConfig, at: Setting) -> Count:
    """The encoder runs on the visible patches, the decoder on all of them."""
    encoder, decoder, D = config.encoder.sized, config.decoder, config.dim
    T, B, seen, final = config.tokens, at.batch, config.visible + 1, config.norm_place == "pre"
    position, own = position_of(decoder, T), attention_of(decoder)
    body = vit(encoder, at)
    values = config.channels * config.patch**2
    light = stack_parameters(decoder, depth=config.decoder_depth, final=final)
    reads = stack_flops(encoder, depth=config.depth, keys=seen, causal=False)
    once = 2 * ((T - 1) * values * D + seen * D * decoder.dim + (T - 1) * decoder.dim * values)
    sizes: dict[str, Any] = dict(batch=B, causal=False)
    if at.training:
        kept: dict[str, Any] = dict(depth=config.depth, length=seen, final=final)
        activations = {
            "embeddings": body.activations["embeddings"],
            "encoder": stack_kept(encoder, position, **kept, **sizes),
            "decoder": stack_kept(decoder, position, depth=config.decoder_depth, length=T, final=final, **sizes),
        }
    else:
        widest = max(
            stack_live(encoder, position, length=seen, **sizes), stack_live(decoder, position, length=T, **sizes)
        )
        activations = {"widest_layer": widest}
    return Count(
        parameters={name: number for name, number in body.parameters.items() if name not in ("head", "pooler")}
        | {
            "narrowing": linear_parameters(D, decoder.dim),
            "blank": decoder.dim,
            "decoder_positions": position.parameters(decoder, decoder.dim),
            **{f"decoder_{name}": number for name, number in light.items()},
            "head": linear_parameters(decoder.dim, values),
        },
        flops_per_token={"any": stack_flops(decoder, depth=config.decoder_depth, keys=T, causal=False)},
        flops_per_sequence=once + seen * reads.forward,
        attention_per_sequence=seen * reads.attention,
        activations=activations,
        attention_matrices={
            "encoder": B * config.heads * seen**2 * config.depth,
            "decoder": B * decoder.heads * T**2 * config.decoder_depth,
        },
        matrices_held=("encoder", "decoder")
        if kernel_costs[config.kernel].holds(own, position, training=at.training)
        else (),
        cache={},
        scores=0,
        notes=stack_notes(decoder, training=at.training),
    )
