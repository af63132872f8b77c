"""Find out which branches of the production code a run reaches, without hooks in that code.

A branch is named by the qualified name of a function and a fragment of it, which `tests/source_locations.py` finds. It
counts as reached when the line runs on which the fragment's last line begins. Only functions that hold such a line are
traced, so a run takes little longer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from os.path import realpath
from types import CodeType, FrameType
from typing import Any, NamedTuple

from tests.mutants import PROJECT
from tests.source_locations import FragmentNotFound, Sources

__all__ = ["Branch", "Reach"]


class Branch(NamedTuple):
    within: str
    fragment: str


_Tracer = Callable[[FrameType, str, Any], Any]
_realpath = lru_cache(maxsize=None)(realpath)


class Reach:
    """`run` the code to be seen; `missing` returns the branches that it did not reach."""

    def __init__(self, branches: Iterable[Branch], sources: Sources | None = None) -> None:
        """Raises `FragmentNotFound` if a branch does not fit the code any more."""
        sources = sources or Sources(PROJECT)
        # File and line number → branch, as long as it was not reached.
        self._left: dict[tuple[str, int], Branch] = {}
        for branch in branches:
            try:
                location = sources.find(branch.within, branch.fragment)
            except FragmentNotFound as error:
                raise FragmentNotFound(f"a branch to be reached does not fit any more: {error}") from None
            self._left[realpath(location.module.path), location.last_line] = branch
        # Code that was seen running, by its id, and its file if it holds a branch. It is referenced so that its id
        # stays valid.
        self._codes: dict[int, tuple[CodeType, str]] = {}

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
            file = _realpath(code.co_filename)
            holds_one = any((file, line) in self._left for _, _, line in code.co_lines() if line is not None)
            known = self._codes[id(code)] = (code, file if holds_one else "")
        return self._line if known[1] else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> _Tracer:
        if event == "line":
            self._left.pop((self._codes[id(frame.f_code)][1], frame.f_lineno), None)
        return self._line
