"""Positions in a topic's log, and plans for bulk reads between two of them that bypass the broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

__all__ = ["LogPosition", "MessagePosition", "NamespaceLease", "Piece", "PieceFragment", "Plan"]


class MessagePosition(NamedTuple):
    """The position of a message, or of one that will be stored there. Positions of one topic have the order of its log.

    `(0, 0, 0)` is before all messages.
    """

    ledger_id: int
    entry_id: int
    # Number of messages of that entry's batch before it.
    skip_messages: int = 0


_BEFORE_ALL: Final = MessagePosition(0, 0, 0)


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A position in the log of one incarnation of a topic."""

    incarnation: str
    position: MessagePosition
    # False: acknowledged messages may be deleted at any time.
    retained: bool


@dataclass(frozen=True, slots=True)
class PieceFragment:
    """From this entry on, up to the next fragment, slot i is `bookies[i]`."""

    first_entry_id: int
    bookies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive entries of one ledger, all of which may be read."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    # Messages of the first entry that are before the range; and how many of the last are in it, from its first on; 0:
    # all.
    skip_messages: int
    stop_after_messages: int
    bytes: int
    messages: int
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    fragments: tuple[PieceFragment, ...]
    # The last fragment is that of a ledger which is not closed: an entry that bookies lack may still reach them.
    open: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The entries from `start` to `stop`, and the bookies that store them."""

    incarnation: str
    # The requested start, or the first message that is still stored, if that is after it.
    start: MessagePosition
    # More messages may follow.
    stop: MessagePosition
    pieces: Sequence[Piece]
    # The last known addresses, by the bookies' ids; empty: the bookie is not known.
    bookies: Mapping[str, str]
    messages: int
    bytes: int
    # The topic has another incarnation than the requested one, and nothing was planned.
    other_incarnation: bool
    # The requested start was deleted: messages between it and `start` are lost.
    begins_in_deleted: bool
    # Of the whole log: its first message, its end, and the number of messages between `stop` and the end.
    first: MessagePosition
    end: MessagePosition
    messages_behind: int
    # By the broker's wall clock; 0: no lease was requested.
    lease_until_ms: int
    retained: bool
    # The pieces right before `start`, the nearest last.
    before: Sequence[Piece] = ()
    # It ended before the next message or entry, which would have exceeded a limit.
    at_limit: bool = False
    # What was right before `before`, or before `start` if it is empty, was deleted; set if `before` was requested.
    deleted_before: bool = False
    # Where a message may begin that is not complete at `start`: a reader needs nothing before this position.
    needed_from: MessagePosition = _BEFORE_ALL
    # Messages before `first` were deleted.
    trimmed: bool = False
    # Of the whole log: the index that its next message will have.
    end_index: int = 0


@dataclass(frozen=True, slots=True)
class NamespaceLease:
    """A lease on a namespace: each topic created in it, with a name that begins with the prefix, gets a lease of this
    id."""

    name_prefix: str
    # As `admin.reading.end_namespace_lease` takes it.
    lease_id: bytes
    lease_ms: int
    holder: str
