"""The send time-out: what has been pending for too long is given up.

One timer watches the oldest batch; it is set anew when it has gone off, not when a receipt comes. When it goes off far
too late this process was asleep, or very busy: receipts may have come meanwhile and wait to be read, so they get their
chance first.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar._batch import Batch
from magnetar._in_flight import InFlight
from magnetar_wire.clock import Clock, Timer

__all__ = ["Expiry"]


class Expiry:
    __slots__ = ("_at", "_clock", "_expired", "_in_flight", "_timeout_s", "_timer")

    def __init__(
        self,
        in_flight: InFlight,
        clock: Clock,
        timeout_s: float,
        expired: Callable[[list[Batch], float], None],
    ) -> None:
        self._in_flight = in_flight
        self._clock = clock
        # 0: nothing is ever given up.
        self._timeout_s = timeout_s
        self._expired = expired
        # The next look, and when it is due.
        self._timer: Timer | None = None
        self._at = 0.0

    def watch(self) -> None:
        """Something is pending."""
        oldest = self._in_flight.oldest()
        if self._timer is None and oldest is not None and self._timeout_s:
            self._look_at(oldest.opened_at + self._timeout_s)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_at(self, due: float) -> None:
        now = self._clock.monotonic()
        self._at = max(now, due)
        self._timer = self._clock.call_later(self._at - now, self._look)

    def _look(self) -> None:
        self._timer = None
        now, grace_s = self._clock.monotonic(), self._timeout_s / 10
        if now > self._at + grace_s:
            self._look_at(now + grace_s)
            return
        expired = self._in_flight.expire(now, self._timeout_s)
        if expired:
            self._expired(expired, self._timeout_s)
        self.watch()
