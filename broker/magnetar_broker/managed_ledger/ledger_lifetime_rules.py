"""Decides when the current ledger of a topic is closed, and when a closed ledger may be deleted.

Storage is freed by whole ledgers, so a ledger must end: when it holds enough, or is old (`RollRule`). A full ledger is
not closed before it has reached a minimum age, so that a busy topic does not get too many ledgers.

A closed ledger may be deleted when no durable subscription needs it and it is not retained.

- **Needed**: a durable subscription has not acknowledged all of its entries, durably.
- **Retained by a policy** (`deletable_by_policy`): the topic has a retention policy, neither bound of which is
  exceeded. The bound of size is exceeded if the log is as large, or larger, without this ledger and those before it:
  so at least that size is retained, of which the ledgers that are needed, and the current one, are a part.
- **Retained without a subscription** (`deletable_ledgers`): the topic has no retention policy, the ledger was written
  while the topic had no durable subscription, so perhaps nobody could read it yet, and neither bound of
  `RetentionWithoutSubscription` is exceeded. The size is that of the retained ledgers, from this one on.

The time of a ledger begins when it is closed, by the clock of the broker that closes it.

Which ledgers were written without a durable subscription follows from one number, `LedgerList.unsubscribed_up_to`:

- While a topic has no durable subscription, all of its ledgers count, also those written before the last subscription
  was deleted.
- When the first durable subscription is created, the number becomes the id of the last ledger of the list, the open
  one included. It is durable in the topic's node before the cursor is. While the topic has a durable subscription,
  ledgers up to this number count, whatever the subscription acknowledges: it may begin at the latest message. Ledgers
  behind it hold only entries that the subscription has needed from the first one on.

The number grows only. A crash between the two writes leaves a topic without a subscription, and all ledgers count.

Ledgers are deleted from the front only. A retained ledger also retains the ledgers behind it, as a lease does. Each
topic is checked every second, so a check looks at the ledgers that it yields, and at few others.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from magnetar_broker.managed_ledger.ledger_list import LedgerList
from magnetar_broker.position import LATEST, Position

__all__ = [
    "NO_RETENTION",
    "RetentionPolicy",
    "RetentionWithoutSubscription",
    "RollRule",
    "deletable_by_policy",
    "deletable_ledgers",
]

_ledger_id: Final = attrgetter("ledger_id")


@dataclass(frozen=True, slots=True)
class RollRule:
    max_entries: int
    max_bytes: int
    min_age_s: float
    max_age_s: float

    def find_limits(self, age_s: float) -> tuple[int, int]:
        """Return the number of entries, and of bytes, from which on a ledger of this age is due to be closed."""
        if age_s >= self.max_age_s:
            return 0, 0
        if age_s >= self.min_age_s:
            return self.max_entries, self.max_bytes
        return sys.maxsize, sys.maxsize


@dataclass(frozen=True, slots=True)
class RetentionWithoutSubscription:
    # None: no bound.
    time_ms: int | None
    max_bytes: int | None

    def is_over(self, age_ms: int, retained_bytes: int) -> bool:
        """Return whether the oldest of the retained ledgers, of this age, is not retained any more. `retained_bytes` is
        the size of all of them."""
        if self.time_ms is not None and max(0, age_ms) >= self.time_ms:
            return True
        return self.max_bytes is not None and retained_bytes > self.max_bytes


NO_RETENTION: Final = RetentionWithoutSubscription(0, None)


def deletable_ledgers(
    ledger_list: LedgerList, acknowledged: Position | None, retention: RetentionWithoutSubscription, now_ms: int
) -> Iterator[int]:
    """Yield the ids of the ledgers that may be deleted, from the front.

    `acknowledged` is the position up to which all durable subscriptions have acknowledged everything; None: the topic
    has no durable subscription.
    """

    ledgers = ledger_list.ledgers
    unsubscribed = len(ledgers)
    if acknowledged is not None:
        unsubscribed = bisect_right(ledgers, ledger_list.unsubscribed_up_to, key=_ledger_id)
    # As `bytes_before`: without the ledgers behind those that were written without a subscription.
    end = ledgers[unsubscribed - 1].bytes_up_to if unsubscribed else 0
    for at, ledger in enumerate(ledger_list.closed_up_to(LATEST if acknowledged is None else acknowledged)):
        if at < unsubscribed and not retention.is_over(now_ms - ledger.closed_ms, end - ledger.bytes_before):
            return
        yield ledger.ledger_id


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    # None: no bound. 0: nothing is retained.
    time_ms: int | None
    min_bytes: int | None

    @property
    def retains(self) -> bool:
        """Whether anything is retained."""
        return self.time_ms != 0 and self.min_bytes != 0

    def is_over(self, age_ms: int, bytes_left: int) -> bool:
        """Return whether a ledger of this age is not retained any more. `bytes_left`: the size of the log without it
        and those before it."""
        if self.time_ms is not None and max(0, age_ms) >= self.time_ms:
            return True
        return self.min_bytes is not None and bytes_left >= self.min_bytes


def deletable_by_policy(
    ledger_list: LedgerList, acknowledged: Position | None, policy: RetentionPolicy, now_ms: int
) -> Iterator[int]:
    """Yield the ids of the ledgers that may be deleted, from the front, of a topic that has a retention policy.
    `acknowledged`: as for `deletable_ledgers`."""
    end = ledger_list.ledgers[-1].bytes_up_to if ledger_list.ledgers else 0
    for ledger in ledger_list.closed_up_to(LATEST if acknowledged is None else acknowledged):
        if not policy.is_over(now_ms - ledger.closed_ms, end - ledger.bytes_up_to):
            return
        yield ledger.ledger_id
