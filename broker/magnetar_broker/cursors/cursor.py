"""A cursor: the position of one subscription in a topic's log, and the acknowledgements after it."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from magnetar_broker.cursors.ack_state import AckState, PartialBatch
from magnetar_broker.errors import BrokerError
from magnetar_broker.position import LedgerRange, Position

__all__ = ["Cursor", "SaveDone", "TransientCursor", "report_saved"]

_log = logging.getLogger(__name__)
# Called with None when changes are durable, or with the reason why they may not be.
SaveDone = Callable[[BrokerError | None], object]


def report_saved(done: SaveDone, error: BrokerError | None) -> None:
    """Call `done`. Its own error is logged, so that the others that wait are called."""
    try:
        done(error)
    except Exception:  # noqa: BLE001
        _log.exception("The callback of a save failed")


class Cursor(ABC):
    """What durable and transient cursors have in common: the rules of ack_state.py.

    Changes take effect at once. `call_when_saved` and `wait_until_saved` report when they are durable.
    """

    __slots__ = ("__weakref__", "_state", "name", "properties", "waiting_for")

    is_durable = False

    def __init__(self, name: str, state: AckState, properties: Mapping[str, str]) -> None:
        self.name = name
        self.properties = properties
        # Why the last save takes long; empty: it does not.
        self.waiting_for = ""
        self._state = state

    @property
    def mark_delete(self) -> Position:
        """The mark-delete position: all entries up to and including it are acknowledged."""
        return self._state.mark_delete

    @property
    @abstractmethod
    def saved_mark_delete(self) -> Position:
        """The durable part of `mark_delete`; entries up to it are not needed any more. Transient: `mark_delete`."""

    @property
    def has_holes(self) -> bool:
        """Whether entries or messages after `mark_delete` are acknowledged individually."""
        return self._state.has_holes

    @property
    def moves(self) -> int:
        """Number of calls of `move_to`, saved with them. It begins at a random number for each new cursor."""
        return self._state.moves

    @property
    def take_overs(self) -> int:
        """Number of times that another consumer became active. Saved with the next acknowledgement, not by itself."""
        return self._state.take_overs

    def record_take_over(self) -> None:
        self._state.take_overs += 1

    def is_acknowledged(self, position: Position) -> bool:
        """Whether the whole entry is acknowledged."""
        return self._state.is_acknowledged(position)

    def may_be_acknowledged_from(self, position: Position) -> bool:
        """Whether an entry from this position on, or messages of one, may be acknowledged. False: none is."""
        return self._state.may_be_acknowledged_from(position)

    def get_acknowledged_messages(self, position: Position) -> int:
        """Return a batch's acknowledged messages as bits. 0: none of them, or the whole entry."""
        return self._state.get_acknowledged_messages(position)

    def count_acknowledged_messages(self) -> int:
        """Return the number of acknowledged messages of batches that are not wholly acknowledged."""
        return self._state.count_acknowledged_messages()

    def find_unacknowledged_after(self, position: Position) -> Position:
        """Return the first unacknowledged position after this one. The log may not have an entry there (yet)."""
        return self._state.find_unacknowledged_after(position)

    def count_unacknowledged(self) -> int:
        """Return the number of unacknowledged entries in the log: the backlog."""
        return self._state.count_unacknowledged()

    @property
    def unused_ms(self) -> int:
        """How long the subscription was not used, as it was stored last (topics/subscription_expiry.py)."""
        return 0

    @property
    def ledger_id(self) -> int:
        """The ledger in which the cursor was saved last; 0: none."""
        return 0

    def acknowledged_ranges(self) -> Iterator[tuple[int, int, int]]:
        """Yield the ledger, the first and the last entry of each run of acknowledged entries after the mark-delete
        position."""
        for ledger_id, entries in sorted(self._state.entries().items()):
            for first, last in entries.ranges():
                yield ledger_id, first, last

    def count_ranges(self) -> int:
        """Return the number of runs of acknowledged entries after the mark-delete position."""
        return self._state.count_ranges()

    def acknowledge(self, entries: Iterable[LedgerRange], messages: Sequence[PartialBatch] = ()) -> list[Position]:
        """Acknowledge entries, and messages of batches. Return which of these batches are wholly acknowledged now.

        Positions that the log does not have are ignored. Raises `BrokerError`, and then nothing is acknowledged.
        """
        before = self._state.changes
        done = self._state.acknowledge(entries, messages)
        if self._state.changes != before:
            self._schedule_save()
        return done

    def acknowledge_up_to(self, position: Position, messages: int = 0, batch_size: int = 0) -> None:
        """Acknowledge all entries up to and including this one; of a batch, only `messages` (bits) of this one.

        Raises `BrokerError`, and then nothing is acknowledged.
        """
        before = self._state.changes
        self._state.acknowledge_up_to(position, messages, batch_size)
        if self._state.changes != before:
            self._schedule_save()

    def drop_trimmed_ledgers(self) -> None:
        """Move `mark_delete` behind the ledgers that the log has deleted, and forget acknowledgements in them."""
        before = self._state.changes
        self._state.drop_trimmed_ledgers()
        if self._state.changes != before:
            self._schedule_save()

    @abstractmethod
    def call_when_saved(self, done: SaveDone) -> None:
        """Call `done` when all acknowledgements made before this call are durable, but not before this call returns."""

    async def wait_until_saved(self) -> None:
        """Return when all acknowledgements made before this call are durable. Raises `BrokerError`."""
        saved: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def complete(error: BrokerError | None) -> None:
            if saved.done():  # the caller was cancelled
                return
            if error is None:
                saved.set_result(None)
            else:
                saved.set_exception(error)

        self.call_when_saved(complete)
        await saved

    @abstractmethod
    async def move_to(self, position: Position) -> None:
        """Acknowledge everything up to this position, and nothing after it: a seek. Return when that is durable."""

    @abstractmethod
    def _schedule_save(self) -> None:
        """Have the changes saved soon, also if no caller waits for it."""


class TransientCursor(Cursor):
    """A cursor in memory only: of a reader, or of another subscription that is not durable."""

    __slots__ = ()

    @property
    def saved_mark_delete(self) -> Position:
        return self._state.mark_delete

    def call_when_saved(self, done: SaveDone) -> None:
        asyncio.get_running_loop().call_soon(done, None)

    async def move_to(self, position: Position) -> None:
        self._state.move_to(position)

    def _schedule_save(self) -> None:
        """Save nothing."""
