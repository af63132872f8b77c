"""The producers and consumers of a partitioned topic: those of its partitions, merged as Pulsar's brokers do.

- Producers whose library can open a producer on some of the partitions only (`partial`) are merged by their names. All
  others have another name on each partition, so they are merged by their order, and have no name.
- Consumers of a subscription are merged by their names, which are the same on all partitions.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_broker.admin.key_shared_stats import DRAINING
from magnetar_protos import admin_pb2 as pb

__all__ = ["add_rates", "merge_consumers", "merge_producers"]


def merge_producers(parts: Sequence[pb.TopicStats], most: int) -> list[pb.ProducerStats]:
    """Return the producers of all partitions, up to that number."""
    merged: dict[str | int, pb.ProducerStats] = {}
    for part in parts:
        number = 0
        for one in part.producers:
            key: str | int = one.producer_name if one.partial else number
            number += not one.partial
            total = merged.get(key)
            if total is None:
                if len(merged) >= most:
                    continue
                total = merged[key] = pb.ProducerStats(partial=one.partial)
                if one.partial:
                    total.CopyFrom(one)
                    total.ClearField("received")
                    total.chunks_per_s = 0
            add_rates(total.received, one.received)
            total.chunks_per_s += one.chunks_per_s
    return list(merged.values())


def merge_consumers(parts: Sequence[pb.SubscriptionStats], most: int) -> list[pb.ConsumerStats]:
    """Return the consumers of a subscription on all partitions, up to that number."""
    merged: dict[str, pb.ConsumerStats] = {}
    for part in parts:
        for one in part.consumers:
            total = merged.get(one.consumer_name)
            if total is None:
                if len(merged) < most:
                    merged[one.consumer_name] = total = pb.ConsumerStats()
                    total.CopyFrom(one)
                continue
            add_rates(total.delivered, one.delivered)
            for name in (
                "permits",
                "unacknowledged_messages",
                "redelivered_messages",
                "acknowledged_entries",
                *DRAINING,
            ):
                setattr(total, name, getattr(total, name) + getattr(one, name))
            for name in ("redelivered_per_s", "acknowledged_per_s", "chunks_per_s"):
                setattr(total, name, getattr(total, name) + getattr(one, name))
            for name in ("last_flow_ms", "last_delivered_ms", "last_acknowledged_ms"):
                setattr(total, name, max(getattr(total, name), getattr(one, name)))
            total.connected_since_ms = min(total.connected_since_ms, one.connected_since_ms)
            total.blocked_on_unacknowledged |= one.blocked_on_unacknowledged
            total.blocked_by = total.blocked_by or one.blocked_by
            if one.HasField("reason") and not total.HasField("reason"):
                total.reason.CopyFrom(one.reason)
    return list(merged.values())


def add_rates(total: pb.Rates, one: pb.Rates) -> None:
    total.messages += one.messages
    total.entries += one.entries
    total.bytes += one.bytes
    total.messages_per_s += one.messages_per_s
    total.bytes_per_s += one.bytes_per_s
