"""The place of a message in a topic's log, or of the one that will come there: where a range of it begins or ends.

One place has several names: behind a batch's last message is before the first of the next entry, and behind a ledger's
last entry is before the next ledger's first. They are in the log's order all the same, with nothing between them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from magnetar_broker.managed_ledger.ledger_list import LedgerList
from magnetar_broker.managed_ledger.position import EARLIEST, Position

__all__ = ["BEFORE_ALL", "MessagePosition", "find_end", "find_first", "is_deleted"]


class MessagePosition(NamedTuple):
    ledger_id: int
    entry_id: int
    # Messages of the entry's batch in front of it.
    batch_index: int = 0

    @property
    def position(self) -> Position:
        return Position(self.ledger_id, self.entry_id)

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}:{self.batch_index}"


# Whatever there is comes behind it, and nothing was lost: it is what somebody says who has read nothing yet.
BEFORE_ALL: Final = MessagePosition(0, 0, 0)


def find_end(log: LedgerList) -> MessagePosition:
    """Right behind the last message that may be read. It never falls, and stays while nothing is appended, whichever
    ledgers come and go meanwhile."""
    if log.last.entry_id >= 0:
        return MessagePosition(*log.last.next)
    if log.trimmed_up_to != EARLIEST:
        return MessagePosition(*log.trimmed_up_to.next)
    # All ledgers that it will ever have are above.
    return MessagePosition(log.floor + 1, 0)


def find_first(log: LedgerList) -> MessagePosition:
    """The first message that there is; where there is none, the end."""
    first = log.at_or_after(EARLIEST)
    return find_end(log) if first is None else MessagePosition(*first)


def is_deleted(log: LedgerList, place: MessagePosition) -> bool:
    """What was deleted reached beyond it. Right behind the last entry that was deleted nothing is lost."""
    if place == BEFORE_ALL or log.trimmed_up_to == EARLIEST:
        return False
    return place < MessagePosition(*log.trimmed_up_to.next)
