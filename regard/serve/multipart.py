"""Forms with files, as browsers and OpenAI's clients upload them (RFC 7578)."""

from email.message import Message
from typing import NamedTuple

MOST_PARTS, MOST_HEADER, MOST_TYPE = 64, 4096, 1000
"""Parts of a form, and bytes of a part's header and of the content type: parsing them takes quadratic time."""


class Part(NamedTuple):
    """A field of a form; a file has a name."""

    name: str
    content: bytes
    filename: str | None


def parameter(header: str, name: str) -> str | None:
    """A parameter of a header, such as the name in `form-data; name="file"`."""
    message = Message()
    message["x"] = header
    value = message.get_param(name, header="x")
    return value if isinstance(value, str) else value[2] if value else None


def read_form(body: bytes, content_type: str) -> list[Part]:
    """The fields of a form, in order; ValueError for what is no form."""
    boundary = parameter(content_type, "boundary") if len(content_type) <= MOST_TYPE else None
    if not boundary or len(boundary) > 200 or not boundary.isascii():
        raise ValueError("the form names no boundary; let your client build it")
    before, *sections = (b"\r\n" + body).split(b"\r\n--" + boundary.encode(), MOST_PARTS + 1)
    if not sections or len(sections) > MOST_PARTS:
        raise ValueError(f"the form has {'no' if not sections else 'too many'} parts; send file and model")
    if not sections[-1].startswith(b"--"):
        raise ValueError("the form is cut short; send it again")
    return [read_part(section) for section in sections[:-1]]


def read_part(section: bytes) -> Part:
    """A field, from what stands between two boundaries."""
    head, _, content = section.partition(b"\r\n\r\n")
    if len(head) > MOST_HEADER:
        raise ValueError("a part of the form has too long a header; send it again")
    lines = [line.partition(":") for line in head.decode("utf-8", "replace").splitlines()]
    disposition = next((value for name, _, value in lines if name.strip().lower() == "content-disposition"), "")
    name = parameter(disposition, "name")
    if not name:
        raise ValueError("a part of the form has no name; send file and model")
    return Part(name, content, parameter(disposition, "filename"))
