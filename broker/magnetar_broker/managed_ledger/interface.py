"""What producers, subscriptions and cursors see of a topic's log. `ManagedLedger` is the implementation.

    producers ──append──► Log ──read──► subscriptions ──acknowledge──► Cursor
                           ▲                                             │
                           └───────────────── trim ◄─────────────────────┘

The log of a non-persistent topic (topics/non_persistent) has an entry only until its subscriptions were offered it.

A log and its cursors belong to one owner of the topic. If either detects another owner, or can't exclude one, it calls
`on_lost`, once, and raises `TopicUnloaded` from then on. The topic is unloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from magnetar_broker.managed_ledger.append_queue import AppendDone
from magnetar_broker.managed_ledger.chunk_search import MessageEnds
from magnetar_broker.managed_ledger.entry_cache import EntryCache
from magnetar_broker.managed_ledger.ledger_list import LedgerList
from magnetar_broker.managed_ledger.log_entry import LogEntry, NewEntry
from magnetar_broker.managed_ledger.lost_entries import LostEntries
from magnetar_broker.position import Position
from magnetar_wire.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar_broker.errors import TopicUnloaded
    from magnetar_broker.managed_ledger.lease_rules import Lease
    from magnetar_broker.managed_ledger.managed_ledger import ManagedLedgerStats
    from magnetar_protos.managed_ledger_pb2 import TopicEpoch

__all__ = ["Log", "LogPositions", "TopicLeases", "TopicLog"]


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

    @property
    def cache(self) -> EntryCache:
        """The broker's cache of entries."""

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


class TopicLeases(Protocol):
    """The leases of readers that read a topic's ledgers from the bookies."""

    @property
    def any_active(self) -> bool: ...

    @property
    def has_lapsed(self) -> bool:
        """Whether a lease was not renewed in time, and is still recorded."""

    @property
    def lapsed(self) -> int:
        """The number of leases that were not renewed in time since the topic was opened."""

    def list_active(self) -> Sequence[tuple[Lease, float]]:
        """Return each active lease, and the seconds that are left of it."""

    async def remove_lapsed(self) -> None: ...


class TopicLog(Log, Protocol):
    """What a loaded topic of any kind has as its log. `ManagedLedger` has more: `Topic.managed_ledger`."""

    # Called after entries became readable.
    on_appended: Callable[[], object] | None
    # Called once, when the broker has lost the topic or can't write it.
    on_lost: Callable[[TopicUnloaded], object] | None

    @property
    def ledger_list(self) -> LedgerList: ...

    @property
    def lost_entries(self) -> LostEntries: ...

    @property
    def leases(self) -> TopicLeases: ...

    @property
    def owner_epoch(self) -> bytes:
        """The token that the topic's node has while this broker owns the topic."""

    @property
    def waiting_for(self) -> str:
        """Why appends wait; empty: they don't, or for nothing but the bookies' answers."""

    @property
    def last_time_ms(self) -> int:
        """The broker time of the last accepted entry, in ms since 1970; 0: there was none."""

    @property
    def topic_epoch(self) -> TopicEpoch | None:
        """The epoch that `change_topic_epoch` stored last."""

    async def change_topic_epoch(self, choose: Callable[[], TopicEpoch | None]) -> None:
        """Store the epoch that `choose` returns when the change begins; None: change nothing. Raises `BrokerError`."""

    async def read_first_partition_epoch(self) -> int | None:
        """Return the epoch number that the topic's first partition has; None: it has none, or it can't be known. Raises
        `BrokerError`."""

    async def check_current(self) -> None:
        """Check that no other broker has opened the topic. Raises `BrokerError`."""

    def check_not_terminated(self) -> None:
        """Raises `BrokerError`."""

    def stats(self) -> ManagedLedgerStats: ...

    async def read_last_readable(self) -> LogEntry | None:
        """Return the last entry that can be read, or None. Raises `BrokerError`."""

    async def find_ends(self, chunk: LogEntry) -> MessageEnds | None:
        """Return the ends of a chunk's message, as far as it is stored up to there (chunk_search.py). None: they were
        not found. Raises `BrokerError`."""

    def tick(self) -> None:
        """Do what is due. Called every second or so."""

    @property
    def closed_ledgers(self) -> int: ...

    @property
    def has_ledgers_to_delete(self) -> bool: ...

    def may_trim(self, up_to: Position | None) -> bool:
        """Whether `trim` would delete something."""

    async def trim(self, up_to: Callable[[], Position | None]) -> bool:
        """Delete what is not needed. Return whether something was deleted. Raises `TopicUnloaded`."""

    async def close(self) -> None:
        """Accept no more appends, wait for those in flight, and close. May be called again."""

    def abandon(self) -> None:
        """Stop at once. The outcome of pending appends is unknown."""
