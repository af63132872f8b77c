"""Which branches of the production code a run comes to, without a word of that in the code.

A branch is a source line, named by its file and its text, so that a line that is gone, or has come twice, is noticed.
Only functions that hold one of those lines are traced, so a run takes little longer than it would.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import magnetar
import magnetar_bookie
import magnetar_broker

__all__ = ["Branch", "Reach"]

# A file of one of the packages (where none is named, of magnetar_bookie), and the text of a line in it; several lines
# that follow each other stand for the last of them.
Branch = tuple[str, str]
_PACKAGES = {
    package.__name__: Path(str(package.__file__)).parent for package in (magnetar, magnetar_bookie, magnetar_broker)
}
_Tracer = Callable[[FrameType, str, Any], Any]


def _path(file: str) -> Path:
    package, _, rest = file.partition("/")
    return _PACKAGES[package] / rest if package in _PACKAGES else _PACKAGES["magnetar_bookie"] / file


class Reach:
    """`run` what is to be seen; `missing` says what it did not come to."""

    def __init__(self, branches: Iterable[Branch]) -> None:
        # File and line number → branch, as long as it was not reached.
        self._left: dict[tuple[str, int], Branch] = {}
        for file, text in branches:
            path = _path(file)
            lines, wanted = [line.strip() for line in path.read_text().splitlines()], text.split("\n")
            found = [end for end in range(len(wanted), len(lines) + 1) if lines[end - len(wanted) : end] == wanted]
            assert len(found) == 1, f"{file} has the line {text!r} {len(found)} times: name the branch by another"
            self._left[str(path), found[0]] = (file, text)
        # Code that was seen running, by its id: whether it holds a branch. It is kept, so that the id stays its own.
        self._codes: dict[int, tuple[CodeType, bool]] = {}

    @property
    def missing(self) -> list[Branch]:
        return list(self._left.values())

    def run(self, work: Callable[[], object]) -> None:
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            work()
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, argument: Any) -> _Tracer | None:
        known = self._codes.get(id(frame.f_code))
        if known is None:
            code = frame.f_code
            known = self._codes[id(code)] = (code, self._holds_one(code))
        return self._line if known[1] else None

    def _holds_one(self, code: CodeType) -> bool:
        return any((code.co_filename, line) in self._left for _, _, line in code.co_lines() if line is not None)

    def _line(self, frame: FrameType, event: str, argument: Any) -> _Tracer:
        if event == "line":
            self._left.pop((frame.f_code.co_filename, frame.f_lineno), None)
        return self._line
