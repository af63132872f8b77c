"""Print statistics for people: first the numbers that show whether a topic is healthy, then its clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar_cli.messages.positions import format_message_id
from magnetar_cli.output import format_bytes, format_number, print_facts, print_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.admin import InternalStats, SlotRange, SubscriptionStats, TopicStats, Traffic

__all__ = [
    "SUBSCRIPTION_COLUMNS",
    "print_internal_stats",
    "print_subscription",
    "print_subscriptions",
    "print_topic_stats",
]

# Of a consumer; consistent hashing gives it about 100.
_MAX_RANGES = 3
SUBSCRIPTION_COLUMNS = ("subscription", "type", "backlog", "unacknowledged", "messages/s", "consumers", "waits for")


def print_topic_stats(stats: TopicStats) -> None:
    facts = [
        ("topic", stats.topic),
        ("served by", stats.owner_broker or f"one broker for each of {stats.partitions:,} partitions"),
    ]
    # Brokers of Pulsar report neither: what is stored would have come from nowhere.
    if stats.messages_ever or not stats.storage_bytes:
        facts.append(("messages ever", format_number(stats.messages_ever)))
    entries = f" in {format_number(stats.stored_entries)} entries"
    is_counted = stats.stored_entries or not stats.storage_bytes
    facts += [
        ("stored", format_bytes(stats.storage_bytes) + (entries if is_counted else "")),
        ("in", _format_traffic(stats.received)),
        ("out", _format_traffic(stats.delivered)),
    ]
    if stats.refused_entries or stats.failed_entries:
        facts.append(
            (
                "refused, failed",
                f"{format_number(stats.refused_entries)}, {format_number(stats.failed_entries)} entries",
            )
        )
    if stats.dropped_per_s or any(one.dropped_messages for one in stats.subscriptions):
        dropped = sum(one.dropped_messages for one in stats.subscriptions)
        facts.append(("dropped", f"{format_number(stats.dropped_per_s)} messages/s; {format_number(dropped)} messages"))
    if stats.chunks:
        facts.append(("chunks", format_number(stats.chunks)))
    if stats.waiting_producers:
        facts.append(("producers that wait", f"{format_number(stats.waiting_producers)}, for their turn"))
    if stats.waiting_for:
        facts.append(("publishing waits", stats.waiting_for))
    if stats.topic_epoch is not None:
        facts.append(("topic epoch", str(stats.topic_epoch)))
    if stats.deduplication_status not in ("", "Disabled"):
        facts.append(("deduplication", stats.deduplication_status.lower()))
    if stats.publish_limited_times:
        facts.append(("publish rate reached", f"{format_number(stats.publish_limited_times)} times"))
    if stats.evictions_by_size or stats.evictions_by_age:
        facts.append(("evictions by quotas", f"{stats.evictions_by_size} by size, {stats.evictions_by_age} by age"))
    facts += [("policy", text) for text in stats.not_in_effect]
    if stats.lost_entries:
        facts.append(("lost", f"{format_number(stats.lost_entries)} entries that no bookie stores"))
    damaged = [one.subscription for one in stats.subscriptions if one.damaged]
    if damaged:
        facts.append(("damaged", f"{', '.join(damaged)}: reset or delete these subscriptions"))
    print_facts(facts)
    if stats.producers:
        print()
        print_rows(
            ("producer", "access mode", "address", "messages/s", "messages"),
            [
                (one.producer_name, one.access_mode, one.address, one.received.messages_per_s, one.received.messages)
                for one in stats.producers
            ],
            as_json=False,
        )
    if stats.subscriptions:
        print()
        print_subscriptions(stats.topic, stats.subscriptions)


def _subscription_row(one: SubscriptionStats, *, is_persistent: bool) -> tuple[object, ...]:
    # A subscription of a non-persistent topic is never durable.
    is_reader = is_persistent and not one.durable
    return (
        one.subscription,
        f"{one.type}, a reader" if is_reader else one.type or "nobody",
        one.backlog_messages,
        one.unacknowledged_messages,
        one.delivered.messages_per_s,
        len(one.consumers),
        one.blocked_by,
    )


def print_subscriptions(topic: str, shown: Sequence[SubscriptionStats]) -> None:
    """Without the last column if none waits: brokers of Pulsar do not report why one does. A non-persistent topic has
    another column, of what was dropped."""
    is_persistent = not topic.startswith("non-persistent://")
    rows = [_subscription_row(one, is_persistent=is_persistent) for one in shown]
    count = len(SUBSCRIPTION_COLUMNS) - (not any(one.blocked_by for one in shown))
    columns, rows = SUBSCRIPTION_COLUMNS[:count], [row[:count] for row in rows]
    if not is_persistent:
        columns = (*columns, "dropped")
        rows = [(*row, one.dropped_messages) for row, one in zip(rows, shown, strict=True)]
    print_rows(columns, rows, as_json=False)


def print_subscription(topic: str, stats: SubscriptionStats) -> None:
    print_subscriptions(topic, [stats])
    if stats.expired_entries:
        print()
        print_facts([("expired entries", str(stats.expired_entries))])
    if stats.consumers:
        print()
        columns = ("consumer", "address", "messages/s", "unacknowledged", "permits", "redelivered", "waits for")
        rows = [
            (
                one.consumer_name,
                one.address,
                one.delivered.messages_per_s,
                one.unacknowledged_messages,
                one.permits,
                one.redelivered_messages,
                one.blocked_by,
            )
            for one in stats.consumers
        ]
        print_rows(columns, rows, as_json=False)
    if stats.key_shared_mode:
        print()
        _print_keys(stats)


def _print_keys(stats: SubscriptionStats) -> None:
    """Print which consumer has which slots of keys, and what the next consumers of slots that moved wait for."""
    order = ", out of order" if stats.allow_out_of_order_delivery else ""
    print_facts(
        [
            ("keys", f"{stats.key_shared_mode}{order}"),
            ("wait for consumers", f"{format_number(stats.to_be_redelivered)} entries"),
            ("batches of several keys", format_number(stats.mixed_batches)),
        ]
    )
    print()
    rows = [
        (one.consumer_name, _format_ranges(one.key_ranges), one.draining_slots, one.draining_entries)
        for one in stats.consumers
    ]
    print_rows(("consumer", "slots of keys", "draining slots", "their entries"), rows, as_json=False)


def _format_ranges(ranges: Sequence[SlotRange]) -> str:
    shown = ", ".join(f"{one.first:,} … {one.last:,}" for one in ranges[:_MAX_RANGES])
    more = len(ranges) - _MAX_RANGES
    return f"{shown} and {more:,} more" if more > 0 else shown


def print_internal_stats(topic: str, stats: InternalStats) -> None:
    facts = [
        ("topic", topic),
        ("state", stats.state),
        ("incarnation", stats.incarnation),
        ("last entry", format_message_id(stats.last)),
    ]
    if stats.lapsed_leases:
        facts.append(("lapsed leases", f"{format_number(stats.lapsed_leases)}, not renewed in time"))
    print_facts(facts)
    if stats.more_ledgers:
        print(f"and {stats.more_ledgers:,} older ledgers before these:")
    print_rows(
        ("ledger", "entries", "bytes", "closed"),
        [(str(one.ledger_id), one.entries, one.bytes, one.closed) for one in stats.ledgers],
        as_json=False,
    )
    if stats.cursors:
        print()
        print_rows(
            ("cursor", "acknowledged up to", "saved up to", "entries open"),
            [
                (
                    one.name,
                    format_message_id(one.mark_delete),
                    format_message_id(one.saved_mark_delete),
                    one.open_entries,
                )
                for one in stats.cursors
            ],
            as_json=False,
        )
    if stats.leases:
        print()
        print_rows(
            ("lease", "held by", "from ledger", "seconds left"),
            [(one.lease_id.hex(), one.holder, str(one.from_ledger_id), one.left_ms / 1000) for one in stats.leases],
            as_json=False,
        )


def _format_traffic(traffic: Traffic) -> str:
    return (
        f"{format_number(traffic.messages_per_s)} messages/s, {format_bytes(int(traffic.bytes_per_s))}/s; "
        f"{format_number(traffic.messages)} messages since it was loaded"
    )
