"""A model as an ONNX graph, which onnxruntime and others run without this package.

The graph is the model's `forward`: its arguments by name in (`ids`, `lengths`, `source`, `target`, `pixels` …), its
output as `logits`. The number of rows and the lengths of texts are free; images have the size that the model was
trained for.
"""

import contextlib
import copy
import io
import json
import logging
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.doctor.case import example
from regard.files import write_atomically
from regard.native.quantized import refuse_quantized

OPSET = 18
NEEDS = "pip install 'regard[onnx]'"
"""The cure where a package is missing."""
CLOSE = 1e-3
"""The largest difference between our outputs and those of a graph, as a share of the largest output."""
FREE = {"source": (0, 1), "target": (0, 1), "ids": (0, 1), "types": (0, 1), "lengths": (0,), "pixels": (0,)}
"""The axes of each input whose length is free; those of other inputs are fixed but for the first."""


def export_onnx(model: Any, path: Path) -> float | None:
    """Write the graph of a model's `forward`, with the weights inside of the file, and return how far its outputs are
    from the model's; None without onnxruntime."""
    refuse_quantized(model)
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise ImportError(f"ONNX files need more packages: {NEEDS}") from None
    model = model.eval().float()
    inputs, others = example(model), example(model, rows=2)
    with torch.no_grad():
        wanted = model(**others)  # before the export, whose symbols would stay in caches of masks
    free = {name: {axis: torch.export.Dim.DYNAMIC for axis in FREE.get(name, (0,))} for name in inputs}
    quiet = logging.getLogger("torch.onnx"), logging.getLogger("onnxscript"), logging.getLogger("onnx_ir")
    levels = [logger.level for logger in quiet]
    try:
        for logger in quiet:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                copy.deepcopy(model), kwargs=inputs, dynamo=True, dynamic_shapes=free, opset_version=OPSET,
                input_names=list(inputs), output_names=["logits"], verbose=False,
            )  # fmt: skip
    except torch.onnx.errors.OnnxExporterError:
        raise ValueError(
            f"PyTorch cannot write this {type(model).__name__} as an ONNX graph; use it with regard serve"
        ) from None
    finally:
        for logger, level in zip(quiet, levels, strict=True):
            logger.setLevel(level)
    assert program is not None
    if labels := getattr(model.config, "labels", ()):
        program.model.metadata_props["labels"] = json.dumps(labels, ensure_ascii=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda draft: program.save(draft))
    return check(path, others, wanted, type(model).__name__)


def check(path: Path, inputs: dict[str, Tensor], wanted: Tensor, family: str) -> float | None:
    """Return the largest difference of a graph's outputs from the wanted ones; raise an error if it is too large."""
    try:
        import onnxruntime
    except ImportError:
        return None
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    read = {value.name for value in session.get_inputs()}
    outputs = session.run(None, {name: value.numpy() for name, value in inputs.items() if name in read})
    difference = (torch.from_numpy(outputs[0]) - wanted).abs().max().item()
    if not difference <= CLOSE * max(1.0, wanted.abs().max().item()):
        path.unlink()
        raise ValueError(f"onnxruntime's outputs of a {family} differ by {difference:.2g}; not written")
    return difference
