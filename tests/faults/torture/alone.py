"""Inject a fault into one broker alone, and measure how long its partitions are unavailable.

Measured are the end of its session, as the metadata store has it, and the new receipt of the last of its partitions. If
the owners are unknown, the fault is injected all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection
from typing import Final

from magnetar_metadata.errors import MetadataError
from magnetar_wire.randomness import Randomness
from tests.faults.torture.fault_injector import STUCK_S, FaultInjector
from tests.faults.torture.owners import Owner, Owners
from tests.faults.torture.progress import Progress
from tests.faults.torture.report import Resumption
from tests.faults.torture.schedule import Injection
from tests.faults.torture.system import System

__all__ = ["Alone"]

_AGAIN_S: Final = 0.1


class Alone:
    def __init__(
        self,
        system: System,
        injector: FaultInjector,
        progress: Progress,
        published: Collection[str],
        chance: Randomness,
    ) -> None:
        """`published`: the partitions that producers publish to."""
        self._system, self._injector, self._progress, self._chance = system, injector, progress, chance
        self._published = published
        # None: the owners are unknown.
        self.owners: Owners | None = None
        self.resumptions: list[Resumption] = []
        self.problems: list[str] = []

    async def inject(self, injection: Injection) -> None:
        owned = await self._owned()
        if self.owners is None or not owned:
            await self._injector.inject(injection)
            return
        broker = self._chance.choice(sorted(owned))  # one that owns nothing would not be missed
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            injecting = tasks.create_task(self._injector.inject(injection, broker))
            waiting = [
                tasks.create_task(self._resumed(self.owners, partition, owner, injection))
                for partition, owner in owned[broker].items()
            ]
            if not await injecting:
                for task in waiting:
                    task.cancel()
        times = [found for task in waiting if not task.cancelled() and (found := task.result()) is not None]
        if times:
            expired = max(expired for expired, _ in times)
            resumed_s = max(resumed - expired for expired, resumed in times)
            what = f"{injection.fault.kind} {broker}"
            self.resumptions.append(Resumption(what, len(times), expired - began, resumed_s))

    async def _owned(self) -> dict[str, dict[str, Owner]]:
        """Return the partitions of each broker with their owners."""
        found: dict[str, dict[str, Owner]] = {}
        if self.owners is not None:
            with contextlib.suppress(MetadataError):
                for partition, owner in (await self.owners.look()).items():
                    if owner.broker in self._system.brokers and partition in self._published:
                        found.setdefault(owner.broker, {})[partition] = owner
        return found

    async def _resumed(
        self, owners: Owners, partition: str, owner: Owner, injection: Injection
    ) -> tuple[float, float] | None:
        """Wait until the owner's session is over and the partition has a receipt again; return both times."""
        try:
            async with asyncio.timeout(STUCK_S):
                expired = await owners.wait_over(owner)
                while (resumed := self._first_receipt(partition, expired)) is None:
                    await asyncio.sleep(_AGAIN_S)
        except TimeoutError:
            self.problems.append(f"{partition} takes nothing {STUCK_S:.0f} s after {injection}")
            return None
        return expired, resumed

    def _first_receipt(self, partition: str, after: float) -> float | None:
        self._progress.read_on()
        return self._progress.first_receipt_after(partition, after)
