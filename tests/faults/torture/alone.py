"""One broker is struck, and nothing else: how long are its places silent?

Told is when its session was over, as the metadata store sees it, and when the last of the places that it owned had a
new receipt. Where nobody can be asked who owns what, it is struck all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

from magnetar_metadata.errors import MetadataError
from magnetar_wire.randomness import Randomness
from tests.faults.torture.owners import Owner, Owners
from tests.faults.torture.progress import Progress
from tests.faults.torture.report import Resumption
from tests.faults.torture.schedule import Strike
from tests.faults.torture.strikes import STUCK_S, Strikes
from tests.faults.torture.system import System

__all__ = ["Alone"]

_AGAIN_S: Final = 0.1


class Alone:
    def __init__(self, system: System, strikes: Strikes, progress: Progress, chance: Randomness) -> None:
        self._system, self._strikes, self._progress, self._chance = system, strikes, progress, chance
        # None: there is nobody to be asked.
        self.owners: Owners | None = None
        self.resumptions: list[Resumption] = []
        self.problems: list[str] = []

    async def strike(self, strike: Strike) -> None:
        owned = await self._owned()
        if self.owners is None or not owned:
            await self._strikes.strike(strike)
            return
        broker = self._chance.choice(sorted(owned))  # one that owns nothing would not be missed
        struck = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            striking = tasks.create_task(self._strikes.strike(strike, broker))
            told = [
                tasks.create_task(self._resumed(self.owners, place, owner, strike))
                for place, owner in owned[broker].items()
            ]
            if not await striking:
                for task in told:
                    task.cancel()
        times = [found for task in told if not task.cancelled() and (found := task.result()) is not None]
        if times:
            expired = max(expired for expired, _ in times)
            resumed_s = max(resumed - expired for expired, resumed in times)
            what = f"{strike.fault.kind} {broker}"
            self.resumptions.append(Resumption(what, len(times), expired - struck, resumed_s))

    async def _owned(self) -> dict[str, dict[str, Owner]]:
        """By broker, places and what it holds them by."""
        found: dict[str, dict[str, Owner]] = {}
        if self.owners is not None:
            with contextlib.suppress(MetadataError):
                for place, owner in (await self.owners.look()).items():
                    if owner.broker in self._system.brokers:
                        found.setdefault(owner.broker, {})[place] = owner
        return found

    async def _resumed(self, owners: Owners, place: str, owner: Owner, strike: Strike) -> tuple[float, float] | None:
        """When its owner's session was over, and when its first receipt after that came."""
        try:
            async with asyncio.timeout(STUCK_S):
                expired = await owners.wait_over(owner)
                while (resumed := self._first_receipt(place, expired)) is None:
                    await asyncio.sleep(_AGAIN_S)
        except TimeoutError:
            self.problems.append(f"{place} takes nothing {STUCK_S:.0f} s after {strike}")
            return None
        return expired, resumed

    def _first_receipt(self, place: str, after: float) -> float | None:
        self._progress.read_on()
        return self._progress.first_receipt_after(place, after)
