"""Tiny random models of every kind, as directories, and what to look at with each."""

import numpy as np
from PIL import Image

from regard.data.readers.preprocessing import Preprocessing
from regard.hub import save_generation, save_model
from regard.hub.preprocessor import save_preprocessing
from regard.models import CLIP, GPT, Captioner
from regard.models.captioner import CaptionerConfig
from regard.models.clip import CLIPConfig
from regard.models.gpt import GPTConfig
from regard.nn.patches import sides
from regard.tokens.pixel_tokenizer import PixelTokenizer
from tests.inside.loaded import spread_out
from tests.inside.seeing import PATCHES, detr, swin, vit
from tests.serve.made import make_models, model_of, save, tokenizer

TEXT = "The cat sat on the mat."
LABELS = ("no", "yes", "perhaps")
SEE = ("vit", "captioner", "swin", "detr", "clip", "pixel")


def make_seen(folder):
    """By name: gpt, translate, classify (a BERT), others that read, and those that see; and a picture."""
    made = make_models(folder)
    models = {name: made[name] for name in ("gpt", "translate", "classify")}
    models["wide"] = save(folder / "wide", model_of("gpt", 8, dim=64, heads=8, depth=6, max_len=128), bos=1, eos=2)
    readers = dict(max_len=64, position="learned")
    models["answer"] = save(folder / "answer", model_of("bert", 9, task="answer", **readers))
    blind = model_of("bert", 10, task="classify", labels=LABELS, kernel="linformer", **readers)
    models["linformer"] = save(folder / "linformer", blind)
    sees = [spread_out(vit(labels=LABELS)), captioner(), swin(labels=LABELS), detr(), clip()]
    for name, model in zip(SEE, sees, strict=False):
        save_model(model, folder / name)
        channels, size = model.config.channels, sides(model.config.image)
        how = Preprocessing(channels=channels, size=size, mean=(0.5,) * channels, std=(0.5,) * channels)
        save_preprocessing(folder / name, how)
        models[name] = folder / name
    for name in ("captioner", "clip"):
        tokenizer().save(folder / name)
    save_generation(folder / "captioner", pad=0, bos=1, eos=2)
    models["pixel"] = painter(folder / "pixel")
    pixels = np.random.default_rng(3).integers(0, 256, (24, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "image.png")
    return models, folder / "image.png"


def captioner():
    config = CaptionerConfig(
        vocab_size=len(tokenizer()), image=(12, 20), widths=(4, 6), decoder="transformer", depth=2, dim=12, heads=3,
        ffn_dim=17, dropout=0.0, max_len=12,
    )  # fmt: skip
    return spread_out(Captioner(config))


def painter(path):
    """Paints 4 × 5 pixels in four greys."""
    size = PixelTokenizer(rows=4, columns=5, channels=1, levels=4)
    how = dict(dim=12, heads=3, depth=2, ffn_dim=17, position="grid:columns=5", dropout=0.0)
    save_model(spread_out(GPT(GPTConfig(vocab_size=size.vocab_size, max_len=len(size), **how))), path)
    size.save(path)
    return path


def clip():
    text = dict(text_dim=12, text_depth=2, text_heads=2, text_ffn_dim=17, embedding_dim=8, max_len=32)
    return spread_out(CLIP(CLIPConfig(**PATCHES, **text, vocab_size=len(tokenizer()))))


def words_for(name, image):
    """What each model reads."""
    return [str(image)] if name in SEE else [TEXT]
