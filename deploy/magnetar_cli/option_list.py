"""Every option with its default and what it means, a line each: `--options` of the commands that run a process.

What an option means stands in the comment above it, where whoever changes it looks; it is read from there, so there is
no second text that could differ. A comment is for all options that follow it without another. A line is TOML as it is:
what is printed is a file for `--config`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import SecretBytes, SecretStr

from magnetar_wire.configuration import Configuration

__all__ = ["option_lines"]


def option_lines(kind: type[Configuration]) -> Iterator[str]:
    """By name. Those that have no default, or none that TOML knows, are comments as a whole."""
    meanings = _meanings(kind)
    for name, field in sorted(kind.model_fields.items()):
        value = _toml(field.get_default(call_default_factory=True))
        yield f"{name} = {value}  # {meanings[name]}" if value else f"# {name} =  # {meanings[name]}"


def _meanings(kind: type[Configuration]) -> dict[str, str]:
    """A subclass that says nothing about an option that it changes has its parent's word for it."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        if issubclass(one, Configuration) and one is not Configuration:
            found.update((name, meaning) for name, meaning in _of(one).items() if meaning or name not in found)
    return found


def _of(kind: type[Configuration]) -> dict[str, str]:
    found: dict[str, str] = {}
    comment: list[str] = []
    begins = True
    for line in map(str.strip, inspect.getsource(kind).splitlines()):
        if line.startswith("#"):
            comment = [*([] if begins else comment), line.removeprefix("#").strip()]
            begins = False
            continue
        begins = True
        name = line.partition(":")[0]
        if name in kind.__annotations__ and name not in found:
            found[name] = " ".join(comment)
        elif not line:
            comment = []
    return found


def _toml(value: Any) -> str:
    if value is None or isinstance(value, (SecretStr, SecretBytes)):
        return ""
    if isinstance(value, (tuple, list, frozenset, set)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, (bool, int, str, Path)):
        return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
    return str(value) if isinstance(value, float) else ""
