"""An error for a misspelt keyword argument that names the nearest one.

Python 3.11's own TypeError names none. `suggest_keywords` wraps a function at runtime only: type checkers, help() and
inspect.signature see the function's own parameters.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from magnetar.exceptions import UnknownOption
from magnetar_wire.configuration import suggest_nearest

__all__ = ["suggest_keywords"]

F = TypeVar("F", bound=Callable[..., Any])


def suggest_keywords(function: F) -> F:
    """Have calls with an unknown keyword argument raise UnknownOption."""
    parameters = list(inspect.signature(function).parameters.values())
    is_method = bool(parameters) and parameters[0].name == "self"
    known = frozenset(one.name for one in parameters if one.kind is not one.POSITIONAL_ONLY)

    def check(arguments: tuple[Any, ...], given: Mapping[str, object]) -> None:
        if not known.issuperset(given):
            called = function.__qualname__
            if is_method and arguments:  # by the object's class: the function's own may be an internal base class
                called = f"{type(arguments[0]).__name__}.{function.__name__}"
            raise _unknown_option(called, given, [name for name in known if name[0] != "_"])

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*arguments: Any, **given: Any) -> Any:
            check(arguments, given)
            return await function(*arguments, **given)

        return cast(F, call_async)

    @functools.wraps(function)
    def call(*arguments: Any, **given: Any) -> Any:
        check(arguments, given)
        return function(*arguments, **given)

    return cast(F, call)


def _unknown_option(qualname: str, given: Mapping[str, object], known: list[str]) -> UnknownOption:
    called = qualname.removesuffix(".__init__")
    options = sorted(name for name in known if name != "self")
    problems = []
    for name in given:
        if name not in known:
            hint = suggest_nearest(name, options) or f": its options are {', '.join(options)}"
            problems.append(f"{called} has no option {name!r}{hint}")
    return UnknownOption("; ".join(problems))
