"""Lists every setting with its default and description, one per line: `--options` of the commands that run a process.

A setting's description is the comment above its field, so that there is no second text that could differ. Each field
has its own. A line is TOML: the output is a file for `--config`.
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
    """Yield the lines in the order of names. A setting without a default that TOML can express is commented out."""
    descriptions = _descriptions(kind)
    for name, field in sorted(kind.model_fields.items()):
        value = _toml(field.get_default(call_default_factory=True))
        yield f"{name} = {value}  # {descriptions[name]}" if value else f"# {name} =  # {descriptions[name]}"


def _descriptions(kind: type[Configuration]) -> dict[str, str]:
    """Return the descriptions by name. A subclass that changes a default without a comment inherits the description."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        if issubclass(one, Configuration) and one is not Configuration:
            found.update((name, text) for name, text in _own_descriptions(one).items() if text or name not in found)
    return found


def _own_descriptions(kind: type[Configuration]) -> dict[str, str]:
    found: dict[str, str] = {}
    comment: list[str] = []
    for line in map(str.strip, inspect.getsource(kind).splitlines()):
        if line.startswith("#"):
            comment.append(line.removeprefix("#").strip())
            continue
        name = line.partition(":")[0]
        if name in kind.__annotations__ and name not in found:
            found[name] = " ".join(comment)
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
