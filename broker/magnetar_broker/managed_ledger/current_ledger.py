"""The ledger of a topic that entries are added to, with the state that the appender has of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar_bookie.errors import AddFailed
from magnetar_bookie.ledger.ledger_writer import LedgerWriter

__all__ = ["CurrentLedger"]


class CurrentLedger:
    """The ledger that entries are added to: from its creation until it is closed."""

    __slots__ = (
        "closed",
        "entries",
        "has_chunks",
        "is_rolling",
        "length_bytes",
        "on_completed",
        "opened_at",
        "takes_chunks",
        "writer",
    )

    def __init__(self, writer: LedgerWriter, opened_at: float, *, takes_chunks: bool) -> None:
        self.writer = writer
        self.opened_at = opened_at
        # The list of ledgers says that it may hold chunks, and it does.
        self.takes_chunks = takes_chunks
        self.has_chunks = False
        # The number and the size of the entries that were added to it, persisted or not.
        self.entries = 0
        self.length_bytes = 0
        # Nothing more is added to it.
        self.is_rolling = False
        # For callers of `roll_ledger`.
        self.closed: asyncio.Future[None] | None = None
        # The callback of its adds: always the same object, so that consecutive adds are completed by one call.
        self.on_completed: Callable[[int | AddFailed, int], object] = _ignore

    def mark_closed(self) -> None:
        if self.closed is not None and not self.closed.done():
            self.closed.set_result(None)


def _ignore(_result: int | AddFailed, _count: int) -> None:
    pass
