"""Rename an identifier.

The tool renames each name token of Python code, each whole word in fragments of mutants and branches, and whole words
in comments, docstrings, strings and documents. It takes attributes, arguments and variables of the same name for one.

It can't tell an identifier that is an English word (`take`, `Room`) from the word. In sentences it renames the
identifier only in backticks, behind a dot or before a bracket. It renames a literal that is a single word
(`"max_seeks"`), unless it is English, but reports it: it may be a name on the wire, in the metadata store, or of a
metric.

It also reports fields of messages in .proto files, fields of options, other spellings (`--max-seeks`, longer names),
other languages, recorded data and generated code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.rename.tree import File, Kind, Part, Report, files_of
from tests.source_locations import FragmentNotFound, Sources

__all__ = ["CannotRename", "rename_identifier"]

_IDENTIFIER: Final = re.compile(r"[^\W\d]\w*")
_COUNTED: Final[dict[Kind, str]] = {
    "code": "code",
    "fragment": "mutants and branches",
    "comment": "comments",
    "docstring": "docstrings",
    "string": "strings",
    "name string": "strings",
    "document": "documents",
    "marked": "documents",
}
_MOST_LISTED: Final = 8
# The name of a class whose fields are settings, or of a base of it.
_SETTINGS: Final = re.compile(r"(Options|Configuration|Settings)\b")


class CannotRename(Exception):
    """The new name is in use, or a name is none."""


def rename_identifier(
    root: Path, old: str, new: str, *, within: Sequence[str] = (), force: bool = False, dry_run: bool = False
) -> Report:
    """Rename it in the files below `within`, or in all of them. Raises `CannotRename`, and changes nothing then."""
    for name in (old, new):
        if not _IDENTIFIER.fullmatch(name):
            raise CannotRename(f"{name!r} is no identifier")
    # A name may follow an escaped line break.
    word = re.compile(rf"(?:\b|(?<=\\[nt])){old}\b")
    files = list(files_of(root))
    holding = [file for file in files if word.search(file.text)]
    sources = Sources(root)
    # Fragments are renamed where their code is below `within`, whichever file holds them.
    parts = {
        file: file.parts if _is_below(file.name, within) else _fragments_below(file, within, sources)
        for file in holding
    }
    if not force and (in_use := list(_in_use(parts, old, new))):
        where = ", ".join(in_use[:_MOST_LISTED]) + (", …" if len(in_use) > _MOST_LISTED else "")
        raise CannotRename(f"{new} is in use where {old} is, in {where}: choose another name, or give --force")
    report = Report()
    literals: list[str] = []
    passed_over: list[str] = []
    is_english = is_english_word(old)
    for file in holding:
        pieces: list[str] = []
        at = 0
        for start, end, kind in _occurrences(file, parts[file], word):
            if is_english and not _is_code(kind, file.text, start, end):
                passed_over.append(file.line(start))
                continue
            pieces += [file.text[at:start], new]
            at = end
            report.count(_COUNTED[kind])
            if kind == "name string":
                literals.append(file.line(start))
        file.written = "".join([*pieces, file.text[at:]])
        if file.written != file.text:
            report.changed.append(file.path)
    _warn(report, f'may be a name on the wire, stored, of a metric or of a setting: "{old}" in a literal', literals)
    _warn(report, f"not changed, since it may be the English word: {old}", passed_over)
    _warn_of_others(report, files, word, old)
    if not dry_run:
        for file in holding:
            file.write()
    return report


def is_english_word(name: str) -> bool:
    """Whether it could stand in a sentence: no underscore within it, and no capital behind a small letter."""
    return not re.search(r"\w_\w|[a-z0-9][A-Z]|\d|^_", name)


def _is_below(name: str, within: Sequence[str]) -> bool:
    return not within or any(name == path or name.startswith(path.rstrip("/") + "/") for path in within)


def _fragments_below(file: File, within: Sequence[str], sources: Sources) -> list[Part]:
    """Return the fragments of mutants and branches that are in a file below `within`: they follow the code."""
    found: list[Part] = []
    follows = False
    fragments = [part for part in file.parts if part.kind == "fragment"]
    for at, part in enumerate(fragments):
        text = file.text[part.start : part.end].strip("\"'\n")
        if at % 2 == 0 if file.is_python else file.text.endswith("\nin = ", 0, part.start):
            try:
                path = sources.resolve(text)[0].path.relative_to(file.root).as_posix()
            except FragmentNotFound:
                path = ""
            follows = bool(path) and _is_below(path, within)
        found += [part] if follows else []
    return found


def _in_use(parts: Mapping[File, Sequence[Part]], old: str, new: str) -> Iterator[str]:
    for file, chosen in parts.items():
        names = {file.text[part.start : part.end] for part in chosen if part.kind == "code"}
        if file.is_python and {old, new} <= names:
            yield file.name


def _occurrences(file: File, parts: Sequence[Part], word: re.Pattern[str]) -> Iterator[tuple[int, int, Kind]]:
    for kind, part_start, part_end in parts:
        for found in word.finditer(file.text, part_start, part_end):
            yield *found.span(), kind


def _is_code(kind: Kind, text: str, start: int, end: int) -> bool:
    """Whether an English word is an identifier there."""
    line_start, line_end = text.rfind("\n", 0, start) + 1, (text + "\n").find("\n", end)
    in_backticks = text.count("`", line_start, start) % 2 == 1 and "`" in text[end:line_end]
    behind_dot = start > 1 and text[start - 1] == "." and (text[start - 2].isalnum() or text[start - 2] in "_)]")
    return kind in ("code", "fragment", "marked") or in_backticks or behind_dot or text[end : end + 1] == "("


def _warn(report: Report, what: str, where: Sequence[str]) -> None:
    if where:
        shown = ", ".join(where[:_MOST_LISTED]) + (", …" if len(where) > _MOST_LISTED else "")
        report.warnings.append(f"{what}: {len(where)} times ({shown})")


def _warn_of_others(report: Report, files: Collection[File], word: re.Pattern[str], old: str) -> None:
    fields, others, options, dashed, longer = [], [], [], [], []
    dashes = re.compile(rf"--{old.replace('_', '-')}\b")
    parts = re.compile(rf"\b(?:\w+_)?_*{old}(?:_\w+)?\b")
    for file in files:
        if not word.search(file.text):
            continue
        if file.is_untouched:
            others.append(file.name)
        elif file.name.endswith(".proto"):
            comments = [range(part.start, part.end) for part in file.parts]
            fields += [
                file.line(found.start())
                for found in word.finditer(file.text)
                if not any(found.start() in comment for comment in comments)
            ]
        elif file.is_python:
            options += [f"{file.name}:{line}" for line in _option_fields(file.text, old)]
    for file in files:
        if not file.is_untouched:
            dashed += [file.line(found.start()) for found in dashes.finditer(file.text)]
            longer += [found[0] for found in parts.finditer(file.text) if found[0] != old]
    _warn(report, "not changed: fields of the protocol. Code that uses these must keep the name", fields)
    _warn(report, "not changed: generated code, other languages, recorded data", others)
    _warn(report, "a setting that users' files may name", options)
    if "_" in old:
        _warn(report, f"not changed: the option --{old.replace('_', '-')}", dashed)
    if not is_english_word(old):
        _warn(report, "not changed: longer names with it", sorted(set(longer)))


def _option_fields(text: str, old: str) -> Iterator[int]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and _SETTINGS.search(" ".join([node.name, *map(ast.unparse, node.bases)])):
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == old:
                    yield statement.lineno
