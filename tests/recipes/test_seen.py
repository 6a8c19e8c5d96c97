"""What is scored is what the model is shown: eval sees the pixels that classify, complete and detect see."""

import json

import numpy as np
import pytest
from PIL import Image

from regard.data.readers.image_files import read_image
from regard.data.readers.preprocessing import Preprocessing
from regard.eval.scores import eval_set, evaluate
from regard.hub import export_model
from regard.hub.preprocessor import save_preprocessing
from regard.models import DETR, DETRConfig, Swin, SwinConfig, ViT, ViTConfig
from regard.recipes import fit, recipe
from regard.tasks import load
from tests.cli.calling import call, fails, rows

NAMES = ("bright", "dark")
FEW = {"train.steps": 2, "train.warmup": 1, "train.eval_every": 2, "train.save_every": 2}
DIMS = dict(dim=16, heads=2, depth=1, ffn_dim=24)


def paint(folder, size, count=10, mode="RGB"):
    """Noise with an edge in the middle, bright and dark."""
    rng = np.random.default_rng(1)
    for number, name in enumerate(NAMES):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            pixels = rng.integers(0, 120, (size[1], size[0], 3), dtype=np.uint8) + np.uint8(120 - 120 * number)
            pixels[: size[1] // 2] //= 2
            Image.fromarray(pixels).convert(mode).save(folder / name / f"{i}.png")
    return folder


def vit(where, image=8, channels=3, **more):
    export_model(ViT(ViTConfig(image=image, patch=2, channels=channels, **DIMS, **more)), where)
    return where


def files_of(folder):
    return [(path, name) for name in NAMES for path in sorted((folder / name).glob("*.png"))]


def test_a_model_taught_larger_pictures_is_scored_at_its_own_size(tmp_path):
    folder, base = paint(tmp_path / "set", (32, 32)), vit(tmp_path / "base")
    fit(recipe("vit", FEW | {"data.images": str(folder), "data.base": str(base)}), tmp_path / "run", quiet=True)
    loaded = load(tmp_path / "run")
    held = loaded.test_images(eval_set(loaded, tmp_path / "run", {}))
    assert held.pixels.shape == (2, 8, 8, 3)
    files = files_of(folder)[1::10]
    assert np.array_equal(held.pixels, [loaded.preprocessing.fit(read_image(path)) for path, _ in files])
    assert evaluate(tmp_path / "run", {}).outputs == [
        best[0].label for best in loaded.classify([path for path, _ in files])
    ]


def test_a_checkpoints_own_preparation_is_kept(tmp_path):
    """Resized, then cut, by its filter; eval counts what classify says."""
    folder = paint(tmp_path / "set", (30, 24))
    model = vit(tmp_path / "model", labels=NAMES)
    how = Preprocessing(shortest=12, crop=(8, 8), filter="bicubic", mean=(0.5,) * 3, std=(0.2,) * 3)
    save_preprocessing(model, how)
    loaded, files = load(model), files_of(folder)
    assert loaded.preprocessing == how
    seen = loaded.test_images(eval_set(loaded, model, {"data.images": str(folder)}))
    assert np.array_equal(seen.pixels, [how.fit(read_image(path)) for path, _ in files])
    said = [best[0].label for best in loaded.classify([path for path, _ in files])]
    scored = evaluate(model, {"data.images": str(folder)})
    right = sum(one == name for one, (_, name) in zip(said, files, strict=True))
    assert scored.outputs == said and scored.scores["accuracy"] == pytest.approx(100 * right / len(files), abs=0.01)
    x = np.random.default_rng(1).integers(0, 256, (4, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", x=x, y=np.array(NAMES * 2))
    assert np.array_equal(
        loaded.test_images(eval_set(loaded, model, {"data.images": str(tmp_path / "a.npz")})).pixels, x
    )


def test_no_other_size_is_scored_in_silence(capsys, tmp_path):
    folder, model = paint(tmp_path / "set", (8, 8)), vit(tmp_path / "model", labels=NAMES)
    asked = ("eval", model, "--data.images", folder)
    assert "has its own preprocessing; leave out --data.size" in fails(capsys, *asked, "--data.size", 12)
    assert "leave out --data.channels" in fails(capsys, *asked, "--data.channels", 1)
    assert rows(capsys, *asked, "--data.size", 8)[0]["examples"] == 20


def test_a_painter_reads_any_size(capsys, tmp_path):
    sets = [paint(tmp_path / name, size, 2) for name, size in (("a", (6, 6)), ("b", (9, 7)))]
    small = {f"model.{name}": value for name, value in DIMS.items()} | {"model.position": "rotary"}
    fit(recipe("pixel", FEW | small | {"data.images": str(sets[0])}), tmp_path / "run", quiet=True)
    for test in sets:
        found = rows(capsys, "eval", tmp_path / "run", "--data.images", sets[1], "--data.test", test)
        assert found[0]["examples"] == 4


SMALL = {
    "model.stem": 4, "model.widths": "8", "model.blocks": "1", "model.dim": 16, "model.heads": 2, "model.ffn_dim": 24,
    "model.depth": 1, "model.decoder_depth": 1, "model.queries": 3, "data.size": 24, "train.batch_tokens": 144,
}  # fmt: skip


@pytest.fixture
def boxes(tmp_path):
    """Grey pictures with a box each."""
    folder = paint(tmp_path / "boxed", (30, 24), 4, "L")
    files = files_of(folder)
    (folder / "boxes.json").write_text(json.dumps({
        "images": [{"id": i, "file_name": str(path.relative_to(folder))} for i, (path, _) in enumerate(files)],
        "annotations": [{"id": i, "image_id": i, "category_id": i % 2, "bbox": [2, 3, 9, 9]} for i in range(8)],
        "categories": [{"id": i, "name": name} for i, name in enumerate(NAMES)],
    }))  # fmt: skip
    return folder / "boxes.json"


def test_a_grey_detector_is_scored(capsys, boxes, tmp_path):
    fit(recipe("detr", FEW | SMALL | {"data.coco": str(boxes), "data.channels": 1}), tmp_path / "run", quiet=True)
    others = boxes.with_name("others.json")
    others.write_bytes(boxes.read_bytes())
    for words, examples in (((), 1), (("--data.coco", boxes), 1), (("--data.coco", others), 8)):
        assert rows(capsys, "eval", tmp_path / "run", *words)[0]["examples"] == examples  # all, if it is new to it


def test_a_detector_goes_on_with_the_scale_that_it_knows(capsys, boxes, tmp_path):
    base = tmp_path / "base"
    sizes = {key.removeprefix("model."): value for key, value in SMALL.items() if key.startswith("model.")}
    export_model(DETR(DETRConfig(**sizes | dict(widths=(8,), blocks=(1,), image=24, labels=NAMES))), base)
    how = Preprocessing(shortest=20, longest=50, scale=1 / 128, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
    save_preprocessing(base, how)
    on = ("finetune", base, "--data.coco", boxes, "--quiet", *[w for k, v in FEW.items() for w in (f"--{k}", v)])
    call(*map(str, on), "--out", str(tmp_path / "same"))
    assert load(tmp_path / "same").preprocessing == how
    call(*map(str, on), "--data.size", "30", "--out", str(tmp_path / "larger"))
    now = load(tmp_path / "larger").preprocessing
    assert (now.shortest, now.longest, now.mean, now.scale) == (30, 75, how.mean, how.scale)
    capsys.readouterr()
    assert "reads images of 3 channels; leave out --data.channels" in fails(capsys, *on, "--data.channels", 1)
    assert "a detector is always fine-tuned as a whole; leave out --tune" in fails(capsys, *on, "--tune", "lora")
    assert "--task tag learns from --data.train, not from" in fails(capsys, *on, "--task", "tag")


def test_what_a_base_does_not_do_is_refused(capsys, tmp_path):
    folder, base = paint(tmp_path / "set", (8, 8)), vit(tmp_path / "base")
    on = ("finetune", base, "--data.images", folder)
    assert "reads images of 3 channels; leave out --data.channels" in fails(capsys, *on, "--data.channels", 1)
    assert "--task tag learns from --data.train, not from" in fails(capsys, *on, "--task", "tag")
    said = fails(capsys, "train", "swin", "--data.images", folder, "--data.base", base)
    assert f"is a vit, not a swin; use regard finetune {base}" in said
    export_model(Swin(SwinConfig(image=8, patch=2, dim=8, depths=(1,), heads=(2,), window=2)), tmp_path / "swin")
    plan = {"data.images": str(folder), "data.base": str(tmp_path / "swin")}
    assert recipe("vit", plan).family == recipe("swinv2", plan).family == "swin"  # one of them is what finetune asks
