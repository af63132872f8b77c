"""Print a view of a cluster's state, once or until it is final.

On a terminal it is a table, which is updated in place. Elsewhere it is lines, of which only changed ones are printed
again, or JSON with an object per line.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from rich.console import Console, RenderableType
from rich.live import Live

__all__ = ["View", "show", "watch"]

_POLL_S: Final = 0.25


class View(Protocol):
    """A snapshot of the state."""

    @property
    def is_final(self) -> bool:
        """Whether there is nothing (more) to wait for."""

    def table(self) -> RenderableType:
        """Return a table for a terminal."""

    def lines(self) -> Sequence[str]:
        """Return lines for a log or a pipe, each meaningful by itself."""

    def json_objects(self) -> Sequence[Mapping[str, object]]:
        """Return the objects for programs: of a list, one per row."""


V = TypeVar("V", bound=View)


def show(view: View, *, as_json: bool) -> None:
    """Print a view."""
    if as_json:
        for line in _json_lines(view):
            print(line)
    elif sys.stdout.isatty():
        Console().print(view.table())
    else:
        for line in view.lines():
            print(line)


async def watch(take_view: Callable[[], Awaitable[V]], *, as_json: bool) -> V:
    """Take views and print them until one is final."""
    if not as_json and sys.stdout.isatty():
        return await _watch_on_terminal(take_view)
    printed: set[str] = set()
    while True:
        view = await take_view()
        lines = _json_lines(view) if as_json else list(view.lines())
        for line in lines:
            if line not in printed:
                print(line, flush=True)
        printed = set(lines)
        if view.is_final:
            return view
        await asyncio.sleep(_POLL_S)


async def _watch_on_terminal(take_view: Callable[[], Awaitable[V]]) -> V:
    view = await take_view()
    with Live(view.table(), refresh_per_second=8) as live:
        while not view.is_final:
            await asyncio.sleep(_POLL_S)
            view = await take_view()
            live.update(view.table())
    return view


def _json_lines(view: View) -> list[str]:
    return [json.dumps(one, default=_to_json_type, ensure_ascii=False) for one in view.json_objects()]


def _to_json_type(value: Any) -> Any:
    """Convert a value that `json.dumps` does not know."""
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "value"):  # an enum's member
        return value.value
    raise TypeError(f"{type(value).__name__} can't be shown as JSON")
