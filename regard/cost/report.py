"""Costs as text: aligned tables, sizes in decimal and binary units."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.cost.figures import Cost, Flops


def decimal_size(count: int) -> str:
    """Bytes in powers of 1000: `33.55 MB`."""
    return _scaled(count, 1000, ("B", "kB", "MB", "GB", "TB", "PB"))


def binary_size(count: int) -> str:
    """Bytes in powers of 1024: `32.00 MiB`."""
    return _scaled(count, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def quantity(count: int) -> str:
    """A large count: `88.08 M`."""
    return _scaled(count, 1000, ("", "k", "M", "G", "T", "P", "E", "Z"))


def _scaled(count: int, base: int, units: tuple[str, ...]) -> str:
    value, unit = float(count), 0
    while round(value, 2) >= base and unit < len(units) - 1:
        value, unit = value / base, unit + 1
    return (f"{value:.2f}" if unit else str(count)) + (f" {units[unit]}" if units[unit] else "")


def render(cost: "Cost") -> str:
    """The text that `regard cost` prints."""
    at, memory = cost.setting, cost.memory
    length = f"length {at.length}, " if cost.flops_per_token else ""  # convolutions have no tokens
    source = f"source length {at.source_length}, " if "source" in cost.flops_per_token else ""
    lines = [
        f"{cost.model}: batch {at.batch}, {length}{source}"
        f"{cost.bytes_per_number} bytes a number, {'training' if at.training else 'inference'}"
    ]
    lines += ["", "parameters", *(row("  " + words(part), f"{number:,}") for part, number in cost.parameters.items())]

    lines += ["", row("FLOPs", "matrices", "attention", "forward", "training")]
    for name, flops in cost.flops_per_token.items():
        lines.append(flops_row(f"  {name} token", flops))
    if cost.flops_per_sequence and cost.flops_per_token:
        once = cost.flops_per_sequence
        lines.append(row("  once a sequence", quantity(once), "0", quantity(once), quantity(3 * once)))
    lines.append(flops_row("  whole batch", cost.flops))

    held = {"weights": memory.weights}
    if at.training:
        held |= {"gradients": memory.gradients, "AdamW moments": memory.optimizer}
    held |= named("activations" if at.training else "working set", memory.activations)
    cache = named("cache", memory.cache)
    apart = named("attention matrices", memory.attention_matrices)
    if memory.scores:
        apart |= {"scores over the vocabulary": memory.scores}
    if at.training:
        apart = cache | apart
    else:
        held |= cache
    lines += ["", *sizes("memory", held | {"total": memory.total})]
    if apart:
        lines += ["", *sizes("not in the total", apart)]
    lines += ["", *notes(cost)]
    return "\n".join(lines)


def notes(cost: "Cost") -> list[str]:
    """Return the remarks printed below the tables."""
    lines = ["FLOPs: matrix products only, a multiply–add is 2; training is three times forward", *cost.notes]
    if cost.memory.attention_matrices:
        held = ", ".join(words(kind) for kind in cost.memory.matrices_held)
        lines.append(
            "attention matrices: what all layers would take; "
            + (f"really held: {held}" if held else "the kernel works piece by piece and holds none")
        )
    if cost.memory.scores:
        lines.append("scores: what all positions would take at once; the loss goes through them in chunks")
    return lines


def sizes(title: str, table: dict[str, int]) -> list[str]:
    rows = [row("  " + name, decimal_size(size), binary_size(size)) for name, size in table.items()]
    return [row(title, "decimal", "binary"), *rows]


def named(what: str, parts: dict[str, int]) -> dict[str, int]:
    return {f"{what}: {words(part)}": size for part, size in parts.items()}


def words(part: str) -> str:
    """Return the printed name of a part: "cross_attention" as "cross-attention"."""
    return part.replace("_attention", "-attention").replace("encoder-", "encoder ").replace("_", " ")


def flops_row(name: str, flops: "Flops") -> str:
    return row(name, *map(quantity, (flops.matrices, flops.attention, flops.forward, flops.training)))


def row(name: str, *columns: str) -> str:
    return (f"{name:<36}" + "".join(f"{column:>14}" for column in columns)).rstrip()
