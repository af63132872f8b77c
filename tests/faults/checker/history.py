"""Read a history (history.md): the lines of all files in a folder, checked, in the order of their times.

Lines are read on demand, since a history may be larger than memory. A file is opened when its first line is due: a long
run has files of more processes than may be open at a time.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.faults.checker.kinds import KINDS, mistake

__all__ = ["FORMAT", "BrokenHistory", "Line", "read"]

FORMAT: Final = 1


class BrokenHistory(Exception):
    """The history can't be checked. The message names the file and the line."""


class Line:
    """One line. `known`: its kind is one of history.md's, and it has that kind's fields. What items, ids and id name is
    worked out once,
    """

    __slots__ = ("at", "fields", "file", "ids", "known", "messages", "new", "number", "slots", "what", "writer")

    def __init__(self, file: str, number: int, writer: str, fields: dict[str, Any]) -> None:
        self.file = file
        self.number = number
        self.writer = writer
        self.fields = fields
        self.what: str = fields["what"]
        self.at: float = fields["at"]
        self.known = self.what in KINDS
        self.messages: list[int] = []
        self.ids: list[int] = []
        self.slots: list[int] = []
        self.new: list[bool] = []

    @property
    def partition_name(self) -> str:
        return str(self.fields["place"])

    def broken(self, why: str) -> BrokenHistory:
        return BrokenHistory(f"{self.file}, line {self.number}: {self.what!r} {why}")


def read(folder: Path) -> Iterator[Line]:
    if not folder.is_dir():
        raise BrokenHistory(f"{folder} is no folder")
    waiting = sorted(filter(None, map(_beginning, sorted(folder.glob("*.jsonl")))), reverse=True)
    if not waiting:
        raise BrokenHistory(f"{folder} has no file *.jsonl with a line in it")
    ready: list[tuple[float, str, Line, Iterator[Line]]] = []
    while ready or waiting:
        while waiting and (not ready or waiting[-1][0] <= ready[0][0]):
            _push(ready, _lines(waiting.pop()[1]))
        _, _, line, rest = ready[0]
        yield line
        heapq.heappop(ready)
        _push(ready, rest)  # only now: a line is read when it is wanted


def _push(ready: list[tuple[float, str, Line, Iterator[Line]]], lines: Iterator[Line]) -> None:
    line = next(lines, None)
    if line is not None:
        heapq.heappush(ready, (line.at, line.file, line, lines))


def _beginning(path: Path) -> tuple[float, Path] | None:
    first = next(_lines(path), None)
    return (first.at, path) if first else None


def _lines(path: Path) -> Iterator[Line]:
    writer, before = "", float("-inf")
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if not raw.endswith(b"\n"):
                return  # cut off: its writer was killed
            line = _line(path.name, number, writer, raw)
            if number == 1:
                writer = line.writer = _opened(line)
            if line.at < before:
                raise line.broken(f"was written at {line.at}, before the line before it ({before})")
            before = line.at
            yield line


def _line(file: str, number: int, writer: str, raw: bytes) -> Line:
    try:
        fields = json.loads(raw)
    except ValueError as error:
        raise BrokenHistory(f"{file}, line {number}: no JSON: {error}") from error
    if type(fields) is not dict or type(fields.get("what")) is not str or type(fields.get("at")) not in (float, int):
        raise BrokenHistory(f"{file}, line {number}: no JSON object with a text `what` and a time `at`")
    line = Line(file, number, writer, fields)
    if line.known and (wrong := mistake(KINDS[line.what], fields)):
        raise line.broken(wrong)
    return line


def _opened(line: Line) -> str:
    if line.what != "history":
        raise line.broken("is the first line of its file, which must be 'history'")
    if line.fields["format"] != FORMAT:
        raise line.broken(f"has format {line.fields['format']}; this judge reads format {FORMAT}")
    writer: str = line.fields["writer"]
    return writer
