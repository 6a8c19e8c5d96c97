"""The figures as text: columns that line up, sizes in both units."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.cost.count import Cost

DECIMAL = ("B", "kB", "MB", "GB", "TB", "PB")
BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def decimal_size(count: int) -> str:
    """Bytes in powers of 1000: `33.55 MB`."""
    return _scaled(count, 1000, DECIMAL)


def binary_size(count: int) -> str:
    """Bytes in powers of 1024: `32.00 MiB`."""
    return _scaled(count, 1024, BINARY)


def quantity(count: int) -> str:
    """A large count: `88.08 M`."""
    return _scaled(count, 1000, ("", "k", "M", "G", "T", "P", "E", "Z"))


def _scaled(count: int, base: int, units: tuple[str, ...]) -> str:
    value, unit = float(count), 0
    while round(value, 2) >= base and unit < len(units) - 1:
        value, unit = value / base, unit + 1
    return (f"{value:.2f}" if unit else str(count)) + (f" {units[unit]}" if units[unit] else "")


def render(cost: "Cost") -> str:
    """What `regard cost` prints."""
    at, memory = cost.setting, cost.memory
    lines = [
        f"{cost.model}: batch {at.batch}, length {at.length}, source length {at.source_length}, "
        f"{cost.bytes_per_number} bytes a number, {'training' if at.training else 'inference'}"
    ]
    lines += ["", row("parameters")] + [row(words(part), f"{n:,}") for part, n in cost.parameters.items()]

    lines += ["", row("FLOPs (a multiply–add is 2)", "matrices", "attention", "forward", "training")]
    rows = {f"{name} token": flops for name, flops in cost.flops_per_token.items()} | {"whole batch": cost.flops}
    for name, flops in rows.items():
        lines.append(row("  " + name, *map(quantity, (flops.matrices, flops.attention, flops.forward, flops.training))))

    held: dict[str, int] = {"weights": memory.weights}
    if at.training:
        held |= {"gradients": memory.gradients, "AdamW moments": memory.optimizer}
    kind = "activations" if at.training else "working set"
    held |= {f"{kind}: {words(part).strip()}": size for part, size in memory.activations.items()}
    cache = {f"cache: {words(part).strip()}": size for part, size in memory.cache.items()}
    apart = {f"attention matrices: {words(part).strip()}": size for part, size in memory.attention_matrices.items()}
    apart["scores over the vocabulary"] = memory.scores
    if at.training:
        apart = cache | apart
    else:
        held |= cache
    lines += ["", *sizes("memory", held | {"total": memory.total})]
    lines += ["", *sizes("apart from the total", apart), "", *(f"note: {note}" for note in notes(cost))]
    return "\n".join(lines)


def notes(cost: "Cost") -> list[str]:
    """What stands below the table."""
    found = list(cost.notes)
    if cost.memory.attention_matrices:
        found.append(
            "attention matrices are held by this kernel and setting"
            if cost.memory.matrices_held
            else "attention matrices are what holding all weights would take; the fused kernel does not"
        )
    found.append("scores are what all positions at once would take; the loss goes through them in chunks")
    return found


def sizes(title: str, table: dict[str, int]) -> list[str]:
    rows = [row("  " + name, decimal_size(size), binary_size(size)) for name, size in table.items()]
    return [row(title, "decimal", "binary"), *rows]


def words(part: str) -> str:
    return "  " + part.replace("_", " ").replace("feedforward", "feed-forward")


def row(name: str, *columns: str) -> str:
    return (f"{name:<36}" + "".join(f"{column:>14}" for column in columns)).rstrip()
