"""Renews leases at intervals.

Each log's lease has its own time of renewal. When that has come the request is sent, without waiting for other
requests. So a broker that hangs delays only the renewals of its own logs, each for a bounded time. A lease surely lasts
for half of its time. There are `RENEWALS_PER_LEASE` intervals in the whole of it. A request has half an interval, and
is repeated after a quarter if it failed, so two requests in a row may fail. The times vary at random, so that logs that
were planned together are not renewed together for ever.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final

from magnetar.exceptions import IncarnationChanged, MagnetarException, NotFound, TopicNotFound

__all__ = ["RENEWALS_PER_LEASE", "LeaseRenewals"]

RENEWALS_PER_LEASE: Final = 6
# Maximum number of requests that are begun at once, and the pause between two such groups.
_GROUP_SIZE: Final = 100
_GROUP_PAUSE_S: Final = 0.1

_log = logging.getLogger(__name__)


class LeaseRenewals:
    """Renews the leases of logs, on one event loop. `due` has the time of each log's next renewal on the loop's clock;
    the caller may reuse it afterwards. A log whose lease has ended is reported, and removed from `due`."""

    def __init__(self, renew: Callable[[str], Awaitable[None]], every_s: float, due: dict[str, float]) -> None:
        self._renew = renew
        self._every_s = every_s
        self._due = due
        self._in_flight: dict[str, asyncio.Task[None]] = {}
        self._schedule: asyncio.Task[None] | None = None

    def add_log(self, log: str, *, now: bool = False) -> None:
        """Schedule the renewals of a lease that was just taken, or, with `now`, some time ago. If the log is scheduled
        already, nothing changes."""
        self._due.setdefault(log, self._now + (0.0 if now else self._every_s * random.uniform(0.5, 1)))
        self.start()

    def start(self) -> None:
        if self._schedule is None:
            self._schedule = asyncio.get_running_loop().create_task(self._run())

    async def stop(self, timeout_s: float = 0.0) -> None:
        """Stop. Requests in flight have `timeout_s` to end; unfinished ones are due again soon."""
        schedule, self._schedule = self._schedule, None
        if schedule is not None:
            schedule.cancel()
            await asyncio.wait([schedule])
        in_flight = dict(self._in_flight)
        if not in_flight:
            return
        await asyncio.wait(in_flight.values(), timeout=timeout_s)
        for log, renewal in in_flight.items():
            if renewal.cancel():
                self._due[log] = self._now + self._every_s / 4
        await asyncio.wait(in_flight.values())

    async def _run(self) -> None:
        pause_s = min(_GROUP_PAUSE_S, self._every_s / 20)
        while True:
            now = self._now
            waiting = {log: at for log, at in self._due.items() if log not in self._in_flight}
            for log in heapq.nsmallest(_GROUP_SIZE, waiting, key=waiting.__getitem__):
                if waiting[log] <= now:
                    del waiting[log]
                    self._in_flight[log] = asyncio.get_running_loop().create_task(self._renew_log(log))
            next_at = min(waiting.values(), default=now + self._every_s)
            await asyncio.sleep(min(max(next_at - now, pause_s), self._every_s / 8))

    async def _renew_log(self, log: str) -> None:
        next_s = self._every_s / 4
        try:
            async with asyncio.timeout(self._every_s / 2):
                await self._renew(log)
            next_s = self._every_s * random.uniform(0.75, 1)
        except (NotFound, TopicNotFound, IncarnationChanged) as error:
            self._due.pop(log, None)
            _log.warning(
                "The lease on %s has ended, so its messages may be deleted before they are read: %s", log, error
            )
            return
        except (MagnetarException, TimeoutError) as error:
            _log.warning(
                "The lease on %s could not be renewed, and is retried: %s",
                log,
                error or f"no answer in {self._every_s / 2:g} s",
            )
        except Exception:  # noqa: BLE001 (a bug of ours is logged, and must not also cost the lease)
            _log.exception("The lease on %s could not be renewed because of an internal error, and is retried", log)
        finally:
            del self._in_flight[log]
        self._due[log] = self._now + next_s

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()
