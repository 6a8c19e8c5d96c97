"""The software that this machine has, and what is missing with the command that installs it."""

import importlib.util
import platform

import torch

from regard.native import compiled

EXTRAS = {
    "draw": ("matplotlib",), "demo": ("babel", "num2words", "sacrebleu"),
    "text": ("emoji", "seqeval", "sklearn", "rouge_score"), "vision": ("PIL", "scipy", "sklearn"),
    "hub": ("huggingface_hub",),
}  # fmt: skip
"""Modules that each optional extra installs."""


def examine_machine() -> dict[str, str]:
    """Versions of Python and torch, the state of the compiled kernels and of each extra."""
    state = {"python": platform.python_version(), "torch": f"{torch.__version__}, {torch.get_num_threads()} threads"}
    state["kernels"] = "compiled" if compiled.available() else compiled.why_not()
    for extra, modules in EXTRAS.items():
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        state[extra] = f"no {', '.join(missing)}: pip install 'regard[{extra}]'" if missing else "installed"
    return state
