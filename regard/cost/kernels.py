"""What the kernels cost that do not look at every key, or not at all of them at once."""

from dataclasses import replace

from regard.cost.attention import KernelCost, Layer, kernel_costs, kernel_settings, widths
from regard.cost.pieces import PositionCost
from regard.nn.attention import AttentionConfig
from regard.nn.kernels.parts import Group, band, block


class Chunked(KernelCost):
    """Goes chunk by chunk, whose insides are computed again in the backward pass, and never holds the matrix."""

    def holds(self, config: AttentionConfig, position: PositionCost, *, training: bool) -> bool:
        return False

    def repeated(self, layer: Layer) -> int:
        """Keys and values for each query head, where heads share them."""
        return 2 * layer.repeated if layer.key_width < layer.inner else 0

    def kept(self, layer: Layer) -> int:
        """What goes into the chunks."""
        return layer.q + (self.repeated(layer) or 2 * layer.k + layer.turned)


class TopK(Chunked):
    """All scores, of a chunk of queries at a time."""

    def live(self, layer: Layer) -> int:
        """Mixed values so far, and a chunk's scores: masked, without all but the best, as weights."""
        rows = min(layer.queries, kernel_settings(layer.config)["chunk"])
        return self.repeated(layer) + layer.q + 4 * layer.batch * layer.config.heads * rows * layer.keys


class Linear(Chunked):
    """Queries and keys become features, keys with their values a state; hiding the future, one for each chunk."""

    def features(self, config: AttentionConfig) -> int:
        """Of all heads."""
        return widths(config)[0]

    def products(self, config: AttentionConfig) -> int:
        """FLOPs of one vector's features."""
        return 0

    def cache(self, config: AttentionConfig, length: int) -> int:
        """The state, whatever the length: values and a 1 beside them, for each feature."""
        return self.features(config) * (widths(config)[0] // config.heads + 1)

    def score_flops(self, config: AttentionConfig, keys: int) -> int:
        """Its features, what it reads from the state and, of its own chunk, features and values met."""
        near = 0
        if "causal" in config.needs:
            chunk = min(kernel_settings(config)["chunk"], keys)
            near = chunk * (self.features(config) + widths(config)[0] + config.heads)
        return self.products(config) + 2 * (self.cache(config, keys) + near)

    def summary_flops(self, config: AttentionConfig) -> int:
        """Its features, and what it adds to the state."""
        return self.products(config) + 2 * self.cache(config, 1)

    def states(self, layer: Layer) -> int:
        """Those before each chunk of keys; and the last, where queries come only then."""
        chunks = -(-layer.keys // kernel_settings(layer.config)["chunk"])
        return layer.batch * (chunks if layer.causal else chunks + 1) * self.cache(layer.config, layer.keys)

    def kept(self, layer: Layer) -> int:
        return super().kept(layer) + self.states(layer)

    def live(self, layer: Layer) -> int:
        """Two states, mixed values, a chunk's features and products; or all mixed values twice, in another layout."""
        config, rows = layer.config, min(layer.queries, kernel_settings(layer.config)["chunk"])
        products = 2 * rows * config.heads if layer.causal else 0
        features = self.features(config)  # being made, or of queries and keys while they are multiplied
        inside = layer.batch * rows * (max(3 * features, 2 * features + products) + layer.inner)
        states = 2 * layer.batch * self.cache(config, layer.keys)
        held = states + layer.q if layer.causal else max(states, layer.q)
        return self.repeated(layer) + max(inside + held, 2 * layer.q)


class Performer(Linear):
    """Features are products with drawn directions."""

    def features(self, config: AttentionConfig) -> int:
        return config.heads * (kernel_settings(config)["features"] or max(256, 4 * widths(config)[0] // config.heads))

    def products(self, config: AttentionConfig) -> int:
        return 2 * self.features(config) * widths(config)[0] // config.heads


class Linformer(Chunked):
    """Keys and values are mixed into `rank` slots, at which PyTorch's fused kernel then looks."""

    def slots(self, config: AttentionConfig, keys: int = 1) -> int:
        if keys > config.max_len:
            raise ValueError(
                f"linformer learns to mix max_len={config.max_len} positions, got {keys}; use a larger max_len"
            )
        return min(kernel_settings(config)["rank"], config.max_len)

    def parameters(self, config: AttentionConfig) -> int:
        return 2 * self.slots(config) * config.max_len

    def score_flops(self, config: AttentionConfig, keys: int) -> int:
        return super().score_flops(config, self.slots(config, keys))

    def summary_flops(self, config: AttentionConfig) -> int:
        """Into each slot its key and its value; and whether it is there at all."""
        return 2 * self.slots(config) * (2 * widths(config)[1] + 1)

    def kept(self, layer: Layer) -> int:
        """Queries, what is mixed and the slots, a number for each query. Slots that no key goes into, as an untrained
        model has them beyond the length, are hidden by a mask that is not counted."""
        slots = self.slots(layer.config, layer.keys)
        if layer.config.dropout:  # weights before it, its noise, weights after it; heads repeated
            looks = 2 * layer.batch * slots * layer.inner + 3 * layer.rows * slots
        else:
            looks = 2 * layer.batch * slots * layer.key_width + layer.rows
        return layer.q + 2 * layer.k + looks

    def live(self, layer: Layer) -> int:
        """Keys and values without the hidden ones; then one in another layout, or the mixed values; slots, and which
        key goes into which."""
        slots = self.slots(layer.config, layer.keys)
        return 2 * layer.k + max(layer.k, layer.q) + slots * (3 * layer.batch * layer.key_width + layer.keys)


class Tiled(Chunked):
    """Exact attention over parts, each cut into tiles; what lies in a tile is computed, hidden or not."""

    def parts(self, config: AttentionConfig, length: int) -> list[tuple[int, list[Group]]]:
        """As its kernel's: how many lanes each has, and the groups of tiles in one of them."""
        raise NotImplementedError

    def sides(self, config: AttentionConfig) -> int:
        """In how many directions a query looks."""
        return 1 if "causal" in config.needs else 2

    def score_flops(self, config: AttentionConfig, keys: int) -> int:
        pairs = sum(
            lanes * group.count * group.size * group.width
            for lanes, groups in self.parts(config, keys)
            for group in groups
        )
        return super().score_flops(config, pairs) // keys

    def kept(self, layer: Layer) -> int:
        """Queries, keys, values and a number for each query; under a bias also what lies in the tiles."""
        if not layer.biased:
            return layer.q + 2 * layer.k + layer.turned + layer.rows
        parts = self.parts(layer.config, layer.keys)
        tiles = sum(
            lanes * group.count * self.tile(layer, group, weights=3) for lanes, groups in parts for group in groups
        )
        joined = 2 * layer.q + 4 * layer.rows  # of two: each one's values and sums, its shares
        return layer.batch * tiles + (len(parts) - 1) * joined

    def tile(self, layer: Layer, group: Group, *, weights: int) -> int:
        """Of one tile: its keys and values, queries and their sums, and its weights so many times."""
        heads = layer.config.heads
        return 2 * group.width * layer.inner + group.size * (layer.inner + heads + weights * heads * group.width)

    def live(self, layer: Layer) -> int:
        """The widest group of tiles with its results, beside what the parts before it found; or two being joined."""
        parts, widest = self.parts(layer.config, layer.keys), 0
        for before, (lanes, groups) in enumerate(parts):
            group = max(groups, key=lambda group: group.count)
            tiles = layer.batch * lanes * group.count
            inside = tiles * (self.tile(layer, group, weights=2 if layer.biased else 0) + group.size * layer.inner)
            if not layer.biased:  # the mask as well
                inside += tiles * group.size * group.width
            if not layer.biased and layer.batch * lanes == 1 and layer.key_width == layer.inner:  # keys are not copied
                inside -= 2 * (group.count - 1) * (group.width - group.size) * layer.inner
            if not layer.biased and len(groups) == group.count == lanes == 1 and layer.key_width == layer.inner:
                inside -= tiles * (2 * group.width + group.size) * layer.inner  # one tile is everything as it stands
            arranged = layer.q + 2 * layer.k if lanes > 1 else 0
            results = layer.q * (min(before, 1) + (2 if layer.biased else 1))
            widest = max(widest, inside + arranged + results)
        return max(widest, 4 * layer.q)


class Window(Tiled):
    def parts(self, config: AttentionConfig, length: int) -> list[tuple[int, list[Group]]]:
        at = kernel_settings(config)
        after = at["radius"] * (self.sides(config) - 1)
        return [(1, band(length, length, before=at["radius"], after=after, chunk=at["chunk"]))]


class Sparse(Tiled):
    """Near keys, those in the same lane of a stride, and a few that everyone sees and that see everyone."""

    def parts(self, config: AttentionConfig, length: int) -> list[tuple[int, list[Group]]]:
        at, behind = kernel_settings(config), self.sides(config) - 1
        some = dict(chunk=at["chunk"])
        in_lane, tokens = -(-length // at["stride"]), min(at["tokens"], length)
        found = [
            (1, band(length, length, before=at["radius"], after=at["radius"] * behind, **some)),
            (
                at["stride"],
                band(in_lane, in_lane, before=at["far"], after=at["far"] * behind, lanes=at["stride"], **some),
            ),
        ]
        found += [(1, block(length, tokens))] if tokens else []
        return found + ([(1, block(tokens, length))] if tokens and behind else [])


class Reformer(Tiled):
    """Rounds of tiles over tokens sorted by their hash, a head at a time; q and k are one."""

    def parts(self, config: AttentionConfig, length: int) -> list[tuple[int, list[Group]]]:
        at = kernel_settings(config)
        after = at["reach"] * (self.sides(config) - 1)
        return at["rounds"] * [(1, band(length, length, before=at["reach"], after=after, chunk=at["chunk"]))]

    def summary_flops(self, config: AttentionConfig) -> int:
        at = kernel_settings(config)
        return widths(config)[0] * at["rounds"] * at["buckets"]

    def kept(self, layer: Layer) -> int:
        """q, v, keys of length 1 and their lengths, each head's results; each round's order, in whole numbers of twice
        the size and of the same, and in that order the places of all rounds."""
        rounds = kernel_settings(layer.config)["rounds"]
        return 4 * layer.q + 3 * layer.rows + layer.rows * rounds * (rounds + 3)

    def live(self, layer: Layer) -> int:
        """Keys of length 1, then all hashes, or one head sorted and in tiles behind the results of those before it."""
        at = kernel_settings(layer.config)
        hashes = 2 * layer.rows * at["rounds"] * at["buckets"]
        head = replace(layer, config=replace(layer.config, heads=1, head_dim=layer.inner // layer.config.heads))
        padded = 0 if layer.causal else layer.q
        return layer.q + max(hashes, padded + layer.q + 3 * head.q + super().live(head))


for _name, _cost in {
    "topk": TopK(), "linear": Linear(), "performer": Performer(), "linformer": Linformer(), "window": Window(),
    "sparse": Sparse(), "reformer": Reformer(),
}.items():  # fmt: skip
    kernel_costs.register(_name)(_cost)
