"""The messages that a task could not decode, counted: one line in the log for each sort, when the task ends."""

from __future__ import annotations

import logging

__all__ = ["ProblemCounts"]

_log = logging.getLogger(__name__)


class ProblemCounts:
    def __init__(self, log_name: str) -> None:
        self._log_name = log_name
        # By the sort of problem, of which there are a dozen: how many, and the first one.
        self.counts: dict[str, tuple[int, str]] = {}

    def add(self, problem: str, count: int, example: str) -> None:
        """`problem` continues a sentence that begins with the count."""
        before, first = self.counts.get(problem, (0, example))
        self.counts[problem] = before + count, first

    def log_warnings(self) -> None:
        for problem, (count, first) in self.counts.items():
            _log.warning("%s: %s %s; the first: %s", self._log_name, f"{count:,}", problem, first)
        self.counts.clear()
