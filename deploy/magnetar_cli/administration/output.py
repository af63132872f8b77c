"""Print results: a table for people, or one JSON object per line for programs.

A table is folded to fit a terminal, and written whole elsewhere, so that `grep` and `awk` find all of it.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

__all__ = ["json_line", "number", "print_facts", "print_rows"]


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, as_json: bool) -> None:
    """Print a row per item; in JSON an object whose keys are the columns' names."""
    if as_json:
        for row in rows:
            print(json_line(dict(zip((column.replace(" ", "_") for column in columns), row, strict=True))))
        return
    table = _new_table(*columns)
    for row in rows:
        table.add_row(*map(_cell, row))
    _print(table)


def _new_table(*columns: str) -> Table:
    from rich.table import Column, Table

    # Text that does not fit continues in the next line: a name that is cut is no name.
    return Table(*(Column(column, overflow="fold") for column in columns), box=None, pad_edge=False)


def _print(table: Table) -> None:
    from magnetar_cli.shown import wide_console

    console = wide_console()
    if not console.is_terminal:
        console.width = max(console.width, console.measure(table).maximum)
    console.print(table)


def print_facts(facts: Iterable[tuple[str, Any]]) -> None:
    """Print facts about one item for people."""
    table = _new_table("", "")
    table.show_header = False
    for name, value in facts:
        table.add_row(name, _cell(value))
    _print(table)


def json_line(value: object) -> str:
    return json.dumps(_plain(value), ensure_ascii=False)


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _cell(value: Any) -> Text:
    """Return the value as text, not as markup of rich: names may look like that."""
    from rich.text import Text

    from magnetar_cli.messages.showing import printable

    if value is None:
        return Text("")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    return Text(number(value) if isinstance(value, (int, float)) else printable(str(value)))


def _plain(value: Any) -> Any:
    """Convert to the types of JSON: dataclasses to objects, message ids to their text, bytes to hex."""
    from magnetar import MessageId
    from magnetar_cli.messages.places import id_text

    if isinstance(value, MessageId):
        return id_text(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: _plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    return value.value if isinstance(value, enum.Enum) else value
