"""Names that carry settings of their own: `rotary:base=500000`, `relative:buckets=8,far=20`."""

import pytest
import torch

from regard.nn.block import BlockConfig
from regard.nn.stack import build_position
from regard.registry import Registry, positions

SIZES = dict(dim=12, heads=3, head_dim=4, max_len=11)


def scheme(name, **changes):
    return build_position(BlockConfig(**dict(dim=12, heads=3, ffn_dim=5, max_len=11) | changes, position=name))


def test_settings_are_read_as_their_types():
    assert positions.settings("rotary:base=500000") == {"base": 500_000.0}
    assert positions.settings("relative:buckets=8,far=20,inside_scale=true") == {
        "buckets": 8,
        "far": 20,
        "inside_scale": True,
    }
    assert positions.settings("rotary") == positions.settings("rotary:") == {}
    assert isinstance(positions.settings("rotary:base=500000")["base"], float)


def test_a_name_with_settings_builds_what_its_class_would():
    theirs = positions["rotary"](base=500.0, **SIZES)
    assert torch.equal(scheme("rotary:base=500").angles, theirs.angles)
    assert not torch.equal(scheme("rotary").angles, theirs.angles)
    relative = scheme("relative:buckets=8,far=20")
    assert relative.table.shape == (8, 3) and relative.far == 20 and type(relative) is positions["relative"]


def test_settings_do_not_hide_a_name():
    assert "rotary:base=7" in positions and "rotory:base=7" not in positions
    assert positions["rotary:base=7"] is positions["rotary"]
    with pytest.raises(ValueError, match="unknown position 'rotory'; did you mean 'rotary'"):
        scheme("rotory:base=7")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rotary:bass=7", "position 'rotary:bass=7': no setting 'bass'; did you mean 'base'?"),
        ("relative:buckets=8,near=2", "position 'relative:buckets=8,near=2': no setting 'near'; known: .*buckets.*far"),
        ("relative:buckets=many", "buckets of position 'relative:buckets=many' takes a whole number, got 'many'"),
        ("relative:buckets=8.5", "buckets of position 'relative:buckets=8.5' takes a whole number, got '8.5'"),
        ("relative:buckets", "buckets of position 'relative:buckets' takes a whole number, got ''"),
        ("relative:inside_scale=perhaps", r"takes true\|false, got 'perhaps'"),
        ("none:base=7", "position 'none:base=7': no setting 'base'"),
    ],
)
def test_wrong_settings_name_the_cure(name, message):
    with pytest.raises(ValueError, match=message):
        scheme(name)


def test_any_registry_reads_settings():
    shapes = Registry("shape")

    @shapes.register("box")
    def box(side: int = 1, name: str | None = None, **rest: int) -> tuple[int, str | None, dict[str, int]]:
        return side, name, rest

    assert shapes.build("box:side=3,name=none", depth=2) == (3, None, {"depth": 2})
    with pytest.raises(ValueError, match="shape 'box:rest=3': no setting 'rest'; known: name, side"):
        shapes.build("box:rest=3")
