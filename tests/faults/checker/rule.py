"""What a rule is: it sees a history's lines in the order of their times, and says what of them must not be.

A rule is one file in `rules/`, which names it `RULE`, and is found by being there. It has a method `on_KIND(line)` for
each kind of lines that it wants to see, kinds that no other rule knows among them, and an `end`. What an
administrator's act may explain is asked about in the end (acts.py). A rule is right rather than sharp: what could have
happened to a system that keeps its promises is no finding, however odd it looks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tests.faults.checker.facts import Facts
from tests.faults.checker.history import Line
from tests.faults.checker.verdict import Verdict

__all__ = ["Rule"]


class Rule:
    name: ClassVar[str]

    def __init__(self, facts: Facts, verdict: Verdict, *, times: bool, limit_s: float) -> None:
        self.facts = facts
        self.verdict = verdict
        # Whether what takes long is judged, and how long is too long.
        self.times = times
        self.limit_s = limit_s
        self.begin()

    def begin(self) -> None:
        """Before any line is seen."""

    def handlers(self) -> dict[str, Callable[[Line], None]]:
        return {name.removeprefix("on_"): getattr(self, name) for name in dir(self) if name.startswith("on_")}

    def end(self) -> None:
        """All lines were seen."""

    def found(self, text: str) -> None:
        self.verdict.found(self.name, text)

    def not_judged(self, why: str) -> None:
        self.verdict.not_judged.append(f"{self.name}: {why}")
