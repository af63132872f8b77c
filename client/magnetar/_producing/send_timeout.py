"""The send timeout of a producer: if a message has no result after `send_timeout_millis`, all pending ones fail.

The later ones fail with it, as in Pulsar's clients. If they were sent, and the application sent the first one again,
it would be stored behind them; with deduplication it would be a duplicate, and never stored.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar._producing.in_flight import InFlight
from magnetar_wire.clock import Clock, Timer

__all__ = ["SendTimeout"]


class SendTimeout:
    """One timer watches the oldest batch. It is set again when it has fired, not at each result. If it fires far too
    late, the process was suspended or very busy, and results may have come that were not read yet. So they get some
    more time.
    """

    __slots__ = ("_clock", "_due", "_in_flight", "_on_expired", "_timeout_s", "_timer")

    def __init__(
        self,
        in_flight: InFlight,
        clock: Clock,
        timeout_s: float,
        on_expired: Callable[[float], object],
    ) -> None:
        """`timeout_s`: 0: batches never expire. `on_expired` is called with it, and removes all batches."""
        self._in_flight = in_flight
        self._clock = clock
        self._timeout_s = timeout_s
        self._on_expired = on_expired
        self._timer: Timer | None = None
        # When the timer fires.
        self._due = 0.0

    def watch(self) -> None:
        """Set the timer, unless it is set or nothing is pending."""
        oldest = self._in_flight.oldest()
        if self._timer is None and oldest is not None and self._timeout_s:
            self._set_timer(oldest.opened_at + self._timeout_s)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, due: float) -> None:
        now = self._clock.monotonic()
        self._due = max(now, due)
        self._timer = self._clock.call_later(self._due - now, self._check)

    def _check(self) -> None:
        self._timer = None
        now, grace_s = self._clock.monotonic(), self._timeout_s / 10
        if now > self._due + grace_s:
            self._set_timer(now + grace_s)
            return
        if self._in_flight.is_expired(now, self._timeout_s):
            self._on_expired(self._timeout_s)
        self.watch()
