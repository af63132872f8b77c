"""What the parts of a topic know of one another: the log and the cursors in it.

    producers ──append──► Log ──read──► subscriptions ──acknowledge──► Cursor
                           ▲                                             │
                           └───────────────── trim ◄─────────────────────┘

`ManagedLedger` is the log, and `CursorTable` holds the cursors. Both belong to one broker's life of the topic: when
either finds that another broker has taken over, or that it can't tell any more, it calls `lost` once, refuses all that
follows with `TopicUnloaded`, and the topic is given up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from magnetar_broker.managed_ledger.append_queue import AppendDone
from magnetar_broker.managed_ledger.log_entry import LogEntry, NewEntry
from magnetar_broker.managed_ledger.position import Position
from magnetar_wire.topic_name import TopicName

__all__ = ["Cursor", "CursorTable", "EntriesOf", "Log", "MessagesOf", "Unopened"]

# Entries of one ledger: its id, the first and the last.
EntriesOf = tuple[int, int, int]
# Some messages of one batch: where it is, which (bit i: message i), and how many it has.
MessagesOf = tuple[Position, int, int]


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


class Cursor(Protocol):
    """A subscription's place: everything up to `mark_delete` is acknowledged, and some of what follows.

    Changes count at once; `saved` tells when they have become durable. A cursor that is not durable saves nothing.
    """

    name: str
    durable: bool
    properties: Mapping[str, str]
    # Why saving takes long, if it does; else empty.
    waiting_for: str

    @property
    def moves(self) -> int:
        """One more with each `move_to`, as durable as that. A cursor that is made begins with a number of its own."""

    @property
    def take_overs(self) -> int:
        """How often it went from one consumer to another; another broker knows it as it was when something was saved
        last."""

    def taken_over(self) -> None:
        """Once more: written down with what is saved next."""

    @property
    def mark_delete(self) -> Position: ...

    @property
    def has_holes(self) -> bool:
        """Something behind `mark_delete` is acknowledged, or may be; False: nothing is, not even of a batch."""

    @property
    def saved_mark_delete(self) -> Position:
        """What is durable of it, and will never be asked for again. Of one that is not durable: `mark_delete`."""

    def acknowledged(self, position: Position) -> bool:
        """The entry is done, whole."""

    def acknowledged_messages(self, position: Position) -> int:
        """Which of the batch's messages are, bit by bit, if it is not done; 0: none, or it is."""

    def first_open_after(self, position: Position) -> Position:
        """The first place behind it that is not acknowledged. It may be one that has no entry (any more, or yet)."""

    def acknowledge(self, entries: Iterable[EntriesOf], messages: Sequence[MessagesOf] = ()) -> list[Position]:
        """Returns the batches among `messages` that are done by now, whole. What the log has not is passed over.

        Raises `BrokerError`, and then nothing of it counts: a batch's size is not what it was said to be before, or
        the bits of batches take more than they may.
        """

    def acknowledge_up_to(self, position: Position, messages: int = 0, batch_size: int = 0) -> None:
        """Everything up to the entry; or, with `messages`, up to that entry and those messages in it.

        Raises what `acknowledge` raises.
        """

    def open_entries(self) -> int:
        """How many entries of the log are not acknowledged."""

    async def saved(self) -> None:
        """Returns when all that was acknowledged before this call is durable. Raises `BrokerError`."""

    async def move_to(self, position: Position) -> None:
        """A seek: everything up to it is acknowledged, nothing behind it; durable when this returns."""


class Unopened(Protocol):
    """A durable cursor that is not opened."""

    name: str
    properties: Mapping[str, str]
    # All up to here is acknowledged; perhaps more is.
    place: Position

    @property
    def reason(self) -> str:
        """Why it is not there."""

    @property
    def damaged(self) -> bool:
        """It can't be read any more, and stays so until it is replaced or deleted."""


class CursorTable(Protocol):
    """The cursors of one topic."""

    def get(self, name: str) -> Cursor | None:
        """A durable one."""

    def durable(self) -> Sequence[Cursor]: ...

    def names(self) -> Collection[str]:
        """Of the durable ones, those that are not opened among them."""

    def unopened(self) -> Sequence[Unopened]: ...

    async def wait_until_open(self, name: str, *, wait_again: bool = True) -> None:
        """Return when the cursor is open, or there is none. Raises `BrokerError`: it can't be opened now, and is
        retried; `DamagedCursor`: it can't be opened. Without `wait_again` only the first attempt is waited for, and at
        most for some seconds."""

    async def replace(self, name: str, mark_delete: Position) -> Cursor:
        """Moves a cursor that is not opened, and opens it there. Raises `BrokerError`, SUBSCRIPTION_NOT_FOUND where no
        such cursor is unopened."""

    async def create(self, name: str, mark_delete: Position, properties: Mapping[str, str]) -> Cursor:
        """A durable one. Raises `BrokerError`, ALREADY_EXISTS among them."""

    def create_transient(self, name: str, mark_delete: Position) -> Cursor:
        """One that is not durable; whoever has it just lets it go."""

    async def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        """Replaces a durable one's properties, durably. Raises `BrokerError`."""

    async def delete(self, name: str) -> None:
        """With its ledger."""

    def slowest_saved(self) -> Position | None:
        """Up to here no durable cursor asks for anything any more; None: there is no durable cursor."""

    def log_was_trimmed(self) -> None:
        """Ledgers have left the log: cursors in them move on, and what they knew of them is dropped."""
