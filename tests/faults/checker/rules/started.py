"""A reader that begins at the id of a message that somebody saw gets that message first.

If it is a chunked message, it may get messages before it that were sent between the chunks, but none that is behind it.
Readers that begin at the end of the run are not judged: what all have read is deleted then.
"""

from __future__ import annotations

from tests.faults.checker.history import Line
from tests.faults.checker.ids import id_text, pack
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import Consumer


class Started(Rule):
    name = "started"

    def begin(self) -> None:
        self._starts: dict[Consumer, tuple[int, bool]] = {}
        self._is_ending = False

    def on_drained(self, line: Line) -> None:
        self._is_ending = True

    def on_opening(self, line: Line) -> None:
        if "start" in line.fields and not self._is_ending:
            start, is_chunked = pack(*line.fields["start"]), line.fields.get("start_is_chunked", False)
            self._starts[self.facts.consumer(line)] = start, is_chunked

    def on_got(self, line: Line) -> None:
        consumer = self.facts.consumer(line)
        if consumer not in self._starts:
            return
        start, is_chunked = self._starts[consumer]
        first = next((packed for packed in line.ids if not is_chunked or packed >= start), None)
        if first is None:
            return
        del self._starts[consumer]
        if first != start:
            self.found(
                f"{consumer.name} began at {id_text(start)}, and was handed {id_text(first)} first, at {line.at:.3f}"
            )


RULE = Started
