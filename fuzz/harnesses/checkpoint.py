"""A whole checkpoint: config.json beside weights, header and numbers of model.safetensors."""

from fuzz.scratch import FOLDER, put
from regard.hub import export_model, save_model
from regard.hub.checkpoint import load_model
from regard.models import build, preset

READS = ("regard.hub.checkpoint", "regard.hub.files", "regard.hub.mapping")
SIZES = dict(dim=8, heads=2, depth=1, ffn_dim=8)
TEXT = SIZES | dict(vocab_size=11, max_len=8, position="learned")
MODELS = {"gpt": TEXT, "bert": TEXT, "vit": SIZES | dict(image=8, patch=4, labels=["a", "b"])}


def seeds() -> list[bytes]:
    """Return config and weights of tiny models in our layout and in others', joined by the length of the first."""
    out = []
    for family, sizes in MODELS.items():
        model = build(family, preset(family, "tiny", **sizes))
        save_model(model, FOLDER / "own")
        export_model(model, FOLDER / "other", **(dict(bos=1, eos=2, pad=0) if family == "gpt" else {}))
        for layout in ("own", "other"):
            config, weights = ((FOLDER / layout / name).read_bytes() for name in ("config.json", "model.safetensors"))
            out.append(len(config).to_bytes(2, "big") + config + weights)
    return out


def run(data: bytes) -> None:
    """Load the model."""
    size = int.from_bytes(data[:2], "big")
    put("checkpoint/config.json", data[2 : 2 + size])
    put("checkpoint/model.safetensors", data[2 + size :])
    load_model(FOLDER / "checkpoint")
