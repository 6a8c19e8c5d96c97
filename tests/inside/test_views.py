"""Pictures are written whole, in the format asked for, and can be read."""

import math
import warnings
from itertools import pairwise

import pytest
import torch

from regard.inside.capture.weights import look
from regard.inside.draw import canvas, curves, matrices
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.masks import causal, window

ODD = ["Grüße", "$5_x^2$", "\n", "\x00", "", "日本語", "😀", "a" * 50]


def weights(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).softmax(-1)


def tokens(count: int) -> list[str]:
    return [f"Wörtchen{i}"[: 3 + i % 9] for i in range(count)]


def overlaps(labels, axis: int) -> bool:
    boxes = [label.get_window_extent() for label in labels]
    spans = sorted((box.x0, box.x1) if axis == 0 else (box.y0, box.y1) for box in boxes)
    return any(a[1] > b[0] + 0.5 for a, b in pairwise(spans))


@pytest.mark.parametrize("count", [1, 5, 20, 60])
def test_alignment_labels_can_be_read(tmp_path, count):
    path = tmp_path / "alignment.png"
    figure = matrices.draw_alignment(weights(count, count), tokens(count), tokens(count), path, "title")
    axes = figure.axes[0]
    labels = [*axes.get_xticklabels(), *axes.get_yticklabels()]
    assert [label.get_text() for label in labels] == tokens(count) * 2
    assert min(label.get_fontsize() for label in labels) >= 7
    assert not overlaps(axes.get_yticklabels(), 1)
    if axes.get_xticklabels()[0].get_rotation() == 90:
        assert not overlaps(axes.get_xticklabels(), 0)
    assert axes.xaxis.get_ticks_position() == "top"
    numbers = [text for text in axes.texts if text.get_text().startswith(".")]
    assert bool(numbers) == (1 < count <= matrices.MOST_NUMBERS)
    width, height = png_size(path)
    assert 100 < width < 3000 and 100 < height < 3000


def png_size(path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])


def test_everything_drawn_is_on_the_paper():
    figure = matrices.draw_alignment(weights(9, 7), tokens(7), tokens(9), None, "a title " * 9)
    box, (width, height) = figure.get_tightbbox(figure.canvas.get_renderer()), figure.get_size_inches()
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height


def test_heads_grid_labels_can_be_read_at_sixty_tokens(tmp_path):
    path = tmp_path / "heads.png"
    layers = {f"decoder.blocks.{i}.cross": weights(2, 60, 60) for i in range(2)}
    figure = matrices.draw_heads(layers, tokens(60), tokens(60), path, "heads")
    top_left, top_right, bottom_left, bottom_right = figure.axes[:4]
    assert min(label.get_fontsize() for label in top_left.get_xticklabels()) >= 7
    assert not overlaps(top_left.get_yticklabels(), 1) and not overlaps(top_left.get_xticklabels(), 0)
    assert len(bottom_left.get_yticklabels()) == 60 and not bottom_right.get_yticklabels()
    assert (top_left.get_ylabel(), bottom_left.get_ylabel()) == ("layer 0", "layer 1")
    assert max(png_size(path)) < 8000
    assert len({axes.images[0].get_clim() for axes in figure.axes[:4]}) == 1


def test_heads_of_one_layer_stand_four_in_a_row():
    figure = matrices.draw_heads(weights(6, 5, 5), tokens(5))
    panels = figure.axes[:6]
    assert [axes.get_title() for axes in panels] == [f"head {i}" for i in range(6)]
    assert panels[4].get_position().y1 < panels[3].get_position().y0
    assert matrices.draw_heads(weights(2, 80, 80)).get_size_inches().max() < 6  # without labels: thumbnails


def test_a_large_grid_stays_below_the_limit_of_pixels():
    layers = {f"{i}": weights(8, 60, 60) for i in range(4)}
    figure = matrices.draw_heads(layers, tokens(60))
    assert figure.dpi < 150 and (figure.get_size_inches() * figure.dpi).prod() <= canvas.MOST_PIXELS * 1.01


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_odd_tokens_in_every_format_without_a_word(tmp_path, suffix, capfd):
    path = tmp_path / "new" / f"x.{suffix}"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        matrices.draw_alignment(weights(8, 8), ODD, ODD, path, "$not mathematics")
        matrices.draw_lines(weights(8, 8), ODD, ODD, path)
    assert path.stat().st_size > 1000 and [each.name for each in path.parent.iterdir()] == [path.name]
    assert capfd.readouterr() == ("", "")


def test_labels_are_printable():
    assert canvas.readable(ODD) == ["Grüße", "$5_x^2$", "↵", "�", "∅", "日本語", "😀", "a" * 23 + "…"]


def test_wrong_paths_and_labels_carry_the_cure(tmp_path):
    with pytest.raises(ValueError, match=r"a figure ends in .png, .svg, .pdf"):
        matrices.draw_alignment(weights(2, 2), ["a", "b"], ["a", "b"], tmp_path / "x.jpeg")
    with pytest.raises(ValueError, match=r"weights are 2 × 3 \(target × source\), got 2 target labels and 2 source"):
        matrices.draw_alignment(weights(2, 3), ["a", "b"], ["a", "b"])
    with pytest.raises(ValueError, match="nothing to draw"):
        matrices.draw_alignment(torch.zeros(0, 2), ["a", "b"], [])
    with pytest.raises(ValueError, match="no layers to draw"):
        matrices.draw_heads({})
    with pytest.raises(ValueError, match="no losses to draw"):
        curves.draw_training({"a": [{"step": 1, "lr": 0.1}]})
    with pytest.raises(ValueError, match="no buckets to draw"):
        curves.draw_by_length({"a": []})
    assert not list(tmp_path.iterdir())


def test_a_failed_save_leaves_the_old_picture(tmp_path, monkeypatch):
    path = tmp_path / "x.png"
    path.write_text("old")
    figure = matrices.draw_alignment(weights(2, 2), ["a", "b"], ["c", "d"])

    def fail(partial, **how):
        partial.write_text("half")
        raise OSError("disk full")

    monkeypatch.setattr(figure, "savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        canvas.save(figure, path)
    assert path.read_text() == "old" and [each.name for each in tmp_path.iterdir()] == ["x.png"]


def test_lines_by_length_name_each_run_and_count_sentences(tmp_path):
    series = {
        "attention": [("1–5", 30.0, 1200), ("6–10", 29.0, 80)],
        "fixed": [("1–5", 29.9, 1200), ("6–10", None, 80)],
    }
    figure = curves.draw_by_length(series, tmp_path / "x.png", "BLEU")
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1–5\nn = 1,200", "6–10\nn = 80"]
    names = [text for text in axes.texts if text.get_text() in series]
    assert len(names) == 2 and not overlaps(names, 1) and axes.get_ylabel() == "BLEU"


def test_buckets_of_one_label_stay_apart_and_lines_may_have_gaps():
    figure = curves.draw_by_length({"a": [("4", 9.5, 3), ("4", 8, 3), ("5", None, 2)], "b": [("4", None, 3)]})
    first, second = (line.get_ydata() for line in figure.axes[0].lines[:2])
    assert list(first[:2]) == [9.5, 8] and math.isnan(first[2]) and all(map(math.isnan, second))


def test_names_of_lines_are_spread_within_the_axes():
    assert canvas.spread([0.0, 0.5], 0.1) == [0.0, 0.5]
    assert canvas.spread([0.95, 0.96, 0.97], 0.1) == pytest.approx([0.8, 0.9, 1.0])


def test_training_curves(tmp_path):
    records = [{"step": i, "loss": 5 / i, "lr": 1e-3} for i in range(1, 300)]
    records += [{"step": 100, "valid_loss": 2.0}, {"step": 200, "valid_loss": 1.5}]
    figure = curves.draw_training({"one": records, "two": records[:50]}, tmp_path / "x.svg")
    losses, rates = figure.axes
    assert "held out" in losses.get_title(loc="left") and sum(len(line.get_xdata()) > 0 for line in rates.lines) == 2
    assert sorted(text.get_text() for text in losses.texts) == ["one", "two"]
    assert curves.running_mean([3.0] * 5, 0.9) == pytest.approx([3.0] * 5)


def test_masks_are_drawn_as_they_are(tmp_path):
    figure = matrices.draw_masks({"a": causal(), "b": causal() & window(1)}, tmp_path / "x.png", length=5)
    assert (figure.axes[0].images[0].get_array() == torch.ones(5, 5).tril().numpy()).all()
    assert figure.axes[1].images[0].get_array().sum() == 9


def test_lightness_of_the_ramp_falls_from_white():
    red, green, blue = canvas.ramp()([0.0, 0.25, 0.5, 0.75, 1.0])[:, :3].T
    assert red[0] == green[0] == blue[0] == pytest.approx(1.0, abs=1e-3)
    light = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    assert (light[1:] < light[:-1] - 0.1).all()


def test_what_was_seen_plots_itself(tmp_path):
    layer = Attention(AttentionConfig(dim=12, heads=3))
    with look(layer) as seen:
        assert "nothing seen" in seen._repr_html_()
        layer(torch.randn(2, 5, 12))
    assert seen._repr_html_().startswith("<iframe ")
    assert len(seen.plot(tmp_path / "x.png", row=1, source_labels=list("abcde")).axes) == 4
