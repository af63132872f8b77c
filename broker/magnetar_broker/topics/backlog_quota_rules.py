"""Rules of backlog quotas, as in Pulsar: what a backlog is, when it reaches its quota, and how much is evicted.

The backlog of a topic is the one of its slowest durable subscription: all entries after the mark-delete position. It
includes entries that were acknowledged individually, because they are stored as long as the others. Subscriptions that
are not durable have no backlog, because they do not prevent the deletion of ledgers. The cursor of deduplication has
none either: no consumer can advance it, and nothing is evicted from it.

An eviction leaves a backlog of 90 % of the quota, so that the next check need not evict again. It moves all
subscriptions that are further behind to one position, the slowest subscription first.
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
    "find_eviction_target",
    "find_slowest",
    "is_reached",
]

_TARGET_PERCENT: Final = 90


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
    """Return whether a backlog has reached its quota. `value`: its size in bytes, or the age in seconds of its oldest
    message.

    Every topic has reached a quota of 0 bytes. A quota of 0 seconds limits nothing.
    """
    if kind is QuotaKind.SIZE:
        return quota.limit >= 0 and value >= quota.limit
    return quota.limit > 0 and value > quota.limit


def find_eviction_target(quota: Quota) -> int:
    """Return the size in bytes, or the age in seconds, of the backlog that an eviction leaves."""
    return quota.limit * _TARGET_PERCENT // 100


def find_eviction_end(ledgers: Sequence[ListedLedger], quota: Quota) -> Position:
    """Return the position up to which an eviction by size goes.

    Like Pulsar, it evicts as many entries as it can without going below the target. If one entry is so large that the
    backlog would still have reached its quota, it evicts that one, too.
    """
    end = find_position_before_bytes(ledgers, find_eviction_target(quota))
    if end.entry_id < 0 or count_bytes_after(ledgers, end) * 100 == quota.limit * _TARGET_PERCENT:
        return end
    return end.previous if count_bytes_after(ledgers, end.previous) < quota.limit else end


@dataclass(frozen=True, slots=True)
class Excess:
    """A backlog that has reached its quota."""

    kind: QuotaKind
    quota: Quota
    # The slowest one. Empty: the topic has no subscription, and a quota of 0 bytes.
    subscription: str
    value: int

    @property
    def is_evicted(self) -> bool:
        """Whether messages are evicted. If not, the topic accepts no producers."""
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
