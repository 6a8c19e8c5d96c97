"""Boxes around what was found: names hide neither small boxes nor each other."""

import numpy as np
from PIL import Image

from regard.inside.draw.boxes import COLOURS, draw_boxes, place
from regard.tasks import Detection


def test_names_stand_where_there_is_room():
    size = (500, 500)
    assert place((10, 100, 60, 120), 40, 20, size, []) == (10, 80)  # above
    assert place((10, 5, 60, 30), 40, 20, size, []) == (10, 30)  # below, where the picture begins
    assert place((480, 100, 500, 120), 40, 20, size, []) == (460, 80)
    assert place((0, 0, 500, 500), 40, 20, size, []) == (0, 0)  # in it
    assert place((10, 100, 60, 120), 40, 20, size, [(0, 70, 30, 95)]) == (10, 120)  # not on another name


def test_a_small_box_and_its_neighbours_edges_are_seen():
    """The box of the less sure one lies where the surer one's name was drawn over it."""
    found = [Detection("a", 0.9, (100.0, 100.0, 300.0, 300.0)), Detection("b", 0.5, (100.0, 2.0, 300.0, 99.0))]
    drawn = np.asarray(draw_boxes(Image.new("RGB", (512, 512)), found, ("a", "b")))
    assert Image.fromarray(drawn[3:4, 290:291]).getpixel((0, 0)) == tuple(bytes.fromhex(COLOURS[1][1:]))
    small = [Detection("a", 0.9, (200.0, 0.0, 260.0, 12.0))]
    drawn = np.asarray(draw_boxes(Image.new("RGB", (512, 512)), small, ("a",)))
    assert (drawn[5:8, 205:255] == 0).all() and drawn[14:20, 205:230].any()  # its inside is free, its name is below
