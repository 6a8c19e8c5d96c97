"""Video models from training to labels: every way of attention, a rate of frames, what counts, and fine-tuning."""

import numpy as np
import pytest
import torch

import regard
from regard.data.generated import clips as generated
from regard.data.readers.clips import from_frames
from regard.data.sets import labelled_clips
from regard.eval.scores import evaluate
from regard.inside.explain.rollout import flow, rollout
from regard.inside.views import show_view
from regard.models import build, preset
from regard.nn.weights import behind_kernels, find_kernels, weights_of
from regard.recipes import fit
from regard.tasks.prepared_video import shares_of
from regard.tasks.video_classifier import VideoClassifier

TINY = {"model.dim": 16, "model.depth": 1, "model.heads": 2, "model.ffn_dim": 16, "train.steps": 2,
        "train.eval_every": 2}  # fmt: skip


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Parts of few clips."""
    monkeypatch.setattr(labelled_clips, "PARTS", {"train": (0, 40), "valid": (1, 9), "test": (2, 9)})


def clip(number=3):
    return generated.clip("motion", "test", number).frames


@pytest.mark.parametrize("attention", ["whole", "divided", "factorised"])
def test_a_run_labels_clips_and_says_what_counts(tmp_path, attention):
    fit("video", out=tmp_path / "run", quiet=True, **TINY | {"model.attention": attention})
    task = regard.load(tmp_path / "run")
    labels = task.classify(clip())
    assert len(labels) == 7 and abs(sum(one.probability for one in labels) - 1) < 1e-5
    assert task.embed([clip(), clip(4)]).shape == (2, 16)
    scored = evaluate(tmp_path / "run", {})
    assert scored.scores["examples"] == 9 and "linear on one frame" in scored.baselines
    data, draw = show_view(task.read(clip()))
    assert data["view"] == "frames" and abs(sum(row["share"] for row in data["steps"]) - 1) < 1e-3
    draw(tmp_path / "frames.png")
    assert (tmp_path / "frames.png").stat().st_size > 1000
    with pytest.raises(ValueError, match="no attention layer 9"):
        show_view(task.read(clip()), "frames", layer=9)


def test_forwards_or_backwards_at_a_rate_and_on_from_a_run(tmp_path):
    fields = {"data.task": "forwards", "data.kind": "slowing", "data.rate": 10.0, "data.frames": 4}
    fit("video", out=tmp_path / "run", quiet=True, **TINY | fields)
    task = regard.load(tmp_path / "run")
    assert task.model.config.labels == ("backwards", "forwards")
    assert task.tensors([task.preprocessing.fit(from_frames(clip()))])["lengths"].tolist() == [3]  # 8 of 25 a second
    assert evaluate(tmp_path / "run", {}).scores["examples"] == 18
    fit("video", out=tmp_path / "on", quiet=True, **{"data.base": str(tmp_path / "run"), "train.steps": 1})
    again = regard.load(tmp_path / "on")
    assert again.preprocessing == task.preprocessing and len(again.model.config.labels) == 7


def model_of(attention, pooling):
    torch.manual_seed(0)
    fields = dict(attention=attention, pooling=pooling, dim=16, depth=2, heads=2, labels=("a", "b"))
    return VideoClassifier(build("video-vit", preset("video-vit", "tiny", **fields)),
                           labelled_clips.ClipsConfig().preprocessing())  # fmt: skip


def dense(name, weights, steps, cells, first):
    """The mean weights of a layer's heads as a matrix of all tokens with all."""
    own, size = weights.mean(1), first + steps * cells
    matrix = torch.zeros(size, size)
    index = first + torch.arange(steps * cells).view(steps, cells)
    if name.endswith("time"):
        matrix[:first, :first] = torch.eye(first)
        for cell in range(cells):
            matrix[index[:, cell, None], index[:, cell]] = own[cell]
        return matrix
    for step in range(steps):
        rows = torch.cat([torch.arange(first), index[step]])
        share = torch.ones(len(rows), 1)
        share[:first] /= steps
        matrix[rows[:, None], rows] += share * own[step]
    return matrix


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_shares_are_attention_rollout(pooling):
    whole = model_of("whole", pooling).read(clip())
    shares, _ = shares_of(whole)
    wanted = rollout(whole)[0][whole.model.config.first :]
    assert torch.allclose(shares.flatten(), wanted / wanted.sum(), atol=1e-6)
    divided = model_of("divided", pooling).read(clip())
    kernels, kept = find_kernels(divided.model), {}
    with (
        torch.no_grad(),
        behind_kernels(kernels, lambda name, kernel, call, out: kept.__setitem__(name, weights_of(kernel, **call))),
    ):
        divided.run(divided.inputs)  # in the order of their calls
    first = divided.model.config.first
    steps = [("encoder", dense(name, weights, 4, 16, first)) for name, weights in kept.items()]
    if pooling == "cls":  # along time the class token has no part: it keeps all, of which it keeps half here, too
        assert all(torch.allclose(matrix.sum(1), torch.ones(65)) for _, matrix in steps)
    reached = divided.outputs.readout @ flow(steps, stay=0.5, go=0.5)
    wanted = reached[0, first:]
    assert torch.allclose(shares_of(divided)[0].flatten(), wanted / wanted.sum(), atol=1e-6)


def test_a_clip_of_another_shape_is_refused():
    model = model_of("whole", "mean").model
    with pytest.raises(ValueError, match="the clip has 12 frames, the model reads 8"):
        model(torch.randn(1, 12, 1, 32, 32))
    with pytest.raises(ValueError, match="clips have 3 channels, the model reads 1"):
        model(torch.randn(1, 8, 3, 32, 32))
    assert model(torch.randn(2, 8, 1, 48, 32)).shape == (2, 2), "positions in space are interpolated"


def test_padding_is_the_last_frame():
    task = model_of("divided", "cls")
    short = np.concatenate([clip()[:3], np.repeat(clip()[2:3], 5, 0)])
    inputs = task.tensors([short[:3]])
    with torch.no_grad():
        alone = task.model(**inputs)
        filled = task.model(
            torch.randn(1, 8, 1, 32, 32).index_copy(1, torch.arange(3), inputs["video"]), inputs["lengths"]
        )
    assert torch.allclose(alone, filled, atol=1e-5)
