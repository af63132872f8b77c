"""Administrators' operations, and the findings that they explain.

The history has an operation once it has ended, and it explains what happened since it began. So a rule collects its
findings and filters them at the end. An operation with an unknown result can take effect at any time after it began; a
refused one explains nothing.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from tests.faults.checker.history import Line

__all__ = ["Act", "Acts"]

_SKIPPING: Final = frozenset({"seek", "skip", "clear", "expire", "unsubscribe"})
_REPEATING: Final = frozenset({"seek", "unsubscribe"})


@dataclass(frozen=True, slots=True)
class Act:
    act: str
    begun: float
    # By when it was done; infinity: nobody knows.
    done: float


class Acts:
    def __init__(self) -> None:
        self._of: dict[str, list[Act]] = defaultdict(list)

    def take(self, line: Line) -> None:
        fields = line.fields
        if fields["result"] != "refused":
            done = line.at if fields["result"] == "done" else float("inf")
            self._of[fields["target"]].append(Act(fields["act"], fields["begun"], done))

    def took_away(self, topic: str, sent_at: float) -> bool:
        """A message of that time went with its topic."""
        return any(act.act == "delete_topic" and sent_at <= act.done for act in self._of.get(topic, ()))

    def skipped(self, subscription: str, topic: str, sent_at: float) -> bool:
        """The subscription need not have come to a message of that time."""
        acts = self._of.get(subscription, ())
        return any(act.act in _SKIPPING and sent_at <= act.done for act in acts) or self.took_away(topic, sent_at)

    def brought_back(self, subscription: str, receipt_at: float, got_at: float) -> bool:
        """What was acknowledged by then may have come again by then."""
        return any(
            act.act in _REPEATING and act.begun <= got_at and receipt_at <= act.done
            for act in self._of.get(subscription, ())
        )

    def moved(self, subscription: str, got_at: float) -> bool:
        """It may have been moved to another position before that time."""
        return any(act.act in _REPEATING and act.begun <= got_at for act in self._of.get(subscription, ()))

    def touched(self, subscription: str, topic: str, begin: float, end: float) -> bool:
        """Something may have been done to what it has to come to, in that time."""
        acts = [*self._of.get(subscription, ()), *(act for act in self._of.get(topic, ()) if act.act == "delete_topic")]
        return any(act.begun <= end and act.done >= begin for act in acts)
