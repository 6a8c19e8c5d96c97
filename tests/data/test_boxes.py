"""Images with boxes: scenes, COCO's and VOC's files, batches of unequal sizes; and everything that can be wrong."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from PIL import Image

from regard.cli.base import overrides
from regard.config import override
from regard.data.generated.scenes import SHAPES, scenes
from regard.data.notices import listening
from regard.data.sets.batches import IGNORE
from regard.data.sets.boxed_images import BoxedImage, BoxedImages, BoxesConfig, BoxStream
from regard.recipes import Recipe, recipe

VOC = """<annotation><filename>{name}</filename><size><width>40</width></size>{objects}</annotation>"""
OBJECT = """<object><name>{label}</name><bndbox><xmin>{box[0]}</xmin><ymin>{box[1]}</ymin><xmax>{box[2]}</xmax>
<ymax>{box[3]}</ymax></bndbox></object>"""


def save_picture(path, rows=20, columns=40):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.zeros((rows, columns, 3), np.uint8)).save(path)


def coco(folder, **changes):
    """Two images, one with two things (one of them a crowd, one over the border), one with none."""
    save_picture(folder / "images" / "a.png")
    save_picture(folder / "images" / "b.png", 30, 30)
    stored = {
        "images": [{"id": 7, "file_name": "a.png"}, {"id": 9, "file_name": "b.png"}],
        "categories": [{"id": 3, "name": "cat"}, {"id": 1, "name": "dog"}],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 3, "bbox": [10, 5, 20, 10]},
            {"id": 2, "image_id": 7, "category_id": 1, "bbox": [30, 10, 100, 100]},
            {"id": 3, "image_id": 7, "category_id": 1, "bbox": [0, 0, 40, 20], "iscrowd": 1},
            {"id": 4, "image_id": 7, "category_id": 1, "bbox": [5, 5, 0, 3]},
        ],
    }
    (folder / "boxes.json").write_text(json.dumps(stored | changes))
    return str(folder / "boxes.json")


def test_coco(tmp_path):
    for source in (coco(tmp_path), str(tmp_path)):
        boxes = BoxesConfig(coco=source, size=40).read(source)
        assert boxes.names == ("dog", "cat") and len(boxes) == 2
        first, second = boxes.images
        assert first.pixels.shape == (34, 67, 3)  # twice the size, but for the longer side
        assert first.labels.tolist() == [1, 0] and len(second.labels) == 0 and second.boxes.shape == (0, 4)
        labels, around = first.crowds
        assert labels.tolist() == [0] and np.allclose(around, [[0, 0, 67, 34]]) and len(second.crowds[0]) == 0
        shares = first.target()
        assert np.allclose(shares[0], [1, 0.5, 0.5, 0.5, 0.5], atol=1e-6)
        assert np.allclose(shares[1], [0, 0.875, 0.75, 0.25, 0.5], atol=1e-6)  # cut at the border


def test_pictures_for_validation_may_lie_beside_their_own_file(tmp_path):
    train, valid = coco(tmp_path / "train"), coco(tmp_path / "valid")
    (tmp_path / "train" / "images").rename(tmp_path / "images")
    save_picture(tmp_path / "valid" / "images" / "c.png")
    stored = json.loads((tmp_path / "valid" / "boxes.json").read_text())
    stored["images"][0]["file_name"] = "c.png"
    (tmp_path / "valid" / "boxes.json").write_text(json.dumps(stored))
    data = BoxesConfig(coco=train, images=str(tmp_path / "images"), valid=valid, test=valid)
    assert [len(part) for part in data.split()] == [2, 2] and len(data.held_out()) == 2


def test_an_id_of_two_categories(tmp_path):
    twice = [{"id": 1, "name": "cat"}, {"id": 1, "name": "dog"}]
    with pytest.raises(ValueError, match="boxes.json, category 1: the id occurs twice; give each category its own"):
        BoxesConfig(coco=coco(tmp_path, categories=twice)).split()


def test_ids_may_be_numbers_and_words(tmp_path):
    named = [{"id": "x", "name": "cat"}, {"id": 1, "name": "dog"}]
    things = [{"image_id": 7, "category_id": "x", "bbox": [1, 1, 5, 5]}]
    sizes = [{"id": 7, "file_name": "a.png", "width": 40, "height": 20}]
    source = coco(tmp_path, categories=named, annotations=things, images=sizes)
    assert BoxesConfig(coco=source).read(source).names == ("dog", "cat")


def test_voc(tmp_path):
    save_picture(tmp_path / "JPEGImages" / "a.png")
    (tmp_path / "Annotations").mkdir()
    objects = OBJECT.format(label="cat", box=(1, 1, 40, 20)) + OBJECT.format(label="ant", box=(11, 6, "20.0", 15))
    (tmp_path / "Annotations" / "a.xml").write_text(VOC.format(name="a.png", objects=objects))
    boxes = BoxesConfig(voc=str(tmp_path), size=20).read(str(tmp_path))
    assert boxes.names == ("ant", "cat") and boxes.images[0].labels.tolist() == [1, 0]
    # Their first column is 1, and the last belongs to the box: the cat fills the image.
    assert boxes.images[0].target()[0].tolist() == pytest.approx([1, 0.5, 0.5, 1, 1])
    assert boxes.images[0].target()[1].tolist() == pytest.approx([0, 15 / 40, 10 / 20, 10 / 40, 10 / 20])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(categories=[]), "the list 'categories' is empty"),
        (dict(images=3), "has no list 'images'"),
        (dict(annotations=[{"id": 5, "image_id": 8, "category_id": 1, "bbox": [0, 0, 1, 1]}]),
         "annotation 5: image_id 8 is none of the images"),
        (dict(annotations=[{"id": 5, "image_id": 7, "category_id": 2, "bbox": [0, 0, 1, 1]}]),
         "annotation 5: category_id 2 is no category"),
        (dict(annotations=[{"id": 5, "image_id": 7, "category_id": 1, "bbox": [0, 0, 1]}]),
         "annotation 5: a box is four numbers, got"),
        (dict(annotations=[{"id": 5, "image_id": 7, "category_id": 1}]), "annotation 5: a box is four .*, got None"),
        (dict(annotations=[{"id": 5, "image_id": 7, "category_id": 1, "bbox": [9, 9, -3, 1]}]),
         "annotation 5: the box has size -3.0 × 1.0"),
        (dict(annotations=[7]), "annotation: no 'image_id', got 7"),
        (dict(categories=[{"id": None, "name": "a"}]), "category None: no 'id', got"),
        (dict(annotations=[{"id": 5, "image_id": 7, "category_id": 1, "bbox": [10**400, 0, 1, 1]}]),
         "annotation 5: a box is four numbers, got .1000"),
        (dict(categories=[{"id": 1, "name": "a"}, {"id": 2, "name": "a"}]), "category 2: the name 'a' occurs twice"),
        (dict(images=[{"id": 7, "file_name": "c.png"}], annotations=[]),
         "image 7: no such image: .*c.png; name the folder of the images: --data.images"),
        (dict(images=[{"id": 7}], annotations=[]), "image 7: no 'file_name'"),
        (dict(images=[{"id": 7, "file_name": "a.png"}] * 2), "image 7: the id occurs twice"),
        (dict(images=[{"id": 7, "file_name": "a.png", "width": 400, "height": 200}]),
         "image 7: its boxes are for an image of 400 × 200 pixels, but .*a.png has 40 × 20"),
        (dict(annotations=[{"id": 5, "image_id": 7, "category_id": 1, "bbox": [500, 0, 9, 9]}]), "not one box"),
    ],
)  # fmt: skip
def test_a_coco_file_that_is_wrong_says_where(tmp_path, changes, message):
    source = coco(tmp_path, **changes)
    with pytest.raises(ValueError, match=f"boxes.json.*{message}"):
        BoxesConfig(coco=source).read(source)


def test_files_that_are_none(tmp_path):
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.json").write_text("[]")
    for name, message in {"a": "a.json is not valid JSON", "b": "b.json has no list 'images'"}.items():
        with pytest.raises(ValueError, match=message):
            BoxesConfig(coco="x").read(str(tmp_path / f"{name}.json"))
    with pytest.raises(ValueError, match="should hold one .json of annotations, it has a.json, b.json"):
        BoxesConfig(coco="x").read(str(tmp_path))
    with pytest.raises(ValueError, match="no such file: nowhere.json"):
        BoxesConfig(coco="x").read("nowhere.json")
    with pytest.raises(ValueError, match="no such folder: nowhere"):
        BoxesConfig(voc="x").read("nowhere")
    with pytest.raises(ValueError, match="holds no .xml files"):
        BoxesConfig(voc="x").read(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<a>\n<b></a>", "a.xml, line 2: not valid XML"),
        (VOC.format(name="", objects=""), "a.xml: no <filename>"),
        (VOC.format(name="b.png", objects=OBJECT.format(label="cat", box=(1, 2, 3, 4))), "no such image: .*b.png"),
        (VOC.format(name="a.png", objects=OBJECT.format(label="", box=(1, 2, 3, 4))), "a.xml, object 1: no <name>"),
        (VOC.format(name="a.png", objects=OBJECT.format(label="x", box=(1, 2, 3, "y"))), "object 1: <bndbox> needs"),
        (VOC.format(name="a.png", objects=OBJECT.format(label="x", box=(5, 2, 3, 4))), "object 1: .*ends before"),
        (VOC.format(name="a.png", objects=""), "none of 1 files names an object"),
        (
            VOC.format(
                name="a.png",
                objects="<size><width>40</width><height>40</height></size>"
                + OBJECT.format(label="x", box=(1, 2, 3, 4)),
            ),
            "for an image of 40 × 40 pixels, but .*a.png has 40 × 20",
        ),
    ],
)
def test_a_voc_file_that_is_wrong_says_where(tmp_path, text, message):
    save_picture(tmp_path / "a.png")
    (tmp_path / "a.xml").write_text(text)
    with pytest.raises(ValueError, match=message):
        BoxesConfig(voc=str(tmp_path)).read(str(tmp_path))


@pytest.mark.parametrize("memory", [4.0, 0.0])
def test_a_damaged_image_is_skipped_and_counted_also_beyond_memory(tmp_path, memory):
    names = [f"{i}.png" for i in range(20)]
    source = coco(
        tmp_path,
        images=[{"id": i, "file_name": name} for i, name in enumerate(names)],
        annotations=[{"id": i, "image_id": i, "category_id": 3, "bbox": [2, 2, 5, 5]} for i in range(20)],
    )
    for name in names:
        save_picture(tmp_path / name)
    (tmp_path / "3.png").write_bytes((tmp_path / "3.png").read_bytes()[:60])
    said = []
    with listening(lambda text, passing: said.append(text)):
        images = BoxesConfig(coco=source, size=16, memory=memory).read(source)
    assert len(images) == len(list(images.images)) == 19 and images.most_objects == 1
    assert any("1 damaged file is skipped" in line and "3.png" in line for line in said)
    with pytest.raises(ValueError, match=r"3\.png is cut short or damaged"):
        BoxesConfig(coco=source, size=16, memory=memory, strict=True).read(source)


def test_a_damaged_picture_names_the_annotation(tmp_path):
    source = coco(tmp_path)
    (tmp_path / "images" / "b.png").write_text("text")
    with pytest.raises(ValueError, match="boxes.json, image 9: .*b.png is no image"):
        BoxesConfig(coco=source).read(source)


def test_labels_of_other_files_must_be_known(tmp_path):
    source = coco(tmp_path)
    with pytest.raises(ValueError, match="the label 'dog' does not occur in training; known: cat"):
        BoxesConfig(coco=source).read(source, ("cat",))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(coco="a", voc="b"), "not both"),
        (dict(valid="a"), r"give --data\.coco, \.voc or \.yolo"),
        (dict(crop=1.0), r"crop=1.0 is not in \[0, 1\)"),
        (dict(objects=7), "objects=7: a scene has 1 to 6"),
        (dict(channels=2), "channels=2 must be 1"),
        (dict(colour=2.0), "colour=2.0 must be below 1"),
    ],
)
def test_settings_that_do_not_fit(fields, message):
    with pytest.raises(ValueError, match=message):
        BoxesConfig(**fields)


def test_scenes_are_the_drawn_ones():
    train, _ = BoxesConfig(scenes=5, objects=3).split()
    drawn = scenes("train", 5, 64, 3)
    for one, scene in zip(train.images, drawn, strict=True):
        assert np.array_equal(one.pixels, scene.pixels)
        assert [SHAPES[i] for i in one.labels] == [thing.shape for thing in scene.objects]
        assert np.array_equal(one.boxes, np.array([thing.box for thing in scene.objects]))


def blocks(rows=24, columns=36):
    """An image that is black but for white boxes, so that boxes can be read off it again."""
    pixels, boxes = np.zeros((rows, columns, 3), np.uint8), np.array([[2, 3, 11, 9], [20, 10, 36, 24]], float)
    for left, top, right, bottom in boxes.astype(int):
        pixels[top:bottom, left:right] = 255
    return BoxedImage(pixels, np.array([0, 1]), boxes)


def around(pixels):
    rows, columns = (np.flatnonzero(pixels.any(axis)) for axis in ((1, 2), (0, 2)))
    return [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]


def test_what_training_does_to_pictures_it_does_to_boxes():
    one = blocks()
    for changed in (one.flipped(), one.cropped(1, 2, 30, 20), one.flipped().cropped(3, 0, 36, 20)):
        for box in changed.boxes.astype(int):
            left, top, right, bottom = box
            inside = changed.pixels[top:bottom, left:right]
            assert inside.min() == 255
        hull = [*changed.boxes[:, :2].min(0), *changed.boxes[:, 2:].max(0)]
        assert around(changed.pixels) == hull
    assert one.cropped(9, 0, 36, 24).labels.tolist() == [1]  # less than four tenths of the first is left
    data = BoxesConfig(crop=0.5, colour=0.3)
    stream = BoxStream(BoxedImages([one] * 8, ("a", "b")), data, data.preprocessing, 4)
    epoch, index, batch = next(stream.batches())
    assert (epoch, index) == (0, 1) and "sizes" in batch.inputs and batch.tokens == 4
    again = next(stream.batches(0, 0))[2]
    assert torch.equal(again.inputs["pixels"], batch.inputs["pixels"]) and torch.equal(again.targets, batch.targets)
    for row, (rows, columns) in enumerate(batch.inputs["sizes"].tolist()):
        filled = batch.inputs["pixels"][row].clone()
        filled[:, :rows, :columns] = 0
        assert not filled.any()


def test_batches_of_one_size_say_no_sizes_and_targets_are_filled_up():
    one = blocks()
    empty = BoxedImage(one.pixels, np.zeros(0, np.int64), np.zeros((0, 4)))
    data = BoxesConfig(flip=False)
    stream = BoxStream(BoxedImages([one, empty], ("a", "b")), data, data.preprocessing, 2)
    (batch,) = stream.once(stream.images)
    assert "sizes" not in batch.inputs and batch.targets.shape == (2, 2, 5)
    assert batch.targets[0].tolist()[0] == pytest.approx([0, 6.5 / 36, 6 / 24, 9 / 36, 6 / 24])
    assert (batch.targets[1, :, 0] == IGNORE).all()


def test_every_tenth_picture_is_held_out(tmp_path):
    for number in range(12):
        save_picture(tmp_path / f"{number:02}.png", 10, 10 + number)
        box = OBJECT.format(label="x", box=(1, 1, 5, 5))
        (tmp_path / f"{number:02}.xml").write_text(VOC.format(name=f"{number:02}.png", objects=box))
    data = BoxesConfig(voc=str(tmp_path), size=10)
    train, valid = data.split()
    assert (len(train), [one.pixels.shape[1] for one in valid.images]) == (10, [11, 17])
    assert len(data.held_out()) == 2
    (tmp_path / "one").mkdir()
    with pytest.raises(ValueError, match="cannot be split"):
        save_picture(tmp_path / "one" / "00.png")
        (tmp_path / "one" / "00.xml").write_text((tmp_path / "00.xml").read_text())
        BoxesConfig(voc=str(tmp_path / "one"), size=10).split()


def test_more_pictures_than_memory_are_decoded_when_used_and_give_the_same_batches(tmp_path):
    source = coco(tmp_path)
    batches = []
    for memory in (4.0, 0.0):
        data = BoxesConfig(coco=source, size=16, memory=memory)
        images = data.read(source)
        assert isinstance(images.images, list) == bool(memory) and len(images.take(np.arange(len(images)) == 1)) == 1
        made = BoxStream(images, data, data.preprocessing, 2, seed=3)
        batches.append([batch for _, (*_, batch) in zip(range(5), made.batches(), strict=False)])
        batches[-1] += list(made.once(images))
    for left, right in zip(*batches, strict=True):
        assert torch.equal(left.inputs["pixels"], right.inputs["pixels"]) and torch.equal(left.targets, right.targets)


def test_a_stored_recipe_may_have_the_old_name_of_a_field(tmp_path, capsys):
    (tmp_path / "recipe.toml").write_text('name = "detr"\n[data]\nthings = 2\n')
    assert Recipe.load(tmp_path / "recipe.toml").data.objects == 2
    assert recipe("detr", {"data.things": 3}).data.objects == 3
    assert overrides(["--data.things", "1"]) == {"data.objects": "1"}
    assert capsys.readouterr().err == "--data.things is called --data.objects now\n"

    @dataclass(frozen=True)
    class Own:
        things: int = 1
        objects: int = 5

    assert override(Own(), {"things": 2}, under="data.") == Own(2, 5), "a plugin's own field of that name"
