"""A reader that begins at the id of a message that somebody saw gets that message first."""

from __future__ import annotations

from tests.faults.checker.history import Line
from tests.faults.checker.ids import id_text, pack
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import Consumer


class Started(Rule):
    name = "started"

    def begin(self) -> None:
        self._starts: dict[Consumer, int] = {}

    def on_opening(self, line: Line) -> None:
        if "start" in line.fields:
            self._starts[self.facts.consumer(line)] = pack(*line.fields["start"])

    def on_got(self, line: Line) -> None:
        start = self._starts.pop(self.facts.consumer(line), None)
        if start is not None and line.ids and line.ids[0] != start:
            reader, first = line.fields["consumer"], id_text(line.ids[0])
            self.found(f"{reader} began at {id_text(start)}, and was handed {first} first, at {line.at:.3f}")


RULE = Started
