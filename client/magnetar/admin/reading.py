"""How a topic's log is read past its broker: places in it, and plans of what lies between two of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

__all__ = ["LogPlace", "NamespaceLease", "NextMessage", "Piece", "PieceFragment", "Plan"]


class NextMessage(NamedTuple):
    """The place of a message, or of the one that will come there. Places of one topic are in the order of its log.

    `(0, 0, 0)` is before everything that there is.
    """

    ledger_id: int
    entry_id: int
    # Messages of that entry's batch in front of it.
    batch_index: int = 0


_BEFORE_ALL: Final = NextMessage(0, 0, 0)


@dataclass(frozen=True, slots=True)
class LogPlace:
    incarnation: str
    place: NextMessage
    # False: what all have acknowledged may be deleted at any time.
    retained: bool


@dataclass(frozen=True, slots=True)
class PieceFragment:
    """From this entry on, up to the next fragment, slot i is `bookies[i]`."""

    first_entry_id: int
    bookies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of entries of one ledger, all of which may be read."""

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
    """What there is from `start` to `stop`, and who has it."""

    incarnation: str
    # What was asked for, or the first message that there still is, if that is behind it.
    start: NextMessage
    # There may be more behind it.
    stop: NextMessage
    pieces: Sequence[Piece]
    # Addresses by the bookies' ids, as they are or were last; empty: it has not been seen.
    bookies: Mapping[str, str]
    messages: int
    bytes: int
    # The topic is another incarnation than was asked for, and nothing was planned.
    other_incarnation: bool
    # What was asked for begins in what was deleted, and is lost up to `start`.
    begins_in_deleted: bool
    # Of the whole log: its first message, where it ends, and how many messages lie between `stop` and there.
    first: NextMessage
    end: NextMessage
    messages_behind: int
    # By the broker's wall clock; 0: no lease was asked for.
    lease_until_ms: int
    retained: bool
    # What lies right in front of `start`, the nearest last.
    before: Sequence[Piece] = ()
    # It ended where it did since what comes next would have passed a limit.
    at_limit: bool = False
    # What was right in front of `before`, or of `start` if it is empty, was deleted; told where `before` is.
    deleted_before: bool = False
    # Where a message may have begun that was not whole at `start`: what is kept from here on is all that is needed.
    needed_from: NextMessage = _BEFORE_ALL
    # Messages before `first` were deleted.
    trimmed: bool = False
    # Of the whole log: the index that its next message will have.
    end_index: int = 0


@dataclass(frozen=True, slots=True)
class NamespaceLease:
    """Each topic that is made in a namespace, with a name that begins with the prefix, gets a lease of this id."""

    name_prefix: str
    # As `admin.reading.end_namespace_lease` takes it.
    lease_id: bytes
    lease_ms: int
    holder: str
