"""Verbs take a list of inputs, or a single one, for which they return a single result."""

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload, runtime_checkable

from torch import Tensor

AXES = 3
"""Axes of an array that is one image, at most."""
Item = TypeVar("Item")
P = ParamSpec("P")
One = TypeVar("One")
Items = TypeVar("Items", contravariant=True)
Ones = TypeVar("Ones", covariant=True)
Manys = TypeVar("Manys", covariant=True)


@runtime_checkable
class Verbal(Protocol[Items, P, Ones, Manys]):
    """A verb of a loaded model: one input gives one result, a list gives as many."""

    @overload
    def __call__(self, items: Items, /, *args: P.args, **options: P.kwargs) -> Ones: ...
    @overload
    def __call__(self, items: Sequence[Items], /, *args: P.args, **options: P.kwargs) -> Manys: ...


@runtime_checkable
class VerbMethod(Protocol[Items, P, Ones, Manys]):
    """The method of a task class that is a `Verbal` of its objects."""

    def __call__(self, task: Any, items: Sequence[Items], /, *args: P.args, **options: P.kwargs) -> Manys: ...
    def __get__(self, task: Any, owner: Any = None) -> Verbal[Items, P, Ones, Manys]: ...


@overload
def one_or_many(
    method: Callable[Concatenate[Any, Sequence[Item], P], list[One]],
) -> VerbMethod[Item, P, One, list[One]]: ...
@overload
def one_or_many(
    method: Callable[Concatenate[Any, Sequence[Item], P], Tensor],
) -> VerbMethod[Item, P, Tensor, Tensor]: ...
def one_or_many(method: Any) -> Any:
    """The method of a verb that also takes a single input in place of the list, and then returns a single result."""
    name = list(inspect.signature(method).parameters)[1]

    @functools.wraps(method)
    def verb(self: Any, *args: Any, **options: Any) -> Any:
        axes = getattr(self, "axes", AXES)
        if args and is_single(args[0], axes):
            return method(self, [args[0]], *args[1:], **options)[0]
        if not args and name in options and is_single(options[name], axes):
            return method(self, **options | {name: [options[name]]})[0]
        return method(self, *args, **options)

    return verb


def is_single(items: Any, axes: int = AXES) -> bool:
    """Whether this is one input, such as a text, a path or an image, and no list of them; arrays of several have more
    than so many axes."""
    if isinstance(items, str | Path | bytes):
        return True
    return items.ndim <= axes if hasattr(items, "ndim") else not hasattr(items, "__iter__")
