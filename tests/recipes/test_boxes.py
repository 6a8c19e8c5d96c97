"""Boxes from annotations to a drawing: train, resume, load, detect, score, convert, start from another's weights."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from regard.data.readers.image_files import read_image
from regard.eval.scores import evaluate
from regard.hub import load_model
from regard.recipes import Recipe, fit, recipe
from regard.tasks import Detection, ObjectDetector, load
from regard.tasks.detection_scores import detection_results
from tests.cli.calling import call, fails, rows, said

SMALL = {
    "model.stem": 4, "model.widths": "8", "model.blocks": "1", "model.dim": 16, "model.heads": 2, "model.ffn_dim": 24,
    "model.depth": 1, "model.decoder_depth": 2, "model.queries": 3, "data.size": 24, "train.steps": 4,
    "train.batch_tokens": 144, "train.eval_every": 2, "train.save_every": 2, "train.warmup": 2,
}  # fmt: skip
NAMES = ("dark", "light")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Twenty pictures of unequal size, each with one or two squares, and their boxes."""
    where, rng = tmp_path_factory.mktemp("boxes"), np.random.default_rng(1)
    stored = {"images": [], "annotations": [], "categories": [{"id": i, "name": name} for i, name in enumerate(NAMES)]}
    for number in range(20):
        pixels = np.full((24 + number % 3, 30, 3), 128, np.uint8)
        for side in range(1 + number % 2):
            left, top, name = 2 + 14 * side, int(rng.integers(12)), int(rng.integers(2))
            pixels[top : top + 10, left : left + 10] = 220 * name + 10
            box = {"image_id": number, "category_id": name, "bbox": [left, top, 10, 10]}
            stored["annotations"].append({"id": len(stored["annotations"])} | box)
        Image.fromarray(pixels).save(where / f"{number}.png")
        stored["images"].append({"id": number, "file_name": f"{number}.png"})
    (where / "boxes.json").write_text(json.dumps(stored))
    return where


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "squares"
    fit(recipe("detr", SMALL | {"data.coco": str(folder / "boxes.json")}), out, quiet=True)
    return out


def test_a_run_is_loaded_and_finds(run, folder):
    loaded = load(run)
    assert isinstance(loaded, ObjectDetector) and loaded.model.config.labels == NAMES
    assert loaded.preprocessing.shortest == 24 and loaded.preprocessing.longest == 40
    image = read_image(folder / "3.png").resize((90, 72))
    found = loaded.detect([folder / "3.png", image], threshold=0.0)
    for row, (columns, rows_) in zip(found, ((30, 24), (90, 72)), strict=True):
        assert len(row) == 3 and [one.score for one in row] == sorted((one.score for one in row), reverse=True)
        for one in row:
            left, top, right, bottom = one.box
            assert one.label in NAMES and 0 <= left < right <= columns and 0 <= top < bottom <= rows_
    assert np.allclose(np.array(found[0][0].box) * 3, found[1][0].box, atol=3)  # boxes are of the picture as it came
    alone = [loaded.detect([folder / f"{i}.png"], threshold=0.0)[0] for i in range(4)]
    together = loaded.detect([folder / f"{i}.png" for i in range(4)], threshold=0.0)
    assert np.allclose([row[0].box for row in alone], [row[0].box for row in together], atol=1e-3)
    assert loaded.detect([folder / "3.png"], threshold=1.0) == [[]]
    assert loaded.embed([folder / "3.png"]).norm().item() == pytest.approx(1, abs=1e-5)
    assert loaded.detect(folder / "3.png", threshold=0.0) == alone[3], "one image, one result"
    with pytest.raises(ValueError, match="threshold=2.0 is no probability"):
        loaded.detect([image], threshold=2.0)


def test_scores(run, folder):
    scores = evaluate(run, {}).scores
    assert scores["examples"] == 2 and 0 <= scores["ap"] <= scores["ap50"] <= 100
    assert evaluate(run, {"data.coco": str(folder / "boxes.json")}).scores == scores, "it was trained on the others"
    everything = evaluate(run, {"data.coco": str(folder)})
    assert everything.scores["examples"] == 20 == len(everything.outputs)
    assert evaluate(run, {"data.coco": str(folder)}, limit=3).scores["examples"] == 3


def test_average_precision_is_that_of_coco():
    labels = [np.array([0, 1]), np.array([1])]
    boxes = [np.array([[0, 0, 10, 10], [20, 5, 40, 30]]), np.array([[1, 2, 9, 9]])]
    right = [
        [Detection(NAMES[i], 0.9, tuple(map(float, box))) for i, box in zip(*row, strict=True)]
        for row in zip(labels, boxes, strict=True)
    ]

    def scores(detections, crowds=()):
        return detection_results(detections, labels, boxes, NAMES, crowds)[0]

    sizes = {"ap_small": 100, "ap_medium": None, "ap_large": None, "examples": 2}
    assert scores(right) == {"ap": 100, "ap50": 100, "ap75": 100} | sizes
    half = [[Detection("dark", 0.9, (0.0, 0.0, 10.0, 6.0)), right[0][1]], right[1]]  # of the first, 60 percent
    assert scores(half) == {"ap": 65, "ap50": 100, "ap75": 50} | sizes | {"ap_small": 65}
    table = detection_results(half, labels, boxes, NAMES)[1]
    assert [(row["label"], row["ap"], row["ap50"], row["count"]) for row in table] == [
        ("dark", 30, 100, 1), ("light", 100, 100, 2),
    ]  # fmt: skip
    assert scores([[], []])["ap50"] == 0
    wrong = [[Detection("light", 0.9, one.box) for one in right[0][:1]], []]
    assert scores(wrong)["ap50"] == 0
    more = [[Detection("dark", 0.95, (50.0, 50.0, 60.0, 60.0)), *right[0]], right[1]]
    crowds = [(np.array([0]), np.array([[45.0, 45.0, 90.0, 90.0]])), (np.zeros(0, int), np.zeros((0, 4)))]
    assert scores(more)["ap50"] == 75  # one mistake before what is right
    assert scores(more, crowds)["ap50"] == 100  # in a crowd it is none


def test_a_wrong_test_set_is_known_before_the_training(folder, tmp_path):
    plan = recipe("detr", SMALL | {"data.coco": str(folder / "boxes.json"), "data.test": str(tmp_path / "none.json")})
    with pytest.raises(ValueError, match="no such file or folder: .*none.json; correct --data.test"):
        fit(plan, tmp_path / "out", quiet=True)
    assert not (tmp_path / "out").exists()


def test_boxes_are_not_probed(capsys, run):
    assert "has no vector for an image; a probe is for encoders" in fails(capsys, "eval", run, "--probe")


def test_at_the_command_line(capsys, run, folder, tmp_path):
    one, two = folder / "0.png", folder / "1.png"
    found = rows(capsys, "detect", run, one, two, "--threshold", "0", "--out", tmp_path / "drawn")
    assert [row["image"] for row in found] == [str(one), str(two)] and all(len(row["objects"]) == 3 for row in found)
    assert found[0]["objects"][0].keys() == {"label", "probability", "box"}
    assert read_image(tmp_path / "drawn" / "1.png").size == (540, 450)
    lines = said(capsys, "detect", run, one, "--threshold", "0", "--out", tmp_path / "boxes.png")
    assert len(lines) == 3 and lines[0].split("\t")[0] in NAMES and (tmp_path / "boxes.png").exists()
    assert said(capsys, "detect", run, one, "--threshold", "1") == ["(nothing)"]
    assert "no such image: nowhere.png" in fails(capsys, "detect", run, "nowhere.png")
    assert "one file, but there are 2 images" in fails(capsys, "detect", run, one, two, "--out", tmp_path / "a.png")
    assert "would both be drawn to" in fails(capsys, "detect", run, one, one, "--out", tmp_path)
    assert "would be overwritten" in fails(capsys, "detect", run, one, two, "--out", folder)
    assert "no suffix of an image" in fails(capsys, "detect", run, one, "--out", tmp_path / "boxes.txt")
    assert "it does not classify; choose another model" in fails(capsys, "classify", run, one)
    scores = rows(capsys, "eval", run, "--data.coco", folder)[0]
    assert scores["examples"] == 20
    assert "no such file: nowhere.json" in fails(capsys, "eval", run, "--data.coco", "nowhere.json")
    assert "no such folder: nowhere" in fails(capsys, "train", "detr", "--data.voc", "nowhere", "--out", tmp_path / "x")


def test_converted_it_is_read_by_others(run, folder, tmp_path):
    transformers = pytest.importorskip("transformers")
    call("convert", str(run), str(tmp_path / "theirs"))
    image = read_image(folder / "4.png")
    processor = transformers.DetrImageProcessorPil.from_pretrained(tmp_path / "theirs")
    theirs = transformers.AutoModelForObjectDetection.from_pretrained(tmp_path / "theirs").eval()
    with torch.no_grad():
        told = theirs(**processor(image, return_tensors="pt"))
    sizes = torch.tensor([image.size[::-1]])
    (wanted,) = processor.post_process_object_detection(told, threshold=0.0, target_sizes=sizes)
    order = wanted["scores"].argsort(descending=True)
    for path in (run, tmp_path / "theirs"):
        found = load(path).detect([image], threshold=0.0)[0]
        assert [one.score for one in found] == pytest.approx(wanted["scores"][order].tolist(), abs=1e-5)
        assert [theirs.config.id2label[i] for i in wanted["labels"][order].tolist()] == [one.label for one in found]
        clipped = wanted["boxes"][order].clamp(min=0).minimum(torch.tensor([*image.size, *image.size]))
        assert np.allclose([one.box for one in found], clipped.numpy(), atol=1e-3)
    assert load(tmp_path / "theirs").preprocessing == load(run).preprocessing


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(folder, tmp_path):
    plan = SMALL | {"data.coco": str(folder / "boxes.json"), "train.schedule": "constant"}
    fit(recipe("detr", plan), tmp_path / "whole", quiet=True)
    fit(recipe("detr", plan | {"train.steps": 2}), tmp_path / "parts", quiet=True)
    fit(recipe("detr", plan), tmp_path / "parts", resume=True, quiet=True)
    one, other = (load_model(tmp_path / name).state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert Recipe.load(tmp_path / "whole" / "recipe.toml").model.labels == NAMES


def test_scenes_and_other_labels_from_trained_weights(run, tmp_path):
    more = {"data.base": str(run), "data.scenes": 6, "train.steps": 2, "model.queries": 3, "data.objects": 2}
    fit(recipe("detr", {"train.eval_every": 1, "train.save_every": 1} | more), tmp_path / "scenes", quiet=True)
    model = load_model(tmp_path / "scenes")
    assert model.config.labels[0] == "circle" and model.config.widths == (8,) and model.head.out.out_features == 6
    assert load(tmp_path / "scenes").preprocessing.shortest == 24
    kept, now = (load_model(one).state_dict()["queries"] for one in (run, tmp_path / "scenes"))
    assert (kept - now).abs().max() < 0.01


def test_more_things_than_queries(folder, tmp_path):
    plan = recipe("detr", SMALL | {"data.coco": str(folder / "boxes.json"), "model.queries": 1})
    with pytest.raises(ValueError, match="some image has 2 objects, but queries=1 .* use --model.queries 4"):
        fit(plan, tmp_path, quiet=True)


@pytest.mark.slow
@pytest.mark.timeout(2 * 3600)
def test_scenes_are_learned(tmp_path):
    """The docstring's figure, with a little room for another machine."""
    fit(recipe("detr"), tmp_path, quiet=True)
    assert evaluate(tmp_path, {}).scores["ap50"] >= 96
