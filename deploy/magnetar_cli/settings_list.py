"""List all settings of a process: `--options` of the commands that run one.

The list is TOML, a file for `--config`: each setting once, with its default. First come those that are worth changing,
then all others by subject. Headings and descriptions are comments. A setting without a default is commented out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import SecretBytes, SecretStr

from magnetar_cli.toml_text import toml_text
from magnetar_wire.configuration import Configuration
from magnetar_wire.settings import REQUIRED, Setting, Subject, amount_text, bounds_text, settings_of, unit_of

__all__ = ["by_subject", "settings_lines", "toml_value", "value_text"]

_COLUMNS: Final = 80
# The default and the description show it.
_OBVIOUS: Final = ("text", "path")


def settings_lines(kind: type[Configuration]) -> Iterator[str]:
    """Yield the lines of the list."""
    declared = settings_of(kind)
    first = kind.worth_changing
    if first:
        yield from _section(kind, f"The {len(first)} settings worth changing first", first)
    for subject, names in by_subject(declared, without=first):
        yield from _section(kind, subject.value, names)


def by_subject(declared: dict[str, Setting], without: Iterable[str] = ()) -> Iterator[tuple[Subject, list[str]]]:
    """Yield the names of each subject's settings, in the order of declaration, without empty subjects."""
    omitted = frozenset(without)
    for subject in Subject:
        names = [name for name, one in declared.items() if one.subject is subject and name not in omitted]
        if names:
            yield subject, names


def value_text(kind: type[Configuration], name: str) -> str:
    """Return which values a setting accepts: "seconds, above 0" or "true or false"."""
    declared, annotation = settings_of(kind)[name], kind.model_fields[name].annotation
    if annotation is bool:
        return "true or false"
    if get_origin(annotation) is Literal:
        return " or ".join(get_args(annotation))
    if get_origin(annotation) is tuple:
        return "list"
    if annotation in (int, float):
        return ", ".join(part for part in (unit_of(name, declared), bounds_text(declared.bounds)) if part)
    return "path" if annotation is Path else "text"


def toml_value(value: Any) -> str:
    """Return the value as TOML. It is empty for a secret, and for a required setting."""
    if value is REQUIRED or value is None or isinstance(value, (SecretStr, SecretBytes)):
        return ""
    return toml_text(str(value) if isinstance(value, Path) else value)


def _section(kind: type[Configuration], title: str, names: Iterable[str]) -> Iterator[str]:
    yield f"# ---- {title} {'-' * (_COLUMNS - len(title) - 8)}"
    yield ""
    for name in names:
        declared = settings_of(kind)[name]
        values = value_text(kind, name)
        notes = [] if values in _OBVIOUS else [values]
        amount = amount_text(declared.default, unit_of(name, declared))
        notes += [f"default {amount}"] if amount else []
        notes += ["required"] if declared.default is REQUIRED else []
        notes += [f"{declared.named_by}'s name"] if declared.named_by else []
        for paragraph in (declared.description, *([f"({'; '.join(notes)})"] if notes else [])):
            yield from textwrap.wrap(paragraph, _COLUMNS, initial_indent="# ", subsequent_indent="# ")
        value = toml_value(declared.default)
        yield f"{name} = {value}" if value else f"# {name} ="
        yield ""
