"""The process that renders chat templates, run as a file of its own: a template is somebody else's program, and
its memory and time are limited here. It reads a request a line and writes an answer a line, both JSON.

A template runs in jinja2's immutable sandbox. It has few turns, and its operators make nothing large; what gets around
that, such as a filter, ends with this process. Nothing of the package is imported here.
"""

import json
import math
import os
import signal
import sys
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any

TURNS = 200_000
"""Turns of loops and calls of macros, for templates that would write nothing and never come to an end."""
MEMORY = 1 << 29
"""Bytes that the process may have."""
_turns = [0]
_longest = [0]


class ObjectionError(Exception):
    """The error that a template raises with `raise_exception`."""


@lru_cache(maxsize=32)
def _compile(source: str) -> Any:
    """A `jinja2.Template` in the environment that published templates are written for."""
    import jinja2
    from jinja2 import ext, nodes, sandbox

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
            _turns[0] += 1
            if _turns[0] > TURNS:
                raise jinja2.exceptions.SecurityError(f"it loops more than {TURNS:,} times")

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            texts = [len(operand) for operand in (left, right) if isinstance(operand, str | list | tuple)]
            numbers = [abs(operand) for operand in (left, right) if isinstance(operand, int)]
            large = max(numbers, default=0) > (1000 if operator == "**" else 2**1000)
            if large or (operator == "*" and texts and math.prod(texts + numbers) > _longest[0]):
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


def render(request: dict[str, Any]) -> str:
    """The text of a request's template; at most one character more than its limit."""
    pieces, length = [], 0
    _turns[0], _longest[0] = 0, request["longest"]
    for piece in _compile(request["source"]).generate(**request["variables"]):
        pieces.append(piece)
        if (length := length + len(piece)) > request["longest"]:
            break
    return "".join(pieces)[: request["longest"] + 1]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The text, or what went wrong: its kind, its message, and the line of a syntax error."""
    from jinja2 import TemplateSyntaxError
    from jinja2.exceptions import SecurityError

    try:
        return {"text": render(request)}
    except Exception as error:  # a template can do anything that an expression can
        kinds: dict[str, Any] = {
            "objection": ObjectionError,
            "syntax": TemplateSyntaxError,
            "unsafe": (SecurityError, MemoryError),
        }
        kind = next((name for name, types in kinds.items() if isinstance(error, types)), "failure")
        message = " ".join(str(error)[:2000].split()) or type(error).__name__
        return {"kind": kind, "name": type(error).__name__, "message": message, "line": getattr(error, "lineno", 0)}


def limit_memory() -> None:
    """Bound the memory of this process, where the system has such a limit; one that is lower already stays."""
    if os.name == "posix":
        import resource

        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def limit_time(seconds: float) -> None:
    """End this process after so many seconds of processor time, where the system has such a timer; 0 is never."""
    if os.name == "posix":
        signal.setitimer(signal.ITIMER_PROF, seconds)


def serve() -> None:
    """Answer requests until there are no more; a request that takes more than its seconds of processor time ends the
    process."""
    limit_memory()
    for line in sys.stdin:
        request = json.loads(line)
        limit_time(request["seconds"])
        text = json.dumps(answer(request))
        limit_time(0)
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
