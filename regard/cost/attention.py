"""What attention costs: the layer around a kernel, and the kernels that look at every key. `kernels.py` has the others.

The words are those of `pieces.py`.
"""

from dataclasses import dataclass
from typing import Any

from regard.cost.pieces import PositionCost, linear_parameters, settings
from regard.nn.attention import AttentionConfig
from regard.registry import Registry, kernels


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """An attention layer at work, and the sizes of what it holds."""

    config: AttentionConfig
    """Its widths and kernel."""
    position: PositionCost
    """The stack's position scheme."""
    batch: int
    """Sequences at once."""
    queries: int
    """Of each."""
    keys: int
    """Of each."""
    own: bool
    """Whether keys come from the queries' own input."""

    @property
    def inner(self) -> int:
        return widths(self.config)[0]

    @property
    def key_width(self) -> int:
        return widths(self.config)[1]

    @property
    def causal(self) -> bool:
        return "causal" in self.config.needs

    @property
    def biased(self) -> bool:
        return "biased" in self.config.needs

    @property
    def rows(self) -> int:
        """One number for each query and head."""
        return self.batch * self.queries * self.config.heads

    @property
    def q(self) -> int:
        """All queries, or as many mixed values."""
        return self.batch * self.queries * self.inner

    @property
    def k(self) -> int:
        """All keys, or all values."""
        return self.batch * self.keys * self.key_width

    @property
    def repeated(self) -> int:
        """All keys, once for each query head."""
        return self.batch * self.keys * self.inner

    @property
    def turned(self) -> int:
        """Keys that a position turns: a copy, beside the tensor that they and their values came from."""
        return self.k if self.own and self.position.turns else 0


class KernelCost:
    """What a kernel adds to the projections around it: this one is full attention by PyTorch's fused kernel."""

    multiplies = False
    """Its parameters are a matrix that queries are multiplied with, before the fused kernel."""
    normalizes = False
    """Makes normalised copies of q and k, before the fused kernel."""
    pairwise = False
    """Scores are no plain product: head_dim numbers for each query and key, and the whole matrix of weights."""

    def parameters(self, config: AttentionConfig) -> int:
        return 0

    def score_flops(self, config: AttentionConfig, keys: int) -> int:
        """Of one query over `keys` keys: scores and mixed values. A mask is not credited: it hides half at most."""
        return 2 * 2 * widths(config)[0] * keys

    def summary_flops(self, config: AttentionConfig) -> int:
        """Of one key: what is made of it before any query looks."""
        return 0

    def cache(self, config: AttentionConfig, length: int) -> int:
        """Kept of one sequence between the steps of decoding."""
        return length * 2 * widths(config)[1]

    def holds(self, config: AttentionConfig, position: PositionCost, *, training: bool) -> bool:
        """Whether the whole matrix of weights ever stands in memory; the fused kernel goes tile by tile."""
        trained = "biased" in config.needs and position.trained_bias
        return self.pairwise or (training and bool(config.dropout or trained))

    def kept(self, layer: Layer) -> int:
        """Behind the first projections and before the last, the mask included."""
        config, fused = layer.config, not self.holds(layer.config, layer.position, training=True)
        kept = 0
        if (
            self.multiplies
        ):  # queries before the matrix, the matrix repeated for the batch, another layout of the output
            kept += layer.q * (2 if fused else 1) + layer.batch * self.parameters(config)
        if self.normalizes:  # what was normalised (keys stand in one tensor with values), its lengths, the new keys
            kept += layer.q + layer.rows + layer.batch * layer.keys * (config.kv_heads or config.heads)
            kept += layer.k if fused else layer.turned or 2 * layer.k
        if fused:
            return kept + layer.q + 2 * layer.k + layer.turned + layer.rows + mask_numbers(layer)
        if self.pairwise:  # values, the tanh of all sums; repeated heads change the layout, which costs a copy of it
            kept += layer.repeated + layer.q * layer.keys * (2 if layer.key_width < layer.inner else 1)
        else:  # queries, keys and values, the heads of the last two repeated
            kept += layer.q + 2 * layer.repeated
        weights = 3 if config.dropout else 2 if self.pairwise else 1  # with dropout: before, the noise, after
        return kept + weights * layer.rows * layer.keys

    def live(self, layer: Layer) -> int:
        """Beside queries, keys and values: the mixed values, and the mask or what the kernel needs."""
        live = layer.q
        live += layer.q + layer.batch * self.parameters(layer.config) if self.multiplies else 0
        live += layer.q + layer.k if self.normalizes else 0
        if self.pairwise:  # all sums and their tanh
            return live + layer.q * layer.keys * (3 if layer.key_width < layer.inner else 2)
        once = layer.config.heads * layer.queries * layer.keys if layer.biased else 0
        return live + once + mask_numbers(layer)


class Normalized(KernelCost):
    normalizes = True


class Cosine(Normalized):
    def parameters(self, config: AttentionConfig) -> int:
        return config.heads


class General(KernelCost):
    multiplies = True

    def parameters(self, config: AttentionConfig) -> int:
        return widths(config)[0] ** 2 // config.heads


class Additive(KernelCost):
    pairwise = True

    def parameters(self, config: AttentionConfig) -> int:
        return widths(config)[0]


kernel_costs = Registry("kernel cost", "; state your own's with regard.cost.attention.kernel_costs.register")
kernel_costs.register("full")(KernelCost())
kernel_costs.register("dot")(KernelCost())
kernel_costs.register("normalized")(Normalized())
kernel_costs.register("cosine")(Cosine())
kernel_costs.register("general")(General())
kernel_costs.register("additive")(Additive())


def kernel_settings(config: AttentionConfig) -> dict[str, Any]:
    return settings(kernels, config.kernel)


def mask_numbers(layer: Layer) -> int:
    """Of the mask or bias that the fused kernel is given; causality alone needs none."""
    size = layer.queries * layer.keys
    if layer.biased:  # joined with the padding's mask, each row of the batch has its own
        return (1 if layer.causal else layer.batch) * layer.config.heads * size
    return 0 if layer.causal else layer.batch * size


def widths(config: AttentionConfig) -> tuple[int, int, int]:
    """Width of all queries together, of all keys together, and of the context that keys are made from."""
    head_dim = config.head_dim or config.dim // config.heads
    return config.heads * head_dim, (config.kv_heads or config.heads) * head_dim, config.context_dim or config.dim


def key_value_width(config: AttentionConfig) -> int:
    """What is projected for each position of the context: values, and keys where they are not the queries."""
    return widths(config)[1] * (1 if kernels[config.kernel].shares else 2)


def attention_parameters(config: AttentionConfig) -> int:
    """The four projections and what the kernel trains."""
    inner, _, context_dim = widths(config)
    return (
        linear_parameters(config.dim, inner, config.bias)
        + linear_parameters(context_dim, key_value_width(config), config.bias)
        + linear_parameters(inner, config.dim, config.bias)
        + kernel_costs[config.kernel].parameters(config)
    )


def query_flops(config: AttentionConfig) -> int:
    """Of one query: its projection, the output's, and the kernel's matrix where it has one."""
    kernel = kernel_costs[config.kernel]
    return 2 * (2 * config.dim * widths(config)[0] + (kernel.parameters(config) if kernel.multiplies else 0))


def key_flops(config: AttentionConfig) -> int:
    """Of one position of the context: its key and value."""
    return 2 * key_value_width(config) * widths(config)[2]


def attention_kept(config: AttentionConfig, position: PositionCost, **sizes: Any) -> int:
    """Of one layer and batch, with inputs of the first and the last projection; `sizes` are those of a Layer."""
    layer = Layer(config=config, position=position, **sizes)
    return layer.batch * layer.queries * config.dim + layer.q + kernel_costs[config.kernel].kept(layer)


def attention_live(config: AttentionConfig, position: PositionCost, **sizes: Any) -> int:
    """Of one layer and batch, without gradients: q, k, v and what the kernel makes of them."""
    layer = Layer(config=config, position=position, **sizes)
    projected = layer.q + layer.batch * layer.keys * key_value_width(config)
    turned = 0 if kernels[config.kernel].shares else layer.turned
    return projected + turned + kernel_costs[config.kernel].live(layer)
