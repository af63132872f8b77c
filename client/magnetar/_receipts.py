"""What becomes of a batch once it is decided: who waits is told, callbacks are called, flushes count down.

Message ids are made here, of a whole batch at once, and only where somebody takes them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import NamedTuple

from magnetar._batch import Batch, Callback
from magnetar.exceptions import MagnetarException, Result
from magnetar_wire.message_id import MessageId, ids_of_batch

__all__ = ["Flush", "Place", "call_back", "tell_waiters"]


log = logging.getLogger(__name__)


class Place(NamedTuple):
    """Where an entry was stored."""

    topic: str
    # -1: the topic has none.
    partition: int
    # Both -1: it was there already.
    ledger_id: int
    entry_id: int


def tell_waiters(batch: Batch, outcome: Place | MagnetarException) -> None:
    if isinstance(outcome, MagnetarException):
        for _, waiter in batch.waiters:
            waiter(type(outcome)(*outcome.args))
    elif batch.waiters:
        message_ids = _ids(batch, outcome, [index for index, _ in batch.waiters])
        for (_, waiter), message_id in zip(batch.waiters, message_ids, strict=True):
            waiter(message_id)


def call_back(batch: Batch, outcome: Place | MagnetarException) -> None:
    """Calls the batch's callbacks."""
    if isinstance(outcome, MagnetarException):
        call_all(batch.callbacks or (), outcome.result, repeat(None))
    else:
        call_all(batch.callbacks or (), Result.Ok, _ids(batch, outcome, range(batch.count)))


def _ids(batch: Batch, place: Place, indexes: Sequence[int]) -> list[MessageId]:
    topic, partition, ledger_id, entry_id = place
    if batch.count == 1:
        return ids_of_batch(partition, ledger_id, entry_id, (-1,), 0, topic)
    return ids_of_batch(partition, ledger_id, entry_id, indexes, batch.count, topic)


def call_all(callbacks: Iterable[Callback | None], result: Result, message_ids: Iterable[MessageId | None]) -> None:
    """One that raises is logged, and the others are called all the same."""
    for callback, message_id in zip(callbacks, message_ids, strict=False):
        if callback is not None:
            try:
                callback(result, message_id)
            except BaseException:
                log.exception("the callback %r of a message failed", callback)


class Flush:
    """Waits until so many batches are decided, the last of which has this serial number."""

    def __init__(self, last_serial: int, batches: int) -> None:
        self.last_serial = last_serial
        self.left = batches
        self.error: MagnetarException | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def decided(self, batch: Batch, error: MagnetarException | None) -> None:
        if batch.serial > self.last_serial:
            return
        self.left -= 1
        self.error = self.error or error
        if not self.left and not self.done.done():
            if self.error is None:
                self.done.set_result(None)
            else:
                self.done.set_exception(type(self.error)(*self.error.args))
