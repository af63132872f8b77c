"""What the parts of a topic know of one another: the log and the cursors in it.

    producers ──append──► Log ──read──► subscriptions ──acknowledge──► Cursor
                           ▲                                             │
                           └───────────────── trim ◄─────────────────────┘

`ManagedLedger` is the log, and `CursorTable` holds the cursors. Both belong to one broker's life of the topic: when
either finds that another broker has taken over, or that it can't tell any more, it calls `lost` once, refuses all that
follows with `TopicUnloaded`, and the topic is given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from magnetar_broker.managed_ledger.append_queue import AppendDone
from magnetar_broker.managed_ledger.log_entry import LogEntry, NewEntry
from magnetar_broker.managed_ledger.position import Position
from magnetar_wire.topic_name import TopicName

__all__ = ["Log"]


class Log(Protocol):
    """A topic's entries, in order, over all its ledgers."""

    @property
    def name(self) -> TopicName: ...

    @property
    def incarnation(self) -> str:
        """The topic's; another one under the same name has another."""

    @property
    def floor(self) -> int:
        """Ledgers of this incarnation have higher ids; those up to here say nothing of it."""

    @property
    def before_first(self) -> Position:
        """Right before the first entry that there still is, or the first that there will be."""

    @property
    def last(self) -> Position:
        """The last entry that may be read; `before_first` where there is none."""

    @property
    def next_index(self) -> int:
        """The index of the next message: as many messages as the topic has ever taken."""

    def append(self, entries: Sequence[NewEntry], done: AppendDone) -> int:
        """Stores the entries behind all others, with the broker's part in front of each, and then calls `done`.

        Never raises. Returns how many of them were taken, from the first on. Why the next one was not is told to
        `done`, when all before it is decided; those behind it are passed over. Who goes on to append what comes behind
        may have that stored.
        """

    @property
    def pending_bytes(self) -> int:
        """The memory of entries that are appended and not decided."""

    def first_after(self, position: Position) -> Position:
        """The first entry behind it that there still is; of a position at or behind `last`, the one that will be next,
        as far as that is known."""

    def ledger_end(self, ledger_id: int) -> int | None:
        """The last entry of a closed ledger that is on the list, -1: it has none; None: it is open, or not there."""

    def next_ledger(self, ledger_id: int) -> int | None:
        """The one behind a ledger that is on the list; None: there is none, or the one that was named is not there."""

    def entries_between(self, after: Position, up_to: Position) -> int:
        """How many there still are behind `after`, up to and with `up_to`."""

    async def read(self, start: Position, max_entries: int, max_bytes: int) -> list[LogEntry]:
        """Entries at or behind `start`, in order, up to `last`: at least one, if there is one; else none.

        Raises `BrokerError`.
        """

    def read_nowait(self, start: Position, max_entries: int, max_bytes: int) -> list[LogEntry] | None:
        """The same, at once, if its first entry is at hand: as many as are at hand; none where `read` would return
        none; None where it has to be waited for. This is how a subscription at the log's end gets what is new in the
        turn in which it became readable."""

    async def read_at(self, positions: Sequence[Position]) -> list[LogEntry | None]:
        """These, in the order in which they are named; None for what there is no more."""

    async def find_first_at_time(self, time_ms: int) -> Position:
        """The first entry that a broker took at this time or later; behind `last` where there is none."""
