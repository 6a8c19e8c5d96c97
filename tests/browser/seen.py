"""Tiny random models of five kinds, as directories, and what to look at with each."""

import numpy as np
from PIL import Image

from regard.data.images import Preparation
from regard.hub import save_generation, save_model
from regard.hub.images import save_preparation
from regard.models import Captioner
from regard.models.captioner import CaptionerConfig
from tests.inside.loaded import spread_out
from tests.inside.seeing import vit
from tests.serve.made import make_models, model_of, save, tokenizer

TEXT = "The cat sat on the mat."


def make_seen(folder):
    """By name: gpt, translate, classify (a BERT), vit, captioner; and a picture."""
    made = make_models(folder)
    models = {name: made[name] for name in ("gpt", "translate", "classify")}
    models["wide"] = save(folder / "wide", model_of("gpt", 8, dim=64, heads=8, depth=6, max_len=128), bos=1, eos=2)
    sees = {"vit": spread_out(vit(labels=("no", "yes", "perhaps"))), "captioner": captioner()}
    for name, model in sees.items():
        save_model(model, folder / name)
        channels = model.config.channels
        how = Preparation(channels=channels, size=(12, 20), mean=(0.5,) * channels, std=(0.5,) * channels)
        save_preparation(folder / name, how)
        models[name] = folder / name
    tokenizer().save(folder / "captioner")
    save_generation(folder / "captioner", pad=0, bos=1, eos=2)
    pixels = np.random.default_rng(3).integers(0, 256, (24, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "image.png")
    return models, folder / "image.png"


def captioner():
    config = CaptionerConfig(
        vocab_size=len(tokenizer()), image=(12, 20), widths=(4, 6), decoder="transformer", depth=2, dim=12, heads=3,
        ffn_dim=17, dropout=0.0, max_len=12,
    )  # fmt: skip
    return spread_out(Captioner(config))


def words_for(name, image):
    """What each model reads."""
    return {"vit": [str(image)], "captioner": [str(image)]}.get(name, [TEXT])
