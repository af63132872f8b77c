"""Counts the consumers of a subscription that are expected to reconnect, for a limited time.

When a subscription is moved, for example by a seek, the broker closes the consumers of Pulsar's client libraries. They
reconnect, and read from the new position. In the meantime the subscription may have no consumers: then one that is not
durable would be deleted, and the new position lost.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar_wire.clock import Clock, Timer

__all__ = ["ExpectedReconnections"]


class ExpectedReconnections:
    __slots__ = ("_clock", "_count", "_on_over", "_timer")

    def __init__(self, clock: Clock, on_over: Callable[[], object]) -> None:
        """`on_over` is called when the time is over."""
        self._clock = clock
        self._on_over = on_over
        self._count = 0
        # None: no consumer is expected.
        self._timer: Timer | None = None

    @property
    def are_expected(self) -> bool:
        return self._timer is not None

    def expect(self, seconds: float) -> None:
        """Expect one more consumer. Wait for it, and for all that are expected already, for this time from now on."""
        count = self._count + 1
        self.stop()
        self._count = count
        self._timer = self._clock.call_later(seconds, self._end)

    def count_one(self) -> None:
        """A consumer has connected: expect one less."""
        if self._count > 1:
            self._count -= 1
        else:
            self.stop()

    def stop(self) -> None:
        """Expect no consumer any more."""
        self._count = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self.stop()
        self._on_over()
