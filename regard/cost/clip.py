"""The rule of CLIP: a tower for pictures and one for texts."""

from regard.cost.attention import kernel_costs
from regard.cost.captioner import eye
from regard.cost.count import Count, Setting, register_count
from regard.cost.images import vit
from regard.cost.pieces import norm_kept, norm_parameters
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
from regard.models.captioner import CaptionerConfig
from regard.models.clip import CLIPConfig
from regard.nn.patches import grid_of


@register_count(CLIPConfig)
def clip(config: CLIPConfig, at: Setting) -> Count:
    """Pictures with as many texts, each as long as the model is planned for, and the products of all with all."""
    picture, text, T, B = vit(config.vision, at), config.text, config.max_len, at.batch
    D, E, N, depth, final = config.dim, config.embedding_dim, text.dim, config.text_depth, config.norm_place == "pre"
    position, own = position_of(text, T), attention_of(text, causal=True)
    holds = kernel_costs[text.kernel].holds(own, position, training=at.training)
    reads = stack_flops(text, depth=depth, keys=T, causal=True)
    placed = position.matrix(N) * T
    projected = (D + N) * E + B * E
    (rows, columns), patches = grid_of(config.image, config.patch), picture.parameters["patches"] - D
    first = kept = 0
    if config.stem:  # what the patches' one matrix would cost is taken off again
        whole = (rows * config.patch, columns * config.patch)
        patches, first, kept = eye(
            CaptionerConfig(image=whole, channels=config.channels, widths=config.stem, dim=D, heads=config.heads)
        )
        first -= 2 * rows * columns * config.channels * config.patch**2 * D
    if at.training:
        normed = B * config.tokens * norm_kept(config.norm, D)
        activations = {f"picture_{name}": number for name, number in picture.activations.items()} | {
            "picture_norm": normed,
            "picture_stem": B * kept,
            "text_embeddings": B * T * embedding_kept(text, position, N, normed=False),
            "text_stack": stack_kept(text, position, depth=depth, batch=B, length=T, causal=True, final=final),
        }
    else:
        widest = stack_live(text, position, batch=B, length=T, causal=True)
        activations = {"widest_layer": max(widest, picture.activations["widest_layer"])}
    return Count(
        parameters={
            **{f"picture_{name}": number for name, number in picture.parameters.items() if number},
            "picture_patches": patches,
            "picture_first_norm": norm_parameters(config.norm, D),
            "text_embeddings": config.vocab_size * N,
            "text_positions": position.parameters(text, N),
            **{f"text_{name}": number for name, number in stack_parameters(text, depth=depth, final=final).items()},
            "projections": (D + N) * E,
            "temperature": 1,
        },
        flops_per_token=picture.flops_per_token,
        flops_per_sequence=picture.flops_per_sequence + first + T * reads.forward + 2 * (placed + projected),
        attention_per_sequence=T * reads.attention,
        activations=activations,
        attention_matrices={
            "picture": picture.attention_matrices["self"],
            "text": B * text.heads * T * T * depth,
        },
        matrices_held=tuple("picture" for _ in picture.matrices_held) + (("text",) if holds else ()),
        cache={},
        scores=0,
        notes=(*stack_notes(text, training=at.training), f"texts of {T} tokens, one for each picture"),
    )
