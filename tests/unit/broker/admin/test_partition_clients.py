"""How the producers and consumers of partitions are merged."""

from __future__ import annotations

from magnetar_broker.admin.partition_clients import merge_consumers, merge_producers
from magnetar_protos.admin_pb2 import ConsumerStats, ProducerStats, Rates, SubscriptionStats, TopicStats


def _producer(name: str, messages: int, *, partial: bool) -> ProducerStats:
    return ProducerStats(
        producer_name=name, partial=partial, received=Rates(messages=messages), properties={"of": name}
    )


def test_producers_are_merged_by_name_or_order() -> None:
    parts = [
        TopicStats(producers=[_producer("a-1", 1, partial=False), _producer("p", 10, partial=True)]),
        TopicStats(producers=[_producer("p", 20, partial=True), _producer("a-2", 2, partial=False)]),
        TopicStats(producers=[_producer("a-3", 4, partial=False), _producer("b-3", 8, partial=False)]),
    ]
    merged = merge_producers(parts, 5000)
    found = {(one.producer_name, one.received.messages, dict(one.properties).get("of")) for one in merged}
    assert found == {("", 7, None), ("p", 30, "p"), ("", 8, None)}
    assert [one.received.messages for one in merge_producers(parts, 1)] == [7]


def test_consumers_are_merged_by_name() -> None:
    parts = [
        SubscriptionStats(
            consumers=[ConsumerStats(consumer_name="c", permits=5, last_flow_ms=9, connected_since_ms=4)]
        ),
        SubscriptionStats(
            consumers=[
                ConsumerStats(consumer_name="c", permits=7, last_flow_ms=8, connected_since_ms=3, blocked_by="why"),
                ConsumerStats(consumer_name="d"),
            ]
        ),
    ]
    first, second = merge_consumers(parts, 5000)
    assert (first.permits, first.last_flow_ms, first.connected_since_ms, first.blocked_by) == (12, 9, 3, "why")
    assert second.consumer_name == "d"
    assert len(merge_consumers(parts, 1)) == 1
