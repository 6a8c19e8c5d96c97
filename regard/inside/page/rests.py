"""What the answer on a page rests on: the views of `regard.inside.attribution`, of the very tokens that are shown."""

from typing import TYPE_CHECKING, Any

from regard.config import nearest
from regard.inside.attribution import VIEWS, explain
from regard.inside.attribution.pictures import seen_views
from regard.inside.page.pictures import Captioning
from regard.inside.page.record import opaque
from regard.inside.page.texts import Translating, Writing
from regard.nn.stack import Stack
from regard.tasks import ImageEncoder, PixelModel

if TYPE_CHECKING:
    from regard.inside.page import Page

MOST_TOKENS = 64
MOST_WORK = 4e10
"""Parameters × tokens², up to which views are kept in a file: some seconds of one core."""


def possible(page: "Page") -> list[str]:
    """The views that there are for a model and its input."""
    loaded, kinds = page.loaded, {layer.kind for layer in page.layers}
    views = seen_views(loaded) if isinstance(loaded, ImageEncoder | PixelModel) else VIEWS
    if opaque(loaded.model):  # all others need weights, or name heads of layers that are not shown
        return ["lens"] if "lens" in views and stacks_of(page) and page.subject.answers != "vector" else []
    if not kinds or views != VIEWS:
        return [view for view in VIEWS if kinds and view in views]
    if "recurrent" in kinds or not stacks_of(page):  # its tokens are not the same in all layers
        return ["ablation"]
    missing = {"patch"} if len(page.words) > 1 else set()
    missing |= {"lens", "patch"} if page.subject.answers == "vector" else set()
    return [view for view in VIEWS if view not in missing]


def stacks_of(page: "Page") -> list[Stack]:
    return [part for part in page.loaded.model.modules() if isinstance(part, Stack)]


def copies(page: "Page", view: str) -> int:
    """How often the input goes through the model for a view, each time changed at one place or in one head."""
    heads, tokens = sum(layer.heads for layer in page.layers), page.length
    places = tokens * sum(len(stack.blocks) + 1 for stack in stacks_of(page))
    return {"ablation": heads, "agreement": tokens, "patch": heads + places}.get(view, 1)


def view(page: "Page", name: str, *, at: int | None = None, against: str | None = None) -> dict[str, Any]:
    """A view as plain data: of all outputs, or of the one `at` a place; a patch is `against` another text."""
    if name not in (known := possible(page)):
        raise ValueError(f"there is no view {name!r} of this model and input; {nearest(name, known)}")
    text, second = (*read_by(page), None)[:2] if not isinstance(page.loaded, ImageEncoder) else (page.words[0], None)
    how: dict[str, Any] = {"at": at, "against": against}
    if isinstance(page.subject, Translating):
        how["target"] = page.subject.ids[1:]
        if against is not None:
            how["other_target"] = Translating(page.loaded, against).ids[1:]
    elif isinstance(page.subject, Captioning):
        how["target"] = page.subject.ids[1:]
    elif isinstance(page.subject, Writing):
        how["target"] = how["other_target"] = page.subject.input["target"] or None
    return explain(page.loaded, text, name, second=second, off=page.off, **how)[0]


def read_by(page: "Page") -> tuple[Any, ...]:
    """What the views read: the words, or the beginning of a text that was cut, if that is a text."""
    if not isinstance(page.subject, Writing):
        return page.words
    subject, loaded = page.subject, page.loaded
    ids = [*loaded.front, *loaded.tokenizer.encode(subject.text)]
    if [*ids, *subject.input["target"]] != subject.ids:
        raise ValueError("the text was cut inside a character, and views read whole ones; choose another place")
    return (subject.text,)


def kept_views(page: "Page") -> dict[str, dict[str, Any]]:
    """All that need no other text, for a file; none where that takes long. What a view refuses is told as well."""
    size = sum(parameter.numel() for parameter in page.loaded.model.parameters())
    if page.length > MOST_TOKENS or size * page.length**2 > MOST_WORK:
        return {}
    found: dict[str, dict[str, Any]] = {}
    for name in possible(page):
        if name != "patch":
            try:
                found[name] = view(page, name)
            except ValueError as error:
                found[name] = {"problem": str(error)}
    return found
