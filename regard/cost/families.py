"""The rules of the families made of blocks: which pieces each has, how many, and over which tokens they run."""

from regard.cost.attention import attention_parameters, kernel_costs, key_flops, query_flops, widths
from regard.cost.count import Count, Flops, Setting, register_count
from regard.cost.pieces import PositionCost, linear_parameters, norm_kept, norm_parameters
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
from regard.models.bert import BertConfig
from regard.models.gpt import GPTConfig
from regard.models.transformer import TransformerConfig


@register_count(TransformerConfig)
def transformer(config: TransformerConfig, at: Setting) -> Count:
    """Encoder and decoder stacks; keys and values for cross-attention are made once for each source token."""
    T, S, B = at.length, at.source_length, at.batch
    position = position_of(config, T, S)
    depth, decoder_depth = config.depth, config.decoder_blocks
    encoder_own, own = attention_of(config), attention_of(config, causal=True)
    cross = attention_of(config, cross=True)
    kernel, looks = kernel_costs[config.kernel], kernel_costs[cross.kernel]
    table = config.vocab_size * config.dim
    encoder = stack_parameters(config, depth=depth, final=config.ends_with_norm)
    decoder = stack_parameters(config, depth=decoder_depth, final=config.ends_with_norm)
    placed = Flops(matrices=2 * position.matrix(config.dim))
    reading = Flops(matrices=key_flops(cross), attention=looks.summary_flops(cross)) * decoder_depth
    looking = Flops(matrices=query_flops(cross), attention=looks.score_flops(cross, S)) * decoder_depth
    reads = stack_flops(config, depth=depth, keys=S, causal=False)
    writes = stack_flops(config, depth=decoder_depth, keys=T, causal=True)
    _, key_width, _ = widths(cross)
    return Count(
        parameters={
            "embeddings": table * (1 if config.tie in ("all", "inputs") else 2),
            "positions": 2 * position.parameters(config, config.dim),
            "embedding_norms": 2 * norm_parameters(config.norm, config.dim) if config.embedding_norm else 0,
            "encoder_attention": encoder["attention"],
            "encoder_feedforward": encoder["feedforward"],
            "encoder_norms": encoder["norms"],
            "decoder_self_attention": decoder["attention"],
            "decoder_cross_attention": decoder_depth * attention_parameters(cross),
            "decoder_feedforward": decoder["feedforward"],
            "decoder_norms": norms_parameters(config, depth=decoder_depth, parts=3, final=config.ends_with_norm),
            "head": (table if config.tie in ("none", "inputs") else 0) + (config.vocab_size if config.head_bias else 0),
        },
        flops_per_token={
            "source": placed + reads + reading,
            "target": placed + writes + looking + Flops(matrices=2 * table),
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
            if kernel_costs[layer.kernel].holds(layer, position, training=at.training)
        ),
        cache={
            "self": decoder_depth * B * kernel.cache(own, T),
            "cross": decoder_depth * B * S * 2 * key_width,
        },
        scores=B * T * config.vocab_size,
        notes=stack_notes(config, training=at.training),
    )


def transformer_activations(config: TransformerConfig, position: PositionCost, at: Setting) -> dict[str, int]:
    """Kept by each part in training; otherwise the widest layer of the two stacks."""
    B, T, S = at.batch, at.length, at.source_length
    if not at.training:
        encoding = stack_live(config, position, batch=B, length=S, causal=False)
        decoding = stack_live(config, position, batch=B, length=T, context=S, causal=True)
        return {"widest_layer": max(encoding, decoding)}
    depth, final = config.decoder_blocks, config.ends_with_norm
    return {
        "embeddings": B * (S + T) * embedding_kept(config, position, config.dim, normed=config.embedding_norm),
        "encoder": stack_kept(config, position, depth=config.depth, batch=B, length=S, causal=False, final=final),
        "decoder": stack_kept(config, position, depth=depth, batch=B, length=T, context=S, causal=True, final=final),
    }


@register_count(GPTConfig)
def gpt(config: GPTConfig, at: Setting) -> Count:
    """One stack, which sees only the past."""
    T, B, depth = at.length, at.batch, config.depth
    position, own = position_of(config, T), attention_of(config, causal=True)
    kernel, table = kernel_costs[config.kernel], config.vocab_size * config.dim
    if at.training:
        activations = {
            "embeddings": B * T * embedding_kept(config, position, config.dim, normed=False),
            "stack": stack_kept(config, position, depth=depth, batch=B, length=T, causal=True, final=config.final_norm),
        }
    else:
        activations = {"widest_layer": stack_live(config, position, batch=B, length=T, causal=True)}
    around = Flops(matrices=2 * (position.matrix(config.dim) + table))
    return Count(
        parameters={
            "embeddings": table,
            "positions": position.parameters(config, config.dim),
            **stack_parameters(config, depth=depth, final=config.final_norm),
            "head": 0 if config.tie else table,
        },
        flops_per_token={"any": stack_flops(config, depth=depth, keys=T, causal=True) + around},
        activations=activations,
        attention_matrices={"self": B * config.heads * T * T * depth},
        matrices_held=("self",) if kernel.holds(own, position, training=at.training) else (),
        cache={"self": depth * B * kernel.cache(own, T)},
        scores=B * T * config.vocab_size,
        notes=stack_notes(config, training=at.training),
    )


@register_count(BertConfig)
def bert(config: BertConfig, at: Setting) -> Count:
    """One stack, which sees both sides; a shared block is stored once and runs at every depth."""
    T, B, D = at.length, at.batch, config.dim
    width = config.embedding_dim or D
    position, own = position_of(config, T), attention_of(config)
    final = config.norm_place == "pre"
    widen = linear_parameters(width, D) if config.embedding_dim is not None else 0
    head, per_token, per_text = bert_head(config, width)
    hides = config.task in ("mask", "pretrain")
    note = "the head is counted for every token; in training only hidden tokens reach it"
    return Count(
        parameters={
            "embeddings": config.vocab_size * width,
            "positions": position.parameters(config, width),
            "types": config.types * width,
            "embedding_norm": norm_parameters(config.norm, width),
            "widening": widen,
            **stack_parameters(config, depth=1 if config.shared else config.depth, final=final),
            "pooler": linear_parameters(D, D) if config.pooler else 0,
            "head": head,
        },
        flops_per_token={
            "any": stack_flops(config, depth=config.depth, keys=T, causal=False)
            + Flops(matrices=2 * (position.matrix(width) + (width * D if widen else 0) + per_token))
        },
        flops_per_sequence=2 * per_text,
        activations=bert_activations(config, position, at),
        attention_matrices={"self": B * config.heads * T * T * config.depth},
        matrices_held=("self",) if kernel_costs[config.kernel].holds(own, position, training=at.training) else (),
        cache={},
        scores=B * T * config.vocab_size if hides else 0,
        notes=stack_notes(config, training=at.training) + ((note,) if hides and at.training else ()),
    )


def bert_head(config: BertConfig, width: int) -> tuple[int, int, int]:
    """Parameters of what reads the vectors, and entries of its matrices: used for each token, and once a text."""
    D, labels = config.dim, len(config.labels) or 2
    if config.task in ("mask", "pretrain"):
        pair = config.task == "pretrain"
        words = linear_parameters(D, width) + norm_parameters(config.norm, width) + config.vocab_size
        once = D * D + 2 * D if pair else 0
        return words + (linear_parameters(D, 2) if pair else 0), (D + config.vocab_size) * width, once
    if config.task == "none":
        return 0, 0, 0
    pooled = config.task == "classify"
    return linear_parameters(D, labels), 0 if pooled else D * labels, D * D + D * labels if pooled else 0


def bert_activations(config: BertConfig, position: PositionCost, at: Setting) -> dict[str, int]:
    """Kept by each part in training; otherwise the widest layer."""
    T, B, D = at.length, at.batch, config.dim
    if not at.training:
        return {"widest_layer": stack_live(config, position, batch=B, length=T, causal=False)}
    width, final = config.embedding_dim or D, config.norm_place == "pre"
    widened = width if config.embedding_dim is not None else 0
    noise = D if config.dropout else 0
    kept = {
        "embeddings": B * T * (embedding_kept(config, position, width, normed=True) + widened),
        "stack": stack_kept(config, position, depth=config.depth, batch=B, length=T, causal=False, final=final),
        "head": 0,
    }
    if config.task in ("mask", "pretrain"):
        activated = 0 if config.activation == "relu" else width  # ReLU's result is the norm's input
        kept["head"] = B * T * (activated + norm_kept(config.norm, width) + width)
    if config.task == "pretrain":
        kept["head"] += B * D
    if config.task == "classify":
        kept["head"] = B * (D + 2 * noise)
    if config.task in ("tag", "answer"):
        kept["head"] = B * T * noise
    return kept
