"""A progress line on stderr: rewritten in place on a terminal or in a notebook, printed every few seconds elsewhere."""

import sys
import time

from regard.data.notices import clock as clock
from regard.data.terminal import printable


class Line:
    """A progress line on stderr for a run or another long command."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet, self.terminal = quiet, sys.stderr.isatty() or in_notebook()
        self.shown, self.width = 0.0, 0

    def show(self, text: str, *, final: bool = False) -> None:
        """Shows the current state; skipped when another was shown a moment ago."""
        text, now = printable(text), time.monotonic()
        if self.quiet or (not final and now - self.shown < (0.1 if self.terminal else 10.0)):
            return
        self.shown = now
        if self.terminal:
            sys.stderr.write("\r" + text.ljust(self.width) + ("\n" if final else ""))
            self.width = 0 if final else len(text)
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def say(self, text: str) -> None:
        """Prints a line that stays on the screen."""
        if self.quiet:
            return
        text = printable(text)
        sys.stderr.write(("\r" + text.ljust(self.width) if self.terminal else text) + "\n")
        sys.stderr.flush()
        self.width = 0


def in_notebook() -> bool:
    """Whether this is a notebook, where a line is rewritten in place too."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")
