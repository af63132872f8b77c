"""The position of a message in a topic's log, also of a future one: where a range of messages begins or ends.

Several positions may mean the same: after a batch's last message is before the first message of the next entry, and
after a ledger's last entry is before the next ledger's first. They are in the order of the log, with nothing between
them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from magnetar_broker.managed_ledger.ledger_list import LedgerList
from magnetar_broker.position import EARLIEST, Position

__all__ = ["BEFORE_ALL", "MessagePosition", "find_end", "find_first", "is_deleted"]


class MessagePosition(NamedTuple):
    ledger_id: int
    entry_id: int
    # The number of messages before it in the entry's batch.
    skip_messages: int = 0

    @property
    def position(self) -> Position:
        """The position of its entry."""
        return Position(self.ledger_id, self.entry_id)

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}:{self.skip_messages}"


# The position of a reader that has read nothing yet: before all messages, and none of them counts as deleted.
BEFORE_ALL: Final = MessagePosition(0, 0, 0)


def find_end(ledger_list: LedgerList) -> MessagePosition:
    """Return the position after the last readable message. It never falls, and changes only by appends, not when
    ledgers are created or deleted."""
    if ledger_list.last.entry_id >= 0:
        return MessagePosition(*ledger_list.last.next)
    if ledger_list.trimmed_up_to != EARLIEST:
        return MessagePosition(*ledger_list.trimmed_up_to.next)
    # All of its ledgers will have higher ids.
    return MessagePosition(ledger_list.floor + 1, 0)


def find_first(ledger_list: LedgerList) -> MessagePosition:
    """Return the position of the first message, or the end if there is none."""
    first = ledger_list.at_or_after(EARLIEST)
    return find_end(ledger_list) if first is None else MessagePosition(*first)


def is_deleted(ledger_list: LedgerList, position: MessagePosition) -> bool:
    """Return whether messages after the position were deleted. After the last deleted entry none was."""
    if position == BEFORE_ALL or ledger_list.trimmed_up_to == EARLIEST:
        return False
    return position < MessagePosition(*ledger_list.trimmed_up_to.next)
