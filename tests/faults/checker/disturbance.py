"""Find the calms of a run: the intervals without a fault, in which a long wait is a finding.

A fault disturbs everything from its beginning until it is healed, or to the end. One exception: if a broker's session
ended during a fault of that broker, the fault disturbs until the session's end only, since other brokers take over; and
again from the broker's next session, if that begins before the fault is healed. A session whose end no fault explains
disturbs at that moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tests.faults.checker.history import Line

__all__ = ["Calm", "Disturbances", "is_calm"]

_FOR_EVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Calm:
    begin: float
    end: float
    # What kind of thing ended when it began.
    after: str


@dataclass(slots=True)
class _Fault:
    kind: str
    target: str
    begin: float
    # Which session its target had, and when that was over.
    session: int | None
    healed: float = _FOR_EVER
    over: float | None = None
    came_back: float | None = None

    def disturbed(self) -> list[tuple[float, float, str]]:
        if self.over is None:
            return [(self.begin, self.healed, self.kind)]
        first = (self.begin, self.over, self.kind)
        if self.came_back is None or self.came_back >= self.healed:
            return [first]
        return [first, (self.came_back, self.healed, self.kind)]


class Disturbances:
    def __init__(self) -> None:
        self._faults: dict[int, _Fault] = {}
        self._latest: _Fault | None = None
        self._sessions: dict[str, int] = {}  # by broker, as last seen
        self._moments: list[tuple[float, float, str]] = []

    @property
    def kinds(self) -> list[str]:
        return [fault.kind for fault in self._faults.values()]

    def owners(self, line: Line) -> None:
        for broker, session in line.fields["owners"].values():
            if self._sessions.get(broker) != session:
                self._sessions[broker] = session
                for fault in self._faults.values():
                    if fault.target == broker and fault.over is not None and fault.came_back is None:
                        fault.came_back = line.fields["since"]

    def fault(self, line: Line) -> None:
        fields = line.fields
        if fields["fault"] in self._faults:
            raise line.broken(f"has the number {fields['fault']} of an earlier one")
        session = self._sessions.get(fields["target"])
        self._latest = self._faults[fields["fault"]] = _Fault(fields["kind"], fields["target"], line.at, session)

    def healed(self, line: Line) -> None:
        fault = self._faults.get(line.fields["fault"])
        if fault is None:
            raise line.broken(f"names fault {line.fields['fault']}, which never began")
        fault.healed = min(fault.healed, line.at)

    def session_over(self, line: Line) -> None:
        """Attribute the session's end to the broker's last fault, if that lasts, or if no other came after it."""
        broker, session = line.fields["broker"], line.fields["session"]
        own = [fault for fault in self._faults.values() if fault.target == broker]
        last = own[-1] if own else None
        its_work = last is not None and (last.healed == _FOR_EVER or last is self._latest)
        if last is not None and its_work and last.session == session and last.over is None:
            last.over = line.at
        else:
            self._moments.append((line.at, line.at, "SESSION_OVER"))

    def calm(self, began: float, ended: float) -> list[Calm]:
        disturbed = [one for fault in self._faults.values() for one in fault.disturbed()]
        found, until, after = [], began, "BEGIN"
        for begin, end, kind in sorted([*disturbed, *self._moments]):
            if begin > until:
                found.append(Calm(until, min(begin, ended), after))
            if end >= until:
                until, after = end, kind
        if ended > until:
            found.append(Calm(until, ended, after))
        return found


def is_calm(calms: Iterable[Calm], begin: float, end: float) -> bool:
    """Whether one calm has all of that time."""
    return any(calm.begin <= begin and end <= calm.end for calm in calms)
