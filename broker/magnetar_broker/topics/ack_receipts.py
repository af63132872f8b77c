"""Receipts for acknowledgements: who waits for them to become durable, gathered.

One save of the cursor answers everybody who asked before it began. The task that saves lives only while somebody waits.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import Cursor
from magnetar_broker.topics.tasks_in_order import TopicTasks

__all__ = ["AckReceipts", "ReceiptDone"]

# Called with what went wrong, or None when all is durable.
ReceiptDone = Callable[[BrokerError | None], object]


class AckReceipts:
    __slots__ = ("_being_saved", "_cursor", "_failed", "_saved", "_saving", "_tasks", "_waiting")

    def __init__(self, cursor: Cursor, tasks: TopicTasks, saved: Callable[[], object]) -> None:
        self._cursor = cursor
        self._tasks = tasks
        # Nobody waits any more.
        self._saved = saved
        # Those that the next save answers, and those that the one under way does.
        self._waiting: list[ReceiptDone] = []
        self._being_saved: list[ReceiptDone] = []
        self._saving = False
        self._failed: BrokerError | None = None

    @property
    def waiting(self) -> bool:
        return self._saving

    def add(self, done: ReceiptDone) -> None:
        if self._failed is not None:
            done(self._failed)
            return
        self._waiting.append(done)
        if not self._saving:
            self._saving = True
            self._tasks.spawn(self._save())

    def fail(self, error: BrokerError) -> None:
        """The topic's end: whoever waits is told, and the save under way is about to be cancelled."""
        self._failed = error
        waiting, self._waiting = self._being_saved + self._waiting, []
        self._being_saved = []
        for done in waiting:
            done(error)

    async def _save(self) -> None:
        try:
            while self._waiting:
                self._being_saved, self._waiting = self._waiting, []
                error: BrokerError | None = None
                try:
                    await self._cursor.saved()
                except BrokerError as problem:
                    error = problem
                saved, self._being_saved = self._being_saved, []
                for done in saved:
                    done(error)
        finally:
            self._saving = False
            self._saved()
