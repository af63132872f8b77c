"""A clock for code that waits between attempts."""

from __future__ import annotations

from magnetar_testing.clock import ManualClock

__all__ = ["HurriedClock"]


class HurriedClock(ManualClock):
    """Passes the time that a caller sleeps at once."""

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
