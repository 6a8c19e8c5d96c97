"""A loaded task in a layout that other projects read, with the files that its inputs are read by."""

import shutil
from pathlib import Path

from regard.hub.checkpoint import LayoutError
from regard.hub.files import GENERATION
from regard.hub.onnx import NEEDS, export_onnx
from regard.hub.remote import find
from regard.registry import modalities
from regard.tasks.base import Task


def export(task: Task, run: str, out: Path, to: str | None = None) -> list[str]:
    """Write the model of a run for other projects, and return lines about it: as a directory for transformers, or,
    with `to` "onnx" or where nothing else can express the model, as an ONNX graph; `to` "hf" allows nothing else."""
    if to == "onnx":
        return write_onnx(task, run, out)
    try:
        task.export(out)
        return []
    except LayoutError as error:
        if to == "hf":
            raise LayoutError(f"{error}; an ONNX graph can: leave out --to hf") from None
        try:
            return [f"{error}; so it becomes an ONNX graph", *write_onnx(task, run, out)]
        except ImportError:
            raise ImportError(f"{error}; an ONNX graph can, which needs more packages: {NEEDS}") from None


def write_onnx(task: Task, run: str, out: Path) -> list[str]:
    """Write the graph of a task's model, and return lines about it. `out` is one file, or a directory that gets the
    tokenizer, the preprocessing and the settings of decoding too."""
    alone = out.suffix == ".onnx"
    difference = export_onnx(task.model, out if alone else out / "model.onnx")
    if not alone:
        for name in (*(modalities[name].file for name in task.inputs), GENERATION):
            if name and (file := find(run) / name).is_file():
                shutil.copyfile(file, out / file.name)
    return [] if difference is None else [f"checked: onnxruntime's outputs differ by at most {difference:.0e}"]
