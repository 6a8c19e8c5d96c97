"""The chat template of a checkpoint, which turns a conversation into one text.

A template is a program by someone else. It runs in jinja2's immutable sandbox and sees plain JSON values only; what
goes wrong in it is a `ValueError` of one line. The result names special tokens, so its ids are those of
`Tokenizer.encode(text, parse_special=True)`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from regard.hub.files import read_json
from regard.tokens import Tokenizer
from regard.tokens.published import ROLES, read_settings

JINJA, CONFIG, LEGACY = "chat_template.jinja", "tokenizer_config.json", "chat_template.json"
# Far more than any model reads, far less than a machine's memory.
LONGEST = 16_000_000
# Turns of loops and calls of macros: a template that has none of its output to show would else never come to an end.
TURNS = 200_000
_turns: ContextVar[int] = ContextVar("turns")


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
        variables = {"tools": None, "documents": None, "add_generation_prompt": add_generation_prompt}
        pieces, length = [], 0
        _turns.set(0)
        try:
            for piece in _compile(self.source).generate(**self.tokens, **variables, messages=plain):
                pieces.append(piece)
                if (length := length + len(piece)) > LONGEST:
                    break
        except ImportError:
            raise
        except Exception as error:  # a template can do anything that an expression can
            raise ValueError(self._one_line(error)) from None
        if length > LONGEST:
            cure = "send shorter messages, or repair the template if it repeats itself"
            raise ValueError(f"{self.path}: the chat is more than {LONGEST} characters long; {cure}")
        return "".join(pieces)

    def _one_line(self, error: Exception) -> str:
        """One line for an error: a template's own is about the messages, any other about the template."""
        import jinja2

        message = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, ObjectionError):
            return f"the model's chat template refuses these messages: {message}; change them"
        if isinstance(error, jinja2.TemplateSyntaxError):
            return f"{self.path}: line {error.lineno} of the chat template: {message}; download or write it again"
        if isinstance(error, jinja2.exceptions.SecurityError):
            return (
                f"{self.path}: the chat template does what a template must not ({message}); do not use this checkpoint"
            )
        cure = "check the fields of the messages (role, content) and the template"
        return f"{self.path}: the chat template failed ({type(error).__name__}: {message}); {cure}"


class ObjectionError(Exception):
    """The error that a template raises with `raise_exception`."""


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
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 ({error}); download it again") from None


def _read_setting(path: Path) -> str | None:
    """The value of "chat_template": a text, or several of which one is the default."""
    written = read_json(path).get("chat_template")
    if isinstance(written, list):
        named = {entry.get("name"): entry.get("template") for entry in written if isinstance(entry, dict)}
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


@lru_cache(maxsize=32)
def _compile(source: str) -> Any:
    """A `jinja2.Template` in the environment that published templates are written for."""
    try:
        import jinja2
        from jinja2 import ext, nodes, sandbox
    except ImportError:
        raise ImportError("chat templates need jinja2, which is not installed: pip install 'regard[serve]'") from None

    class Generation(ext.Extension):
        """The tag `{% generation %}`, which marks the assistant's messages for training; only its content is used."""

        tags = {"generation"}

        def parse(self, parser: Any) -> nodes.Node:
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)

    class Namespace(jinja2.utils.Namespace):
        """A namespace of a template in which names such as `__call__`, which Python looks for, cannot be set."""

        def __init__(*args: Any, **entries: Any) -> None:  # no "self", so that an entry may have that name
            jinja2.utils.Namespace.__init__(args[0])
            for name, value in dict(*args[1:], **entries).items():
                args[0][name] = value

        def __setitem__(self, name: str, value: Any) -> None:
            if name.startswith("_"):
                raise jinja2.exceptions.SecurityError(f"it stores {name!r} in a namespace")
            super().__setitem__(name, value)

    class Environment(sandbox.ImmutableSandboxedEnvironment):
        """The sandbox, with a limit of iterations and of the size of an operator's result."""

        intercepted_binops = frozenset({"*", "**"})

        def _parse(self, *args: Any) -> nodes.Template:
            tree = super()._parse(*args)
            for node in tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock)):
                call = nodes.Call(nodes.EnvironmentAttribute("count_turn"), [], [], None, None)
                node.body.insert(0, nodes.ExprStmt(call, lineno=node.lineno))  # type: ignore[attr-defined]
            return tree

        @staticmethod
        def count_turn() -> None:
            _turns.set(_turns.get() + 1)
            if _turns.get() > TURNS:
                raise jinja2.exceptions.SecurityError(f"it loops more than {TURNS:,} times")

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            texts = [len(operand) for operand in (left, right) if isinstance(operand, str | list | tuple)]
            numbers = [abs(operand) for operand in (left, right) if isinstance(operand, int)]
            large = max(numbers, default=0) > (1000 if operator == "**" else 2**1000)
            if large or (operator == "*" and texts and math.prod(texts + numbers) > LONGEST):
                raise jinja2.exceptions.SecurityError(f"it makes a value that is too large by {operator}")
            return super().call_binop(context, operator, left, right)

    environment = Environment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _object, "strftime_now": _now, "namespace": Namespace}
    return environment.from_string(source)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """A value as JSON; unlike Jinja's own filter, without escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _object(message: Any) -> None:
    raise ObjectionError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)
