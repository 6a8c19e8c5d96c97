"""One line that says how a run is doing: rewritten in place on a terminal, now and then elsewhere."""

import sys
import time


class Line:
    """Progress on stderr."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet, self.terminal = quiet, sys.stderr.isatty()
        self.shown, self.width = 0.0, 0

    def show(self, text: str, *, final: bool = False) -> None:
        """Shows the newest state; skipped when one was shown a moment ago."""
        now = time.monotonic()
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
        """A line that stays."""
        if self.quiet:
            return
        sys.stderr.write(("\r" + text.ljust(self.width) if self.terminal else text) + "\n")
        sys.stderr.flush()
        self.width = 0


def clock(seconds: float) -> str:
    minutes, seconds = divmod(int(max(0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
