"""The topics of the lectures, heading by heading, each with the claims or pages that answer it."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from regard.claims.ledger import LECTURES

REASON = "no: "


@dataclass(frozen=True, kw_only=True, slots=True)
class Topic:
    """A heading of a lecture, in our words."""

    lecture: str
    name: str
    claims: tuple[str, ...] = ()
    """Ids of the ledger."""
    pages: tuple[str, ...] = ()
    """Pages and figures of the documentation."""
    reason: str = ""
    """The reason why there is neither."""

    def __post_init__(self) -> None:
        if bool(self.claims or self.pages) == bool(self.reason):
            raise ValueError(f"topic {self.name!r} of lecture {self.lecture}: give claims and pages, or a reason")


@cache
def topics() -> tuple[Topic, ...]:
    """Return all topics, in the order of the lectures."""
    content = tomllib.loads((Path(__file__).parent / "topics.toml").read_text(encoding="utf-8"))
    return tuple(topic_of(lecture, name, text) for lecture in LECTURES for name, text in content[lecture].items())


def topic_of(lecture: str, name: str, text: str) -> Topic:
    """Return the topic that an entry of the file describes."""
    if text.startswith(REASON):
        return Topic(lecture=lecture, name=name, reason=text.removeprefix(REASON))
    words = text.split()
    pages = tuple(word for word in words if word.startswith("docs/"))
    return Topic(lecture=lecture, name=name, claims=tuple(word for word in words if word not in pages), pages=pages)


def as_dict(topic: Topic) -> dict[str, Any]:
    """Return a topic for `--json`."""
    return {name: getattr(topic, name) for name in ("lecture", "name", "claims", "pages", "reason")}


def render(chosen: Sequence[Topic]) -> str:
    """Return a line for each topic."""
    lines = [
        f"{topic.lecture}  {topic.name}: {' '.join((*topic.claims, *topic.pages)) or topic.reason}" for topic in chosen
    ]
    open_topics = sum(bool(topic.reason) for topic in chosen)
    return "\n".join([*lines, "", f"{len(chosen)} topics; {open_topics} of them without a claim or a page"])


def page() -> str:
    """Return the page of docs/claims that lists all topics."""
    text = [
        "# The topics of the lectures",
        "",
        "Each heading of the five lectures, in our words, and what answers it here (`regard claims --topics`).",
    ]
    for lecture in LECTURES:
        text += ["", f"## Lecture {lecture}", ""]
        for topic in topics():
            if topic.lecture == lecture:
                linked = [f"[{name}]({name[:3]}.md)" for name in topic.claims]
                linked += [f"[{path.removeprefix('docs/')}](../{path.removeprefix('docs/')})" for path in topic.pages]
                text.append(f"- {topic.name}: {' · '.join(linked) or topic.reason}")
    return "\n".join([*text, ""])
