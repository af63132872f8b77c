"""A reader of a whole log finds each id once, in order."""

from __future__ import annotations

from tests.faults.checker.history import Line
from tests.faults.checker.ids import id_text
from tests.faults.checker.rule import Rule


class Scan(Rule):
    name = "scan"

    def begin(self) -> None:
        self._last: dict[tuple[str, str], int] = {}

    def on_scan(self, line: Line) -> None:
        reader, partition = line.fields["reader"], line.partition_name
        last = self._last.get((reader, partition), -1)
        for packed in line.ids:
            if packed <= last:
                self.found(f"{reader} found {id_text(packed)} in {partition} after {id_text(last)}")
            last = packed
        self._last[reader, partition] = last


RULE = Scan
