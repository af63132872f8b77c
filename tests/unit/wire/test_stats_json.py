"""Statistics and positions as JSON: what a broker writes, and what the Python admin reads of Pulsar's answers."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar_protos.admin_pb2 import ExpireRequest, PartitionedStatsAnswer, SubscriptionRequest, TopicStats
from magnetar_protos.broker_pb2 import StartAt, StartMessageId
from magnetar_wire.admin.http.route import Route
from magnetar_wire.admin.json.positions import PositionPart, StartPart
from magnetar_wire.admin.json.stats import PARTITIONED_STATS, TOPIC_STATS
from magnetar_wire.admin.json.values import InvalidJson

LARGEST = 2**63 - 1
# Parts of an answer of Pulsar 4.0.7.
OF_PULSAR: dict[str, Any] = {
    "msgRateIn": 0.5,
    "bytesInCounter": 212,
    "msgInCounter": 7,
    "averageMsgSize": "NaN",
    "storageSize": 212,
    "backlogSize": -1,
    "oldestBacklogMessageAgeSeconds": -1,
    "publishers": [
        {
            "accessMode": "WaitForExclusive",
            "producerName": "p1",
            "address": "/127.0.0.1:58072",
            "connectedSince": "2026-11-26T15:47:19.467895756Z",
            "clientVersion": "Pulsar-CPP-v4.2.0",
            "metadata": {"pp": "1"},
        }
    ],
    "subscriptions": {
        "fail": {
            "msgRateOut": "NaN",
            "msgBacklog": -3,
            "backlogSize": 212,
            "type": "Failover",
            "activeConsumerName": "c2",
            "consumers": [{"consumerName": "c2", "availablePermits": -7, "lastAckedTime": "1970-01-01T00:00:00Z"}],
            "durable": True,
        },
        "idle": {"type": "None", "consumers": [], "subscriptionProperties": {}},
    },
}


def test_statistics_of_pulsar_are_read() -> None:
    """ADM-1: numbers that Pulsar does not know are -1, or a text."""
    stats = TopicStats()
    TOPIC_STATS.fill(stats, OF_PULSAR, "the answer")
    assert (stats.received.messages, stats.received.messages_per_s, stats.storage_bytes) == (7, 0.5, 212)
    assert stats.backlog_bytes == -1
    (producer,) = stats.producers
    assert (producer.address, producer.connected_since_ms) == ("127.0.0.1:58072", 1795708039468)
    assert producer.access_mode == "WaitForExclusive"
    assert (producer.client_version, dict(producer.properties)) == ("Pulsar-CPP-v4.2.0", {"pp": "1"})
    fail, idle = sorted(stats.subscriptions, key=lambda one: one.subscription)
    assert (fail.type, fail.active_consumer, fail.durable, fail.backlog_entries) == ("FAILOVER", "c2", True, 0)
    assert (fail.delivered.messages_per_s, fail.consumers[0].permits) == (0.0, -7)
    assert (idle.subscription, idle.type) == ("idle", "")
    with pytest.raises(InvalidJson, match="connectedSince"):
        TOPIC_STATS.fill(TopicStats(), {"publishers": [{"connectedSince": "yesterday"}]}, "the answer")


def test_statistics_are_read_as_they_were_written() -> None:
    """ADM-1"""
    answer = PartitionedStatsAnswer()
    TOPIC_STATS.fill(answer.stats, OF_PULSAR, "the answer")
    answer.stats.topic, answer.stats.partitions = "persistent://a/b/c", 1
    for stats in (answer.stats, answer.partitions.add()):
        stats.delivered.messages, stats.chunks, stats.backlog_bytes = 3, 1, 9
        stats.lost.add(ledger_id=1, entry_id=2, reason="no replica")
    answer.partitions[0].topic = "persistent://a/b/c-partition-0"
    written = PARTITIONED_STATS.to_json(answer)
    assert (written["metadata"], written["msgChunkPublished"]) == ({"partitions": 1, "deleted": False}, True)
    assert list(written["partitions"]) == ["persistent://a/b/c-partition-0"]
    read = PartitionedStatsAnswer()
    PARTITIONED_STATS.fill(read, written, "the answer")
    assert PARTITIONED_STATS.to_json(read) == written
    assert (read.stats.partitions, read.partitions[0].topic) == (1, "persistent://a/b/c-partition-0")


@pytest.mark.parametrize(
    ("value", "start"),
    [
        ({"ledgerId": -1, "entryId": -1}, StartAt(earliest=True)),
        ({"ledgerId": LARGEST, "entryId": LARGEST, "partitionIndex": -1}, StartAt(latest=True)),
        ("earliest", StartAt(earliest=True)),
        ("latest", StartAt(latest=True)),
        (
            {"ledgerId": 7, "entryId": 3},
            StartAt(message_id=StartMessageId(ledger_id=7, entry_id=3, batch_index=-1, inclusive=True)),
        ),
        (
            {"ledgerId": 7, "entryId": 3, "batchIndex": 2, "excluded": True},
            StartAt(message_id=StartMessageId(ledger_id=7, entry_id=3, batch_index=2)),
        ),
    ],
)
def test_positions_are_read_and_written(value: Any, start: StartAt) -> None:
    """SUB-9"""
    request, again = SubscriptionRequest(), SubscriptionRequest()
    StartPart().fill(request, value, "the body")
    assert request == SubscriptionRequest(start=start)
    StartPart().fill(again, StartPart().to_json(request), "the body")
    assert again == request


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        "first",
        [],
        {},
        {"ledgerId": 1},
        {"ledgerId": 1, "entryId": 2**63},
        {"ledgerId": True, "entryId": 1},
        {"ledgerId": 1, "entryId": -2},
        {"ledgerId": 1, "entryId": 1, "excluded": 1},
        {"ledgerId": 1, "entryId": 1, "partitionIndex": 2**31},
        {"ledgerId": 1, "entryId": 1, "properties": []},
    ],
)
def test_other_values_are_no_positions(value: Any) -> None:
    with pytest.raises(InvalidJson, match="the body"):
        StartPart(properties=True).fill(SubscriptionRequest(), value, "the body")


def test_a_position_names_its_partition() -> None:
    """SUB-9"""
    request = ExpireRequest()
    part = PositionPart("first_left")
    assert part.to_json(request) is None
    value = {"ledgerId": 7, "entryId": 3, "partitionIndex": 2, "batchIndex": 1, "excluded": True}
    part.fill(request, value, "the body")
    assert (request.partition, request.first_left.inclusive, part.to_json(request)) == (2, True, value)


def test_a_path_carries_a_nested_field_if_it_is_alone() -> None:
    route = Route("POST", "/subscription/{subscription}/resetcursor/{start.time_ms}")
    request = SubscriptionRequest()
    route.make_request(request, ["s", "-5"], "", None)
    assert request == SubscriptionRequest(subscription="s", start=StartAt(time_ms=-5))
    assert route.carries(request)
    assert route.write(request).target == "/subscription/s/resetcursor/-5"
    assert route.segments[-1] == "{time_ms}"
    assert not route.carries(SubscriptionRequest(subscription="s", start=StartAt(earliest=True)))
    assert not route.carries(SubscriptionRequest(subscription="s"))
