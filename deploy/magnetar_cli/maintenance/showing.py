"""One look or many: a table in place on a terminal, lines where something changed elsewhere, or JSON, an object a
line."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from rich.console import Console, RenderableType
from rich.live import Live

__all__ = ["View", "show", "watch"]

_LOOK_S: Final = 0.25


class View(Protocol):
    """What was found at one look."""

    @property
    def over(self) -> bool:
        """There is nothing to wait for (any more)."""

    def table(self) -> RenderableType:
        """For a terminal."""

    def lines(self) -> Sequence[str]:
        """For a log or a pipe, each true by itself."""

    def json_objects(self) -> Sequence[Mapping[str, object]]:
        """Return the objects for programs, each printed as one line: of a list an object per row."""


V = TypeVar("V", bound=View)


def show(view: View, *, as_json: bool) -> None:
    if as_json:
        for line in _json_lines(view):
            print(line)
    elif sys.stdout.isatty():
        Console().print(view.table())
    else:
        for line in view.lines():
            print(line)


async def watch(look: Callable[[], Awaitable[V]], *, as_json: bool) -> V:
    """Looks and shows until it is over."""
    if not as_json and sys.stdout.isatty():
        return await _watch_on_terminal(look)
    told: set[str] = set()
    while True:
        view = await look()
        lines = _json_lines(view) if as_json else list(view.lines())
        for line in lines:
            if line not in told:
                print(line, flush=True)
        told = set(lines)
        if view.over:
            return view
        await asyncio.sleep(_LOOK_S)


async def _watch_on_terminal(look: Callable[[], Awaitable[V]]) -> V:
    view = await look()
    with Live(view.table(), refresh_per_second=8) as live:
        while not view.over:
            await asyncio.sleep(_LOOK_S)
            view = await look()
            live.update(view.table())
    return view


def _json_lines(view: View) -> list[str]:
    return [json.dumps(one, default=_json_ready, ensure_ascii=False) for one in view.json_objects()]


def _json_ready(value: Any) -> Any:
    """Convert a value that `json.dumps` does not know."""
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "value"):  # an enum's member
        return value.value
    raise TypeError(f"{type(value).__name__} can't be shown as JSON")
