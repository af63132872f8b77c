"""Receipts for acknowledgements: who waits for them to become durable, gathered.

One save of the cursor answers everybody who asked before it began. The task that saves lives only while somebody waits.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import Cursor
from magnetar_broker.topic.spawning import Spawn

__all__ = ["AckReceipts", "ReceiptDone"]

# Called with what went wrong, or None when all is durable.
ReceiptDone = Callable[[BrokerError | None], object]


class AckReceipts:
    __slots__ = ("_cursor", "_saving", "_spawn", "_waiting")

    def __init__(self, cursor: Cursor, spawn: Spawn) -> None:
        self._cursor = cursor
        self._spawn = spawn
        self._waiting: list[ReceiptDone] = []
        self._saving = False

    @property
    def waiting(self) -> bool:
        return self._saving

    def add(self, done: ReceiptDone) -> None:
        self._waiting.append(done)
        if not self._saving:
            self._saving = True
            self._spawn(self._save())

    def fail(self, error: BrokerError) -> None:
        """Nobody will be answered any more."""
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(error)

    async def _save(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                error: BrokerError | None = None
                try:
                    await self._cursor.saved()
                except BrokerError as problem:
                    error = problem
                except BaseException:
                    self._waiting = waiting + self._waiting  # `fail` answers them
                    raise
                for done in waiting:
                    done(error)
        finally:
            self._saving = False
