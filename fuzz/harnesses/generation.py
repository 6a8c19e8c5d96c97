"""generation_config.json and preprocessor_config.json."""

import json

from fuzz.scratch import FOLDER, put
from regard.data.readers.preprocessing import Preprocessing
from regard.hub import save_generation
from regard.hub.generation import load_generation
from regard.hub.preprocessor import load_preprocessing, save_preprocessing
from regard.models import preset

READS = ("regard.hub.generation", "regard.hub.preprocessor")
CONFIG = preset("vit", "tiny")


def seeds() -> list[bytes]:
    """Return what we write, and settings as other projects name them."""
    save_generation(FOLDER, bos=1, eos=2, pad=0)
    save_preprocessing(FOLDER, Preprocessing(size=(32, 32)))
    sizes = {
        "image_processor_type": "CLIPImageProcessor",
        "size": {"shortest_edge": 32},
        "crop_size": 32,
        "do_center_crop": True,
    }
    written = [(FOLDER / name).read_bytes() for name in ("generation_config.json", "preprocessor_config.json")]
    return [*written, json.dumps(sizes | {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}).encode()]


def run(data: bytes) -> None:
    """Load the file as both."""
    for name in ("config.json", "generation_config.json", "preprocessor_config.json"):
        put(f"settings/{name}", data)
    refused = None
    for load in (lambda: load_generation(FOLDER / "settings"), lambda: load_preprocessing(FOLDER / "settings", CONFIG)):
        try:
            load()
        except ValueError as error:
            if type(error) is not ValueError:
                raise
            refused = error
    if refused is not None:
        raise refused
