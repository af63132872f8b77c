"""Ids for new ledgers, each above all that were given out before it was asked for.

One counter in the metadata store is raised for each of them. A broker that takes over a thousand topics makes a
thousand ledgers at once: if each raised the counter for itself, all of them would be refused by turns but one. So there
is one change at a time in a process, and it raises the counter for all who wait for it. Whoever asks while it is under
way waits for the next one: what is read of the counter before somebody asks must be below the id that he gets, since a
topic's floor and a bookie's limbo rely on it.

Whoever is next in line makes the change for those who wait with him. If he is cancelled in the middle they wait for the
next one, and the numbers that may have been drawn are nobody's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

__all__ = ["LedgerIdGenerator"]


class _Asker:
    __slots__ = ("error", "ledger_id")

    def __init__(self) -> None:
        self.ledger_id: int | None = None
        self.error: Exception | None = None


class LedgerIdGenerator:
    def __init__(self, draw: Callable[[int], Awaitable[int]]) -> None:
        """`draw(count)` raises the counter by so many, and returns what it is then."""
        self._draw = draw
        self._drawing = asyncio.Lock()
        self._waiting: list[_Asker] = []

    async def next(self) -> int:
        """Raises what `draw` raises."""
        asker = _Asker()
        self._waiting.append(asker)
        try:
            async with self._drawing:
                if asker.ledger_id is None and asker.error is None:
                    await self._draw_for_all()
        finally:
            if asker in self._waiting:  # cancelled
                self._waiting.remove(asker)
        if asker.error is not None:
            raise asker.error
        assert asker.ledger_id is not None
        return asker.ledger_id

    async def _draw_for_all(self) -> None:
        askers, self._waiting = self._waiting, []
        try:
            last = await self._draw(len(askers))
        except Exception as error:  # noqa: BLE001 (each of them is told)
            for asker in askers:
                asker.error = error
            return
        except BaseException:
            self._waiting = askers + self._waiting
            raise
        for ledger_id, asker in enumerate(askers, last - len(askers) + 1):
            asker.ledger_id = ledger_id
