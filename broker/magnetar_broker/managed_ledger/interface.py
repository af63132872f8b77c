"""What producers, subscriptions and cursors see of a topic's log. `ManagedLedger` is the implementation.

    producers ──append──► Log ──read──► subscriptions ──acknowledge──► Cursor
                           ▲                                             │
                           └───────────────── trim ◄─────────────────────┘

A log and its cursors belong to one owner of the topic. If either detects another owner, or can't exclude one, it calls
`on_lost`, once, and raises `TopicUnloaded` from then on. The topic is unloaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from magnetar_broker.managed_ledger.append_queue import AppendDone
from magnetar_broker.managed_ledger.log_entry import LogEntry, NewEntry
from magnetar_broker.position import Position
from magnetar_wire.topic_name import TopicName

__all__ = ["Log", "LogPositions"]


class LogPositions(Protocol):
    """The positions that a log has: all that the state of a cursor needs of it."""

    @property
    def before_first(self) -> Position:
        """The position before the first entry, or before the first that will be appended."""

    @property
    def last(self) -> Position:
        """The last readable entry; `before_first` if there is none."""

    def first_after(self, position: Position) -> Position:
        """Return the first entry after the position. At or after `last`: the position of the next entry, as far as it
        is known."""

    def ledger_end(self, ledger_id: int) -> int | None:
        """Return the last entry id of a closed ledger in the list, -1 if it is empty; None: it is open or not in the
        list."""

    def next_ledger(self, ledger_id: int) -> int | None:
        """Return the ledger after this one in the list; None: there is none, or this one is not in the list."""

    def entries_between(self, after: Position, up_to: Position) -> int:
        """Return the number of entries after `after`, up to and including `up_to`."""


class Log(LogPositions, Protocol):
    """A topic's entries, in order, in all of its ledgers."""

    @property
    def name(self) -> TopicName: ...

    @property
    def incarnation(self) -> str:
        """The topic's incarnation. A topic that is created later under the same name has another one."""

    @property
    def floor(self) -> int:
        """A ledger id: all ledgers of this incarnation have higher ids."""

    @property
    def is_terminated(self) -> bool:
        """Whether no entry is ever appended any more."""

    @property
    def next_index(self) -> int:
        """The index of the next message: the number of messages that the topic has ever accepted."""

    def append(self, entries: Sequence[NewEntry], done: AppendDone) -> int:
        """Store the entries, with broker metadata in front of each, and then call `done`.

        Raises nothing. Returns the number of accepted entries, from the first on. `done` gets the error of the next one
        when all entries before it are decided; the others are ignored. Entries of a later call may be stored, so a
        producer whose entry is refused must stop.
        """

    @property
    def pending_bytes(self) -> int:
        """The memory of pending entries."""

    async def read(self, start: Position, max_entries: int, max_bytes: int) -> list[LogEntry]:
        """Read entries from `start` on, up to `last`: at least one, unless there is none. Raises `BrokerError`."""

    def read_nowait(self, start: Position, max_entries: int, max_bytes: int) -> list[LogEntry] | None:
        """Return cached entries from `start` on, like `read`; None: the first one is not cached. So a subscription at
        the end of the log gets new entries in the turn of the event loop in which they become readable."""

    async def read_at(self, positions: Sequence[Position], max_bytes: int | None = None) -> list[LogEntry | None]:
        """Read these entries, in this order; None for each that does not exist any more. With `max_bytes`, which counts
        entries that are not cached, the positions ascend, and those of the first entries are read: at least one."""

    async def find_first_at_time(self, time_ms: int) -> Position:
        """Return the first entry with this broker time or a later one; the position after `last` if there is none."""
