"""A reader that begins at the id of a message that somebody saw gets that message first.

If it is a chunked message, it may get messages before it that were sent between the chunks, but none that is behind it.

Readers of Pulsar's C++ library begin elsewhere when they reconnect before they got their first message: at the entry
before the first one that waits for the application; so they may get messages before the one at which they began. And
they skip a chunked message whose chunks they get twice, or not from the first one on (test_stock_readers.py). They
reconnect only outside of calm, and are judged without these exceptions within one.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.faults.checker.disturbance import Disturbances, is_calm
from tests.faults.checker.history import Line
from tests.faults.checker.ids import id_text, pack
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import Consumer


@dataclass(frozen=True, slots=True)
class _Start:
    packed: int
    is_chunked: bool
    # Its library begins elsewhere after a reconnection.
    wanders: bool


@dataclass(frozen=True, slots=True)
class _Finding:
    text: str
    # Between these times a reconnection would explain it.
    begin: float
    end: float


class Started(Rule):
    name = "started"

    def begin(self) -> None:
        self._starts: dict[Consumer, _Start] = {}
        self._excusable: list[_Finding] = []
        self._disturbances = Disturbances()
        self.on_owners = self._disturbances.owners
        self.on_fault = self._disturbances.fault
        self.on_healed = self._disturbances.healed
        self.on_session_over = self._disturbances.session_over

    def on_opening(self, line: Line) -> None:
        fields = line.fields
        if "start" in fields:
            is_chunked, wanders = fields.get("start_is_chunked", False), fields.get("library") == "pulsar-client"
            self._starts[self.facts.consumer(line)] = _Start(pack(*fields["start"]), is_chunked, wanders)

    def on_got(self, line: Line) -> None:
        consumer = self.facts.consumer(line)
        start = self._starts.get(consumer)
        if start is None:
            return
        if line.ids and line.ids[0] < start.packed and not start.is_chunked:
            self._report(consumer, start, line, line.ids[0], excusable=start.wanders)
            if not start.wanders:
                del self._starts[consumer]
                return
        first = next((packed for packed in line.ids if packed >= start.packed), None)
        if first is None:
            return
        del self._starts[consumer]
        if first != start.packed:
            self._report(consumer, start, line, first, excusable=start.wanders and start.is_chunked)

    def _report(self, consumer: Consumer, start: _Start, line: Line, first: int, *, excusable: bool) -> None:
        text = (
            f"{consumer.name} began at {id_text(start.packed)}, and was handed {id_text(first)} first, at {line.at:.3f}"
        )
        if excusable:
            self._excusable.append(_Finding(text, consumer.opening_at, line.at))
        else:
            self.found(text)

    def end(self) -> None:
        calms = self._disturbances.calm(self.facts.began or 0.0, self.facts.now)
        for one in self._excusable:
            if is_calm(calms, one.begin, one.end):
                self.found(one.text)


RULE = Started
