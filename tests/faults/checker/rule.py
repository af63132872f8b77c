"""The base class of rules. A rule sees a history's lines in the order of their times, and reports violations.

A rule is a file in `rules/` that names its class `RULE`. It has a method `on_KIND(line)` for each kind of line that it
wants to see, and an `end`. Findings that an administrator's operation may explain are filtered at the end (acts.py). A
rule prefers precision to sharpness: what a correct system could have done is no finding, however odd it looks.
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
