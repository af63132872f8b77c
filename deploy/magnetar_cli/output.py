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
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

__all__ = [
    "escape_unprintable",
    "format_bytes",
    "format_duration",
    "format_json",
    "format_number",
    "print_facts",
    "print_rows",
    "wide_console",
]


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, as_json: bool) -> None:
    """Print a row per item; in JSON an object whose keys are the columns' names."""
    if as_json:
        for row in rows:
            print(format_json(dict(zip((column.replace(" ", "_") for column in columns), row, strict=True))))
        return
    table = _new_table(*columns)
    for row in rows:
        table.add_row(*map(_format_cell, row))
    _print(table)


def print_facts(facts: Iterable[tuple[str, Any]]) -> None:
    """Print facts about one item for people."""
    table = _new_table("", "")
    table.show_header = False
    for name, value in facts:
        table.add_row(name, _format_cell(value))
    _print(table)


def wide_console() -> Console:
    """Return a console on standard output. If it is not a terminal, its lines are long enough for a table."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = 160
    return console


def format_json(value: object) -> str:
    return json.dumps(_to_json_types(value), ensure_ascii=False)


def format_number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def format_bytes(count: int | None) -> str:
    if count is None:
        return ""
    size = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def format_duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    whole = max(int(seconds), 0)
    for unit, length, smaller, part in (("d", 86_400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= length:
            return f"{whole // length} {unit} {whole % length // part} {smaller}"
    return f"{whole} s"


def escape_unprintable(text: str) -> str:
    """Escape line breaks and all characters that a terminal would interpret."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def _new_table(*columns: str) -> Table:
    from rich.table import Column, Table

    # Text that does not fit continues in the next line. A truncated name would be useless.
    return Table(*(Column(column, overflow="fold") for column in columns), box=None, pad_edge=False)


def _print(table: Table) -> None:
    console = wide_console()
    if not console.is_terminal:
        console.width = max(console.width, console.measure(table).maximum)
    console.print(table)


def _format_cell(value: Any) -> Text:
    """Return the value as text, not as markup of rich: names may look like that."""
    from rich.text import Text

    if value is None:
        return Text("")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    return Text(format_number(value) if isinstance(value, (int, float)) else escape_unprintable(str(value)))


def _to_json_types(value: Any) -> Any:
    """Convert to the types of JSON: dataclasses to objects, message ids to their text, bytes to hex."""
    from magnetar import MessageId
    from magnetar_cli.messages.positions import format_message_id

    if isinstance(value, MessageId):
        return format_message_id(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: _to_json_types(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _to_json_types(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json_types(one) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    return value.value if isinstance(value, enum.Enum) else value
