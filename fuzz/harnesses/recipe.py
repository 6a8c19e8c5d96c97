"""The recipe.toml of a run."""

import regard.recipes  # noqa: F401  registers them
from fuzz.scratch import put
from regard.runs.recipe import Recipe, recipe

READS = ("regard.runs.recipe", "regard.config")
NAMES = ("translate", "lm", "classify", "vit")


def seeds() -> list[bytes]:
    """Return recipes as a run stores them."""
    out = []
    for name in NAMES:
        path = put("seed.toml", b"")
        recipe(name).save(path)
        out.append(path.read_bytes())
    return out


def run(data: bytes) -> None:
    """Load a stored recipe."""
    Recipe.load(put("recipe.toml", data))
