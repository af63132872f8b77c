"""Rules of backlog quotas, which are Pulsar's: what counts, when a quota is reached, and how much is evicted.

The backlog of a topic is that of the durable subscription that is furthest behind: all entries after its mark-delete
position, also those that it has acknowledged individually, because they are stored as long as the others. Subscriptions
that are not durable don't count: they hold back no deletion. Neither does the cursor of deduplication, which no
consumer can advance; nor is anything evicted from it.

Eviction goes down to 90 % of the quota, so that not each check has to evict again. All subscriptions behind that
position are moved to it: the slowest one first.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.ledger_list import ListedLedger
from magnetar_broker.managed_ledger.stored_sizes import count_bytes_after, find_position_before_bytes
from magnetar_broker.position import Position
from magnetar_broker.settings.backlog_quotas import Quota
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.topic_name import TopicName

__all__ = [
    "Excess",
    "QuotaKind",
    "Slowest",
    "find_eviction_end",
    "find_slowest",
    "is_reached",
    "left_by_eviction",
]

_LEFT_PERCENT: Final = 90


class QuotaKind(enum.Enum):
    # The values are those of the label `quota_type` of Pulsar's metrics.
    SIZE = "size"
    AGE = "time"


class Slowest(NamedTuple):
    """The durable subscription that is furthest behind."""

    subscription: str
    mark_delete: Position


def find_slowest(mark_deletes: Iterable[tuple[str, Position]]) -> Slowest | None:
    return min(
        (Slowest(*one) for one in mark_deletes),
        key=lambda one: one.mark_delete,
        default=None,
    )


def is_reached(kind: QuotaKind, quota: Quota, value: float) -> bool:
    """Return whether a backlog of that many bytes, or whose oldest message is that many seconds old, is at its quota.

    A quota of 0 bytes is reached by each topic; one of 0 seconds is none.
    """
    if kind is QuotaKind.SIZE:
        return quota.limit >= 0 and value >= quota.limit
    return quota.limit > 0 and value > quota.limit


def left_by_eviction(quota: Quota) -> int:
    """Return the bytes, or seconds, of the backlog that eviction leaves."""
    return quota.limit * _LEFT_PERCENT // 100


def find_eviction_end(ledgers: Sequence[ListedLedger], quota: Quota) -> Position:
    """Return the position up to which an eviction by size goes.

    It leaves the fewest entries that are not below what it may leave, like Pulsar; unless one entry is so large that
    the backlog would still be at its quota: then it leaves that one out, too.
    """
    end = find_position_before_bytes(ledgers, left_by_eviction(quota))
    if end.entry_id < 0 or count_bytes_after(ledgers, end) * 100 == quota.limit * _LEFT_PERCENT:
        return end
    return end.previous if count_bytes_after(ledgers, end.previous) < quota.limit else end


@dataclass(frozen=True, slots=True)
class Excess:
    """A backlog that is at its quota."""

    kind: QuotaKind
    quota: Quota
    # Empty: the topic has none, and a quota of 0 bytes.
    subscription: str
    value: int

    @property
    def is_evicted(self) -> bool:
        return self.quota.policy == "consumer_backlog_eviction"

    def describe(self) -> str:
        if self.kind is QuotaKind.SIZE:
            has, quota = f"a backlog of {self.value:,} bytes", f"the quota is {self.quota.limit:,} bytes"
            names = "policy backlog_quota_size, or backlog_quota_default_limit_bytes"
        else:
            has = f"a message of {self.value:,} s in its backlog"
            quota = f"the quota is {self.quota.limit:,} s"
            names = "policy backlog_quota_age, or backlog_quota_default_limit_second"
        return f"subscription {self.subscription!r} has {has}, and {quota} ({names}: {self.quota.policy})"

    def to_error(self, topic: TopicName) -> BrokerError:
        """Return the error for producers."""
        is_hold = self.quota.policy == "producer_request_hold"
        return BrokerError(
            ErrorCode.BACKLOG_QUOTA_HOLD if is_hold else ErrorCode.BACKLOG_QUOTA_EXCEEDED,
            f"{topic} accepts no messages: {self.describe()}. Consume or skip messages, or raise the quota",
        )
