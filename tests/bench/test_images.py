"""By examples and by patch: figures of real runs, nothing is trained twice; figures of both."""

import json

import pytest

from regard.bench import images
from regard.bench.images import ImagesBenchConfig, draw_images, measure_images, render_images
from regard.bench.measure import Died
from regard.data.sets.labelled_images import digits
from regard.eval.scores import evaluate
from regard.recipes import Recipe
from tests.cli.calling import call, fails

SMALL = {"train.warmup": 1, "model.dim": 12}
FEW = ImagesBenchConfig(models=("vit", "cnn"), values=(20, 60), seeds=1, steps=2)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("images")
    return out, measure_images(FEW, out, SMALL)


def test_figures_are_those_of_the_runs(trained):
    out, found = trained
    assert [(cell["model"], cell["examples"], cell["seed"]) for cell in found["cells"]] == [
        ("vit", 20, 0), ("cnn", 20, 0), ("vit", 60, 0), ("cnn", 60, 0),
    ]  # fmt: skip
    for cell in found["cells"]:
        run = out / f"{cell['model']}-{cell['examples']}-0"
        plan = Recipe.load(run / "recipe.toml")
        assert (plan.data.examples, plan.train.steps, plan.data.mixup, plan.data.shift) == (cell["examples"], 2, 0, 0)
        assert plan.train.batch_tokens == 64 * plan.model.tokens
        assert cell["accuracy"] == evaluate(run, {}).scores["accuracy"] and cell["examples_held_out"] == 360
        assert cell["seconds"] > 0 and cell["seconds_per_image"] > 0
    assert Recipe.load(out / "cnn-20-0" / "recipe.toml").model.attention == 0


def test_what_is_finished_is_not_trained_again(trained, monkeypatch):
    out, found = trained
    monkeypatch.setattr(images, "in_child", lambda *arguments: pytest.fail("trained again"))
    assert measure_images(FEW, out, SMALL) == found
    with pytest.raises(ValueError, match="was trained with other settings; choose another"):
        measure_images(FEW, out, SMALL | {"train.lr": 1e-3})


def test_pretraining_on_few_images_with_equal_flops(monkeypatch, tmp_path):
    """The dearer model takes fewer steps; both are scored by a linear classifier."""
    monkeypatch.setattr(images, "in_child", lambda work, *arguments: work(*arguments))
    asked = ImagesBenchConfig(by="pretraining", models=("vit", "cnn"), values=(40,), seeds=1, flops=1e10)
    found = measure_images(asked, tmp_path, {"train.warmup": 1})
    vit, cnn = found["cells"]
    for cell in (vit, cnn):
        plan = Recipe.load(tmp_path / f"{cell['model']}-40-0" / "recipe.toml")
        assert (plan.data.examples, plan.train.steps) == (40, cell["steps"]) and 0 <= cell["accuracy"] <= 100
        step = 2 * images.BATCH * 3 * cell["flops_per_image"]  # two views, forward and backward
        assert abs(cell["steps"] * step - 1e10) <= step / 2
    assert cnn["flops_per_image"] < vit["flops_per_image"] and vit["steps"] < cnn["steps"]
    assert "pre-trained on" in render_images(found) and "1e+10 FLOPs in steps of 64 images" in render_images(found)
    with pytest.raises(ValueError, match="minutes and flops are two budgets"):
        ImagesBenchConfig(flops=1e9, minutes=1.0)


def made(work, asked, place, threads):
    """What a run might have given: better with more examples and smaller patches, but for a second seed."""
    right = 90 + 2 * asked["train.seed"] + asked.get("data.examples", 0) / 100 - asked.get("model.patch", 0)
    return {"accuracy": right, "seconds": 3.0, "seconds_per_image": 0.002, "tokens": 16, "parameters": 1234}


def test_the_table_and_figure_by_examples(monkeypatch, tmp_path):
    monkeypatch.setattr(images, "in_child", made)
    monkeypatch.setattr(images, "store", lambda *arguments: None)
    found = measure_images(ImagesBenchConfig(seeds=2), tmp_path)
    shown = render_images(found).splitlines()
    assert shown[2].split() == ["images", "50", "200", "1,000", "steps", "training", "FLOPs", "parameters"]
    assert [line.split()[0] for line in shown[3:]] == ["vit", "swin", "cnn"]
    assert "91.50 ± 1.41" in shown[3] and "101.00 ± 1.41" in shown[3] and "3.00 s" in shown[3] and "1,234" in shown[3]
    figure = draw_images(found, tmp_path / "bias.png")
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear") and axes.get_xlabel() == "labelled images"
    assert [list(line.get_ydata()) for line in axes.get_lines()] == [[91.5, 93.0, 101.0]] * 3
    assert (tmp_path / "bias.png").stat().st_size > 5000


def test_the_table_and_figure_by_patch(monkeypatch, tmp_path):
    monkeypatch.setattr(images, "in_child", made)
    monkeypatch.setattr(images, "store", lambda *arguments: None)
    found = measure_images(ImagesBenchConfig(by="patch", seeds=1), tmp_path)
    assert found["values"] == [1, 2, 4, 8] and found["models"] == ["vit"]
    shown = render_images(found).splitlines()
    assert shown[2].split()[:4] == ["patch", "tokens", "accuracy", "training"]
    assert shown[4].split() == ["vit", "2", "×", "2", "16", "88.00", "3.00", "s", "2.00", "ms", "1,234"]
    figure = draw_images(found, tmp_path / "patch.png")
    assert [axes.get_yscale() for axes in figure.axes] == ["linear", "log"]


def test_a_run_that_dies_is_a_line_and_one_that_is_stopped_ends_it(tmp_path, monkeypatch):
    def child(work, asked, *more):
        if asked["name"] == "vit":
            raise Died("out of memory")
        raise KeyboardInterrupt

    monkeypatch.setattr(images, "in_child", child)
    found = measure_images(FEW, tmp_path)
    assert found["interrupted"] and found["cells"][0]["failed"] == "out of memory"
    assert "–" in render_images(found) and json.dumps(found)
    draw_images(found, tmp_path / "none.png")


def test_examples_are_drawn_by_a_seed_with_all_classes():
    every = digits("train")
    some, others = every.sample(30, 0), every.sample(30, 1)
    assert len(some) == 30 and set(some.labels) == set(range(10)) and (some.pixels != others.pixels).any()
    assert (some.pixels == every.sample(30, 0).pixels).all() and len(every.sample(10**6, 0)) == len(every)
    more = every.sample(500, 0)
    shares = [(more.labels == label).mean() / (every.labels == label).mean() for label in range(10)]
    assert min(shares) > 0.95 and max(shares) < 1.05


def test_at_the_command_line(capsys, tmp_path):
    words = "--by patch --values 4 --seeds 1 --steps 2 --model.depth 1 --quiet --json".split()
    call("bench", "pictures", *words, "--out", tmp_path / "patch.png")
    captured = capsys.readouterr()
    assert captured.err.count("`regard bench pictures` is called `regard bench images` now") == 1
    (cell,) = json.loads(captured.out)["cells"]
    assert (cell["model"], cell["patch"], cell["tokens"]) == ("vit", 4, 5) and (tmp_path / "patch.png").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--models", "vti"], "unknown recipe 'vti'; did you mean 'vit'"),
        (["--models", "lm"], "lm is not trained on labelled images"),
        (["--data.examples", "5"], "name them with --values, not --data.examples"),
        (["--by", "patch", "--values", "9"], "no patch of 9 × 9 pixels fits"),
        (["--data.images", "nowhere"], "no such folder: nowhere"),
        (["--minutes", "0"], "minutes=0.0 must be positive"),
        (["--values", "x"], "'x' is no list of numbers"),
        (["--out", "a.jpg"], "cannot draw to 'a.jpg'"),
    ],
)
def test_mistakes_are_one_line(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in fails(capsys, "bench", "images", *words)
    assert not list(tmp_path.iterdir())
