"""A whole checkpoint: config.json beside weights, header and numbers of model.safetensors."""

from fuzz.scratch import FOLDER, put
from regard.hub import save_model
from regard.hub.checkpoint import load_model
from regard.models import build, preset

READS = ("regard.hub.checkpoint", "regard.hub.files")
SIZES = dict(dim=8, heads=2, depth=1, ffn_dim=8, vocab_size=11, max_len=8)


def seeds() -> list[bytes]:
    """Return config and weights of a tiny model, joined by the length of the first."""
    out = []
    for family in ("gpt", "bert"):
        save_model(build(family, preset(family, "tiny", **SIZES)), FOLDER / "seed")
        config, weights = ((FOLDER / "seed" / name).read_bytes() for name in ("config.json", "model.safetensors"))
        out.append(len(config).to_bytes(2, "big") + config + weights)
    return out


def run(data: bytes) -> None:
    """Load the model."""
    size = int.from_bytes(data[:2], "big")
    put("checkpoint/config.json", data[2 : 2 + size])
    put("checkpoint/model.safetensors", data[2 + size :])
    load_model(FOLDER / "checkpoint")
