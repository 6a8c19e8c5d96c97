"""The chat template of a checkpoint, which turns a conversation into one text.

A template is a program by someone else. It runs in jinja2's immutable sandbox, in a process with limits of memory and
time (chat_worker.py), and sees plain JSON values only; what goes wrong in it is a `ValueError` of one line. The result
names special tokens, so its ids are those of `Tokenizer.encode(text, parse_special=True)`.
"""

import atexit
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.config import MOST_BYTES, read_json
from regard.files import read_bytes
from regard.tokens import Tokenizer
from regard.tokens.published import ROLES, read_settings

JINJA, CONFIG, LEGACY = "chat_template.jinja", "tokenizer_config.json", "chat_template.json"
LONGEST = 16_000_000
"""Most characters of a chat: far more than any model reads, far less than a machine's memory."""
SECONDS = 2.0
"""Most processor time of a template; usual ones take a thousandth."""
PATIENCE = 30
"""The factor by which it may take longer by the clock, where others use the processor too or it has to start first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatTemplate:
    """A template with the special tokens that it may name."""

    source: str
    """The template, in Jinja's language."""
    tokens: Mapping[str, str] = field(default_factory=dict)
    """The special tokens as the template's variables: `bos_token`, `eos_token`, …; those that there are."""
    path: Path = Path(JINJA)
    """The file it was read from, for errors."""

    def render(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True) -> str:
        """The conversation as one text; by default it ends where the assistant's next message begins."""
        if not messages:
            raise ValueError("a conversation of no messages; give at least one, such as {'role': 'user', 'content': …}")
        try:
            # Plain copies of plain values: no object of ours with methods that the sandbox does not know.
            plain = json.loads(json.dumps([dict(message) for message in messages]))
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"a message holds what JSON cannot ({error}); give texts, numbers, lists, dicts") from None
        # Templates ask whether these "is not none", which what is not defined would be.
        variables = {**self.tokens, "tools": None, "documents": None, "messages": plain}
        variables |= {"add_generation_prompt": add_generation_prompt}
        answer = _worker.ask({"source": self.source, "variables": variables, "longest": LONGEST, "seconds": SECONDS})
        if "text" not in answer:
            raise ValueError(self._one_line(answer))
        if len(answer["text"]) > LONGEST:
            cure = "send shorter messages, or repair the template if it repeats itself"
            raise ValueError(f"{self.path}: the chat is more than {LONGEST} characters long; {cure}")
        return answer["text"]

    def _one_line(self, answer: Mapping[str, Any]) -> str:
        """One line for an error: a template's own is about the messages, any other about the template."""
        message = answer["message"]
        if answer["kind"] == "objection":
            return f"the model's chat template refuses these messages: {message}; change them"
        if answer["kind"] == "syntax":
            return f"{self.path}: line {answer['line']} of the chat template: {message}; download or write it again"
        if answer["kind"] == "unsafe":
            return (
                f"{self.path}: the chat template does what a template must not ({message}); do not use this checkpoint"
            )
        cure = "check the fields of the messages (role, content) and the template"
        return f"{self.path}: the chat template failed ({answer['name']}: {message}); {cure}"


class Worker:
    """The process that renders templates; it is started when it is first asked, and again after it had to end."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: Any = None
        self.owner = 0

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request: a "text", or the "kind" of an error and its "message"."""
        line = json.dumps(request) + "\n"
        with self.lock:
            process = self._running()
            timer = threading.Timer(PATIENCE * SECONDS, process.kill)
            timer.start()
            try:
                process.stdin.write(line)
                process.stdin.flush()
                text = process.stdout.readline()
            except OSError:  # it has ended before it has read all
                text = ""
            finally:
                timer.cancel()
            if text:
                return json.loads(text)
            self.process = None
        code = end(process)
        late = -code in (signal.SIGKILL, getattr(signal, "SIGPROF", None))
        message = f"it takes more than {SECONDS:g} s" if late else f"its process ended with code {code}"
        return {"kind": "unsafe", "message": message}

    def close(self) -> None:
        """End the process, unless it belongs to the parent of this one."""
        if self.process is not None and self.owner == os.getpid():
            end(self.process)
        self.process = None

    def _running(self) -> Any:
        """The process; a new one after a fork, whose parent may be using it."""
        if self.process is not None and self.owner == os.getpid() and self.process.poll() is not None:
            self.close()  # somebody has ended it
        if self.process is None or self.owner != os.getpid():
            if importlib.util.find_spec("jinja2") is None:
                raise ImportError("chat templates need jinja2, which is not installed: pip install 'regard[serve]'")
            self.owner, pipe = os.getpid(), subprocess.PIPE
            command = [sys.executable, "-P", str(Path(__file__).with_name("chat_worker.py"))]
            # In a session of its own: Ctrl-C is for the server, which may still render a chat.
            self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, encoding="utf-8", start_new_session=True)
        return self.process


def end(process: Any) -> int:
    """The exit code of a process that is ended now, unless it has ended already."""
    process.kill()
    code = process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            pipe.close()
    return code


_worker = Worker()
atexit.register(_worker.close)


def find_chat_template(directory: Path | str) -> ChatTemplate | None:
    """The template beside a checkpoint's tokenizer; None where there is none, as for models that do not chat."""
    directory = Path(directory)
    for name, read in ((JINJA, _read_text), (CONFIG, _read_setting), (LEGACY, _read_setting)):
        path = directory / name
        source = read(path) if path.is_file() else None
        if source is not None:
            return ChatTemplate(source=source, tokens=_special_tokens(directory), path=path)
    return None


def _read_text(path: Path) -> str:
    try:
        return read_bytes(path, MOST_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 ({error}); download it again") from None


def _read_setting(path: Path) -> str | None:
    """The value of "chat_template": a text, or several of which one is the default."""
    written = read_json(path).get("chat_template")
    if isinstance(written, list):
        named = {str(entry.get("name")): entry.get("template") for entry in written if isinstance(entry, dict)}
        if "default" not in named:
            names = ", ".join(map(repr, named)) or "none"
            raise ValueError(f"{path}: of its chat templates ({names}) none is named 'default'; name one so")
        written = named["default"]
    if not isinstance(written, str | None):
        raise ValueError(f"{path}: chat_template is {type(written).__name__}, not a text; download it again")
    return written


def _special_tokens(directory: Path) -> dict[str, str]:
    """The special tokens that the settings name; without settings, those of our tokenizer."""
    settings: Mapping[str, Any] = read_settings(directory)
    if not settings and (directory / "tokenizer.json").is_file():
        settings = {f"{role}_token": name for role, name in Tokenizer.load(directory).names.items()}
    written = {name: settings.get(name) for name in (f"{role}_token" for role in ROLES)}
    contents = {name: value.get("content") if isinstance(value, dict) else value for name, value in written.items()}
    return {name: content for name, content in contents.items() if isinstance(content, str)}
