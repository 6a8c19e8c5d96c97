"""Errors of approximations of full attention, by their number of features, rank or rounds."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.bench.measure import fit_exponent, show_fit
from regard.inside.draw.canvas import Target
from regard.inside.draw.curves import Panel, draw_growth
from regard.nn.kernels import build_kernel
from regard.nn.kernels.full import attend

if TYPE_CHECKING:
    import matplotlib.figure

LENGTH, HEADS, SIZE = 512, 4, 32
TINY = 1e-9
"""Errors below this are rounding."""
SPENDING: dict[str, tuple[str, tuple[int, ...]]] = {
    "performer": ("features", (16, 32, 64, 128, 256, 512, 1024, 2048)),
    "linformer": ("rank", (8, 16, 32, 64, 128, 256, 512)),
    "reformer": ("rounds", (1, 2, 4, 8, 16, 32)),
}
"""The setting that trades time for accuracy in each approximation, and its values."""
THEORY = {
    "performer": "the mean of random features: error ∝ features^−½",
    "linformer": "means of ever fewer neighbours: exact when rank is the length",
    "reformer": "every round finds keys that the others missed: exact when all pairs have met",
}


def measure_errors(draws: int = 8, seed: int = 0) -> dict[str, Any]:
    """Relative errors ‖approximation − full‖ / ‖full‖: their root mean square over `draws` random samples."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        kernels = [errors_of(name, draws) for name in SPENDING]
    return {"length": LENGTH, "heads": HEADS, "head_dim": SIZE, "draws": draws, "kernels": kernels}


def errors_of(name: str, draws: int) -> dict[str, Any]:
    """The errors of one kernel for each value of its setting."""
    setting, values = SPENDING[name]
    examples = [INPUTS[name]() for _ in range(draws)]
    points = []
    for value in values:
        squares = [relative_error(f"{name}:{setting}={value}", *example) ** 2 for example in examples]
        points.append({setting: value, "error": (sum(squares) / draws) ** 0.5})
    known = [{"length": point[setting], "error": point["error"]} for point in points[-5:] if point["error"] > TINY]
    fit = fit_exponent(known, "error")
    return {"kernel": name, "setting": setting, "points": points, "fit": fit, "theory": THEORY[name]}


def render_errors(result: Mapping[str, Any]) -> str:
    """The errors of each approximation in a line, with their theory."""
    lines = [f"‖approximation − full‖ / ‖full‖, {result['length']} tokens, heads of {result['head_dim']}"]
    for row in result["kernels"]:
        shown = "  ".join(f"{point[row['setting']]}: {point['error']:.3g}" for point in row["points"])
        lines += [
            "",
            f"{row['kernel']} by {row['setting']}   {show_fit(row['fit'])}",
            f"  {shown}",
            f"  {row['theory']}",
        ]
    return "\n".join(lines)


def draw_errors(result: Mapping[str, Any], path: Target) -> "matplotlib.figure.Figure":
    """Draws a panel for each approximation: error against its setting, both axes logarithmic."""
    panels = []
    for row in result["kernels"]:
        slopes = (-0.5,) if row["kernel"] == "performer" else ()
        panel = Panel(f"{row['kernel']} by {row['setting']}", "relative error", slopes=slopes, symbol=row["setting"])
        points = [(point[row["setting"]], point["error"]) for point in row["points"] if point["error"] > TINY]
        panel.add(row["kernel"], points, row["fit"]["exponent"] if row["fit"] else None)
        panels.append(panel)
    return draw_growth([panels], path, xlabel="setting")


@torch.no_grad()
def relative_error(name: str, q: Tensor, k: Tensor, v: Tensor) -> float:
    """The error against softmax attention over all keys; kernels with shared queries and keys exclude the own key."""
    kernel = build_kernel(name, heads=HEADS, head_dim=SIZE, max_len=LENGTH).double()
    wanted = without_own_key(q, v) if kernel.shares else F.scaled_dot_product_attention(q, k, v)
    out, _ = kernel(q, q if kernel.shares else k, v)
    return ((out - wanted).norm() / wanted.norm()).item()


def without_own_key(q: Tensor, v: Tensor) -> Tensor:
    """Attention with normalized queries as keys, in which no position attends to itself."""
    unit = F.normalize(q, dim=-1)
    others = ~torch.eye(q.shape[2], dtype=torch.bool)[None, None]
    return attend(q @ unit.transpose(-1, -2) * SIZE**-0.5, v, mask=others)[0]


def noise(*, deviation: float = 1.0) -> Tensor:
    """Independent normal vectors."""
    return torch.randn(1, HEADS, LENGTH, SIZE, dtype=torch.float64) * deviation


def smooth(reach: int = 32) -> Tensor:
    """Noise averaged over `reach` positions, so that low rank along the length holds."""
    lines = torch.randn(HEADS * SIZE, 1, LENGTH + reach - 1, dtype=torch.float64)
    means = F.avg_pool1d(lines, reach, stride=1) * reach**0.5
    return means.view(1, HEADS, SIZE, LENGTH).transpose(-1, -2)


def grouped(count: int = 16) -> Tensor:
    """Vectors around a few centres, as hashing assumes."""
    centres = torch.randn(1, HEADS, count, SIZE, dtype=torch.float64) * 3
    return centres[:, :, torch.randint(count, (LENGTH,))] + noise()


INPUTS: dict[str, Callable[[], tuple[Tensor, Tensor, Tensor]]] = {
    "performer": lambda: (noise(deviation=0.5), noise(deviation=0.5), noise()),
    "linformer": lambda: (noise(), smooth(), smooth()),
    "reformer": lambda: (grouped(), noise(), noise()),
}
"""Samples of q, k and v that suit each approximation."""
