"""Cost formulas that lectures and papers quote; they need no config."""


def attention_entries(tokens: int, *, window: int | None = None) -> int:
    """Return the entries of one attention matrix: n², or n · window where each token attends to its window only."""
    return tokens * (tokens if window is None else window)


def attention_matrix_bytes(
    *, batch: int = 1, heads: int, queries: int, keys: int, layers: int = 1, bytes_per_number: int = 4
) -> int:
    """Return the bytes of all attention matrices, if they were materialised: B · H · T · S · layers numbers."""
    return batch * heads * queries * keys * layers * bytes_per_number


def patches(side: int, patch: int) -> int:
    """Tokens of a square image cut into square patches; patch 1 makes every pixel a token."""
    if side % patch:
        raise ValueError(f"patch={patch} does not divide side={side}; resize the image to a multiple of {patch}")
    return (side // patch) ** 2


def patch_values(patch: int, channels: int = 3) -> int:
    """Return the number of values in one patch."""
    return patch * patch * channels


def forward_flops(parameters: int, tokens: int = 1) -> int:
    """Return 2 · N · D: each weight takes part in one multiply–add per token; attention scores are left out."""
    return 2 * parameters * tokens


def training_flops(parameters: int, tokens: int) -> int:
    """Return 6 · N · D: the backward pass costs twice the forward pass (Kaplan et al., 2020)."""
    return 3 * forward_flops(parameters, tokens)


def hardware_flops(devices: int, flops_per_second: float, seconds: int | float) -> float:
    """The FLOPs that machines could have computed in that time: an upper bound, as the 2017 paper reports its cost."""
    return devices * flops_per_second * seconds


def decoder_parameters(depth: int, dim: int, vocab_size: int, context: int) -> int:
    """Return the parameters of a decoder-only model like GPT-2 and GPT-3: hidden width 4 · dim, all biases, learned
    positions, the output tied to the embedding."""
    attention = 4 * dim * dim + 4 * dim
    feedforward = 8 * dim * dim + 5 * dim
    return depth * (attention + feedforward + 4 * dim) + (vocab_size + context) * dim + 2 * dim
