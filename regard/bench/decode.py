"""Speed of generation on this machine, and its share of what the memory bandwidth allows.

Every token needs every weight once, so the bytes of the weights over the memory bandwidth is the least time of a step
of one text. Both are measured in turns, in one run.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.bench.measure import held, line_up, median
from regard.decode.engine import Engine
from regard.decode.requests import Request
from regard.decode.runners import Paged
from regard.models import build, preset
from regard.native.compiled import available
from regard.native.program import Linear
from regard.native.quantized import quantize as quantize_model
from regard.registry import models
from regard.tasks import load
from regard.tasks.loading import Quantize
from regard.train.progress import Line


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodeConfig:
    """Sizes of the generated texts, and the number of measurements."""

    batches: tuple[int, ...] = (1, 8, 16)
    """Texts at once."""
    prompt: int = 32
    """Tokens of each prompt (of each source)."""
    new: int = 128
    """Tokens generated after it."""
    beams: int = 1
    """Beams of each text; 1 is greedy."""
    rounds: int = 3
    """Number of repeated measurements; their medians are reported."""
    quantize: Quantize | None = None
    """Kind of weights."""

    def __post_init__(self) -> None:
        if min(*self.batches, self.prompt, self.beams, self.rounds) < 1 or self.new < 2:
            raise ValueError("batches, prompt, beams and rounds must be at least 1, new at least 2")


def measure_decode(source: str | Path, config: DecodeConfig, *, quiet: bool = True) -> dict[str, Any]:
    """Speed of the model in a run or checkpoint; or, for a family and a preset as gpt:gpt2, of random weights."""
    before, line = held(), Line(quiet)
    model = open_model(str(source), config.quantize)
    if getattr(model, "prefill", None) is None:
        raise ValueError(f"{source} does not generate; bench decode measures generative models")
    engine = Engine(model)
    bytes_read = weight_bytes(engine)
    rows: dict[int, list[tuple[float, float]]] = {batch: [] for batch in config.batches}
    bandwidths = []
    stock = torch.ones(2**27) if bytes_read is not None else None  # half a gigabyte: more than any cache holds
    noise = np.random.default_rng(0)
    for number in range(config.rounds + 1):  # the first time is not counted
        for batch in config.batches:
            line.show(f"round {number} of {config.rounds}: {batch} at once …")
            figures = speed(engine, batch, config, noise)
            if number:
                rows[batch].append(figures)
        if stock is not None:
            bandwidths.append(bandwidth(stock))
    memory = held() - before - (stock.nbytes if stock is not None else 0)
    result: dict[str, Any] = {
        "model": str(source), "kernels": "compiled" if getattr(engine.runner, "fast", False) else "PyTorch",
        "compiled_available": available(), "quantize": config.quantize or "none", "threads": torch.get_num_threads(),
        "prompt": config.prompt, "new": config.new, "beams": config.beams, "memory_mb": memory / 1e6,
        "batches": [
            {
                "batch": batch, "tokens_per_second": median([rate for rate, _ in figures]),
                "first_token_ms": 1e3 * median([first for _, first in figures]),
            }
            for batch, figures in rows.items()
        ],
    }  # fmt: skip
    if bytes_read is not None and config.beams == 1:
        fastest = max(bandwidths)
        result |= {"weight_mb": bytes_read / 1e6, "bandwidth_gb": fastest / 1e9, "ceiling": fastest / bytes_read}
    return result


def open_model(source: str, quantize: Quantize | None) -> Any:
    """The model of a run or checkpoint, or of FAMILY:PRESET with random weights."""
    family, _, name = source.partition(":")
    if name and family in models and not Path(source).exists():
        model = build(family, preset(family, name)).eval()
        return model if quantize is None or quantize == "none" else quantize_model(model, quantize)
    return load(source, quantize).model


def speed(engine: Engine, batch: int, config: DecodeConfig, noise: np.random.Generator) -> tuple[float, float]:
    """Return tokens per second after the first tokens, and the seconds until those. Every prompt is new."""
    words = engine.model.config.vocab_size
    prompts = noise.integers(words, size=(batch, config.prompt)).tolist()
    if engine.model.reads:
        requests: list[dict[str, Any]] = [
            dict(inputs={"source": torch.tensor(prompt)}, prompt=[0]) for prompt in prompts
        ]
    else:
        requests = [dict(prompt=prompt) for prompt in prompts]
    started = time.perf_counter()
    first = None
    for request in requests:
        engine.submit(Request(max_len=config.new, beams=config.beams, **request))
    while engine.running or engine.waiting:
        engine.step()
        if first is None and all(not job.pending or job.computed >= len(job.request.prompt) for job in engine.running):
            first = time.perf_counter()
    ended = time.perf_counter()
    assert first is not None
    return batch * (config.new - 1) / (ended - first), first - started


def weight_bytes(engine: Engine) -> int | None:
    """Bytes of weights that one decoding step reads; None where they are not known."""
    if not isinstance(engine.runner, Paged):
        return None
    weights = [op.weight for op in engine.runner.decoder.program.operations if isinstance(op, Linear)]
    return sum(weight.values.nbytes + (0 if weight.scales is None else weight.scales.nbytes) for weight in weights)


def bandwidth(stock: torch.Tensor) -> float:
    """Bytes per second that all threads together read, by a sum or by a matrix-vector product."""
    matrix, vector = stock.view(-1, 4096), stock[:4096]
    fastest = 0.0
    for work in (matrix.sum, lambda: matrix @ vector) * 2:
        started = time.perf_counter()
        work()
        fastest = max(fastest, stock.nbytes / (time.perf_counter() - started))
    return fastest


def render_decode(result: dict[str, Any]) -> str:
    """A table of speeds by batch size, with the settings below."""
    rows: list[Sequence[str]] = [("at once", "tokens/s", "first token", "of the ceiling")]
    for row in result["batches"]:
        share = (
            f"{row['tokens_per_second'] / result['ceiling']:.0%}" if row["batch"] == 1 and "ceiling" in result else ""
        )
        rows.append((str(row["batch"]), f"{row['tokens_per_second']:,.0f}", f"{row['first_token_ms']:,.0f} ms", share))
    notes = [
        f"{result['model']}, {result['quantize'] if result['quantize'] != 'none' else 'weights as they are'}, "
        f"{result['kernels']} kernels, {result['threads']} threads, "
        f"{result['prompt']} + {result['new']} tokens, {result['memory_mb']:,.0f} MB",
    ]
    if "ceiling" in result:
        notes.append(
            f"ceiling of one text: {result['bandwidth_gb']:.1f} GB/s over {result['weight_mb']:,.0f} MB of weights = "
            f"{result['ceiling']:,.0f} tokens/s"
        )
    return "\n".join([*line_up(rows), "", *notes])
