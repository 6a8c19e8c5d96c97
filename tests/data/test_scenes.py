"""Scenes: what is said of them can be seen in them."""

import numpy as np
import pytest

from regard.data.generated.scenes import APART, COLOURS, SHAPES, VISIBLE, scene, scenes, stream_scenes

FEW = scenes("train", 60, most=4)


def test_a_scene_depends_on_its_number_alone() -> None:
    again = next(stream_scenes("train", most=4, first=17))
    assert (again.pixels == FEW[17].pixels).all() and again.objects == FEW[17].objects
    others = scenes("test", 60, most=4)
    assert not any((a.pixels == b.pixels).all() for a, b in zip(FEW, others, strict=True))


def test_boxes_hold_what_is_seen() -> None:
    for one in FEW:
        for thing, mask in zip(one.objects, one.masks, strict=True):
            left, top, right, bottom = thing.box
            rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
            assert 0 <= left <= columns[0] + 0.5 and columns[-1] + 0.5 <= right <= 64
            assert 0 <= top <= rows[0] + 0.5 and rows[-1] + 0.5 <= bottom <= 64
        assert (one.masks.sum(0) <= 1).all()  # a pixel shows one thing


def test_things_have_their_colours() -> None:
    for one in FEW:
        for thing, mask in zip(one.objects, one.masks, strict=True):
            inner = np.median(one.pixels[mask], axis=0)
            away = {name: np.abs(inner - colour).sum() for name, colour in COLOURS.items()}
            assert min(away, key=lambda name: away[name]) == thing.colour


def test_the_circle_of_a_scene_fills_its_box_as_a_circle_does() -> None:
    alone = [one for one in scenes("valid", 200, most=1)]
    filled: dict[str, list[float]] = {shape: [] for shape in SHAPES}
    for one in alone:
        left, top, right, bottom = one.objects[0].box
        filled[one.objects[0].shape].append(one.masks[0].sum() / ((right - left) * (bottom - top)))
    assert np.mean(filled["circle"]) == pytest.approx(np.pi / 4, abs=0.03)
    assert min(filled, key=lambda name: np.mean(filled[name])) == "star"


def test_captions_name_things_from_left_to_right() -> None:
    for one in FEW:
        centres = [thing.centre[0] for thing in one.objects]
        assert all(b - a > APART * 64 - 8 and b > a for a, b in zip(centres, centres[1:], strict=False))
        words = one.caption.replace(",", "").split()
        assert [word for word in words if word in SHAPES] == [thing.shape for thing in one.objects]
        assert [word for word in words if word in COLOURS] == [thing.colour for thing in one.objects]
        assert words[-2] == one.ground


def test_questions_have_answers_that_are_true() -> None:
    for one in FEW:
        answers = dict(one.questions())
        assert answers["how many things are there?"] == str(len(one.objects))
        for thing in one.objects:
            if f"what colour is the {thing.shape}?" in answers:
                assert answers[f"what colour is the {thing.shape}?"] == thing.colour
        counted = sum(int(answers[f"how many {n} are there?"]) for n in ("circles", "squares", "triangles"))
        assert counted == sum(thing.shape in ("circle", "square", "triangle") for thing in one.objects)


def test_what_stands_behind_is_mostly_seen() -> None:
    assert 0.3 < VISIBLE <= 1
    hidden = [one for one in scenes("train", 200, most=4) if len(one.objects) > 1]
    shares = [mask.sum() for one in hidden for mask in one.masks]
    assert min(shares) > 15  # pixels


@pytest.mark.parametrize("how", [dict(fewest=0), dict(most=7), dict(size=8), dict(fewest=3, most=2)])
def test_impossible_scenes_are_refused(how: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"1 to 6 objects|at least 16"):
        scene(np.random.default_rng(0), **how)
