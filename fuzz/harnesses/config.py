"""The config.json of every known kind of model, built without weights."""

import json

from fuzz.scratch import FOLDER, put
from regard.hub import export_model, save_model
from regard.hub.checkpoint import peek_model
from regard.hub.maps import MAPS
from regard.models import build, preset
from regard.registry import models

READS = ("regard.hub.checkpoint", "regard.hub.mapping", "regard.hub.skeleton", "regard.config")


def seeds() -> list[bytes]:
    """Return the configs that we write for our tiny models, in our layout and in the others'."""
    out = []
    for name in models:
        if "tiny" not in models[name].presets:
            continue
        model = build(name, preset(name, "tiny"))
        save_model(model, FOLDER / "own")
        out.append((FOLDER / "own" / "config.json").read_bytes())
        try:
            export_model(model, FOLDER / "other", bos=1, eos=2, pad=0)
        except ValueError:  # no other project has it
            continue
        out.append((FOLDER / "other" / "config.json").read_bytes())
    readable = []
    for data in out:
        try:
            run(data)
        except ValueError:  # the weights decide something
            continue
        readable.append(data)
    return readable


WORDS = [json.dumps(name).encode() for name in MAPS]


def run(data: bytes) -> None:
    """Build a model on the meta device."""
    put("model/config.json", data)
    peek_model(FOLDER / "model")
