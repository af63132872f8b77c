"""Inject the schedule's faults, heal them, and record both.

A fault is healed when its target is ready again: only then is that recorded, and from then on waits are checked. A
target has one fault at a time, however many overlap.

A step that takes longer than a generous bound is a problem by itself, and the run goes on to its end without it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from magnetar_wire.randomness import Randomness
from tests.faults.checker.recorder import Recorder
from tests.faults.torture.fault import Fault
from tests.faults.torture.schedule import Injection
from tests.faults.torture.system import System

__all__ = ["STUCK_S", "FaultInjector"]

# Anything that a run waits for is there by then, or the run is stuck.
STUCK_S: Final = 120.0
_AGAIN_S: Final = 0.2


class FaultInjector:
    def __init__(self, system: System, recorder: Recorder, chance: Randomness) -> None:
        self._system = system
        self._recorder = recorder
        self._chance = chance
        self._targets_in_use: set[str] = set()
        self._numbers = 0
        # How often each kind of thing was done to each kind of part; and for how many there was nobody.
        self.done: Counter[str] = Counter()
        self.nobody: Counter[str] = Counter()
        self.problems: list[str] = []
        # Processes with a fault for which they may end.
        self.may_have_ended: set[str] = set()

    def possible(self, fault: Fault) -> bool:
        return bool(self._free(fault))

    def _free(self, fault: Fault) -> Sequence[str]:
        return [one for one in fault.targets(self._system) if one not in self._targets_in_use]

    async def inject(self, injection: Injection, target: str | None = None) -> bool:
        """Inject the fault and heal it. `target`: this one, and no other. False: there was no target."""
        await asyncio.sleep(injection.at_s)
        fault = injection.fault
        free = self._free(fault)
        name = f"{fault.kind} {fault.group}"
        if target not in free and (target is not None or not free):
            self.nobody[name] += 1
            return False
        target = target or self._chance.choice(free)
        self._numbers += 1
        number = self._numbers
        self.done[name] += 1
        self._targets_in_use.add(target)
        if fault.may_end:
            self.may_have_ended.update([target] if target in self._system.names else self._system.names)
        try:
            self._recorder.say("fault", fault=number, kind=fault.kind, target=target, group=fault.group)
            began = await self._in_time(
                fault.begin(self._system, target, self._chance), lambda: f"{name} of {target} begins"
            )
            if began:
                await asyncio.sleep(injection.for_s)
        finally:
            healed = await self._in_time(fault.heal(self._system, target), lambda: f"{name} of {target} is taken back")
            for one in fault.waits_for(self._system, target):
                healed = await self.wait_ready(one) and healed
            self._targets_in_use.remove(target)
        if healed:
            self._recorder.say("healed", fault=number)
        return True

    async def wait_ready(self, name: str) -> bool:
        why = ""

        async def ready() -> None:
            nonlocal why
            while why := await self._system.ready(name):
                await asyncio.sleep(_AGAIN_S)

        return await self._in_time(ready(), lambda: f"{name} is ready: {why}")

    async def _in_time(self, act: Awaitable[None], what: Callable[[], str]) -> bool:
        try:
            async with asyncio.timeout(STUCK_S):
                await act
        except TimeoutError:
            self.problems.append(f"stuck: waited {STUCK_S:.0f} s in vain until {what()}")
            return False
        return True
