"""The commands and the Python of README.md and docs/*.md, in the order written."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@dataclass(frozen=True)
class Step:
    """A command as it is typed, or a block of Python, with the line where it stands."""

    file: str
    line: int
    text: str
    language: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def steps_of(path: Path) -> list[Step]:
    """The steps of a document: `$ ` lines of its console blocks, with those that continue them, and its Python."""
    name, steps = str(path.relative_to(ROOT)), []
    for block in re.finditer(r"^```(\w*)\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        first = block.string[: block.start(2)].count("\n") + 1
        if block[1] == "python":
            steps.append(Step(name, first, block[2], "python"))
        elif block[1] == "console":
            lines = block[2].splitlines()
            for number, line in enumerate(lines):
                if line.startswith("$ "):
                    text, end = line[2:], number
                    while continues(text) and end + 1 < len(lines):
                        end += 1
                        text += "\n" + lines[end].removeprefix("> ")
                    steps.append(Step(name, first + number, text, "console"))
    return steps


def continues(text: str) -> bool:
    """Whether a command goes on in the next line: a backslash at its end, or a quotation mark that is still open."""
    if text.endswith("\\"):
        return True
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return True
    return False


def words_of(text: str) -> list[list[str]]:
    """The words of each `regard` command in a line: behind a pipe, too, without comment and redirections."""
    lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars="|;&<>")
    lexer.whitespace_split, lexer.commenters = True, "#"
    commands: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set("|;&"):
            commands.append([])
        elif set(word) <= set("<>"):
            next(lexer, None)
        else:
            commands[-1].append(word)
    return [words[1:] for words in commands if words and Path(words[0]).name == "regard"]
