"""Renewing leases by the clock.

Each log's lease has a time of its own at which it is to be renewed. When that has come the call is begun, whatever
became of the others: nobody waits for a broker that hangs but that broker's own logs, and those for a bounded time. A
lease surely holds for half of its time; so there are `RENEWALS` in all of it, each has half of the time to the next,
and one that failed is tried again after a quarter of that: two may fail in a row. The times vary by chance, so that
logs that were planned together are not renewed together for ever.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final

from magnetar.exceptions import IncarnationChanged, MagnetarException, NotFound, TopicNotFound

__all__ = ["RENEWALS", "Renewals"]

RENEWALS: Final = 6
# So many calls are begun in one turn of the loop, and then others have theirs.
_AT_ONCE: Final = 100
_BREATH_S: Final = 0.1

_log = logging.getLogger(__name__)


class Renewals:
    """Belongs to one loop. `due` says when each log's lease is to be renewed, on the loop's clock, and may be kept when
    this has ended. A log whose lease has ended is told of, and taken out of it."""

    def __init__(self, renew: Callable[[str], Awaitable[None]], every_s: float, due: dict[str, float]) -> None:
        self._renew = renew
        self._every_s = every_s
        self._due = due
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._clock: asyncio.Task[None] | None = None

    def add(self, log: str, *, now: bool = False) -> None:
        """Its lease was taken just now, or is renewed already; `now`: it was taken some time ago."""
        self._due.setdefault(log, self._now + (0.0 if now else self._every_s * random.uniform(0.5, 1)))
        self.begin()

    def begin(self) -> None:
        if self._clock is None:
            self._clock = asyncio.get_running_loop().create_task(self._go())

    async def end(self, patience_s: float = 0.0) -> None:
        """What is under way has so long to be done; what is not done by then is soon due again."""
        clock, self._clock = self._clock, None
        if clock is not None:
            clock.cancel()
            await asyncio.wait([clock])
        under_way = dict(self._under_way)
        if not under_way:
            return
        await asyncio.wait(under_way.values(), timeout=patience_s)
        for log, renewing in under_way.items():
            if renewing.cancel():
                self._due[log] = self._now + self._every_s / 4
        await asyncio.wait(under_way.values())

    async def _go(self) -> None:
        breath_s = min(_BREATH_S, self._every_s / 20)
        while True:
            now = self._now
            waiting = {log: at for log, at in self._due.items() if log not in self._under_way}
            for log in heapq.nsmallest(_AT_ONCE, waiting, key=waiting.__getitem__):
                if waiting[log] <= now:
                    del waiting[log]
                    self._under_way[log] = asyncio.get_running_loop().create_task(self._renew_one(log))
            next_at = min(waiting.values(), default=now + self._every_s)
            await asyncio.sleep(min(max(next_at - now, breath_s), self._every_s / 8))

    async def _renew_one(self, log: str) -> None:
        again_s = self._every_s / 4
        try:
            async with asyncio.timeout(self._every_s / 2):
                await self._renew(log)
            again_s = self._every_s * random.uniform(0.75, 1)
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
        except Exception:  # noqa: BLE001 a mistake of ours is told, and must not cost the lease besides
            _log.exception("The lease on %s could not be renewed because of an internal error, and is retried", log)
        finally:
            del self._under_way[log]
        self._due[log] = self._now + again_s

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()
