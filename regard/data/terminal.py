"""The one way to a terminal or a log: control characters in labels, file names or answers are shown, never sent.

An escape sequence of a stranger could otherwise rewrite what is on the screen, or the clipboard.
"""

import json
import re
import sys
from typing import Any

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Characters that a terminal obeys, and halves of surrogate pairs, which it cannot be sent; not tabs and newlines."""
RAW = re.compile("[\x7f-\x9f\ud800-\udfff]")
"""Those of them that JSON may hold as they are."""


def printable(text: str) -> str:
    """A text whose control characters are replaced by their numbers: ⟨1B⟩."""
    return CONTROL.sub(lambda found: f"⟨{ord(found[0]):02X}⟩", text.replace("\r\n", "\n"))


def echo(text: object = "", *, err: bool = False, end: str = "\n") -> None:
    """Print a text on stdout, or on stderr."""
    print(printable(str(text)), end=end, file=sys.stderr if err else sys.stdout, flush=True)


def to_json(value: Any, **options: Any) -> str:
    """Exact JSON in which no control character is left as it is."""
    text = json.dumps(value, ensure_ascii=False, **options)
    return RAW.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
