"""The statistics of a busy topic over HTTP, with a stock producer and consumer and the SDK's.

The names are those of Pulsar 4.0.7's answer. With MAGNETAR_TEST_PULSAR_URL the test runs on another server, without the
SDK's clients.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import pulsar
import pytest
from pulsar import ConsumerType

import magnetar
from magnetar.admin import Admin
from tests.running import GENEROUS_S
from tests.stock_clients import LONG_MS, StockServer, topic, until

pytest_plugins = ["tests.stock_fixtures"]
pytestmark = pytest.mark.slow


def words(text: str) -> set[str]:
    return set(text.split())


TOPIC_NAMES: Final = words("""
    abortedTxnCount averageMsgSize backlogQuotaLimitSize backlogQuotaLimitTime backlogSize bytesInCounter
    bytesOutCounter bytesOutInternalCounter committedTxnCount compaction deduplicationStatus
    delayedMessageIndexSizeInBytes earliestMsgPublishTimeInBacklogs lastOffloadFailureTimeStamp lastOffloadLedgerId
    lastOffloadSuccessTimeStamp msgChunkPublished msgInCounter msgOutCounter msgRateIn msgRateOut msgThroughputIn
    msgThroughputOut nonContiguousDeletedMessagesRanges offloadedStorageSize oldestBacklogMessageAgeSeconds
    ongoingTxnCount ownerBroker publishRateLimitedTimes publishers replication storageSize subscriptions
    systemTopicBytesInCounter waitingPublishers
""")
PUBLISHER_NAMES: Final = words("""
    accessMode address averageMsgSize chunkedMessageRate clientVersion connectedSince metadata msgRateIn msgThroughputIn
    producerId producerName supportsPartialProducer
""")
SUBSCRIPTION_NAMES: Final = words("""
    allowOutOfOrderDelivery backlogSize blockedSubscriptionOnUnackedMsgs bytesOutCounter chunkedMessageRate consumers
    consumersAfterMarkDeletePosition delayedMessageIndexSizeInBytes dispatchThrottledBytesEventsByBrokerLimit
    dispatchThrottledBytesEventsBySubscriptionLimit dispatchThrottledBytesEventsByTopicLimit
    dispatchThrottledMsgEventsByBrokerLimit dispatchThrottledMsgEventsBySubscriptionLimit
    dispatchThrottledMsgEventsByTopicLimit drainingHashesClearedTotal drainingHashesCount drainingHashesUnackedMessages
    durable earliestMsgPublishTimeInBacklog filterAcceptedMsgCount filterProcessedMsgCount filterRejectedMsgCount
    filterRescheduledMsgCount isDurable isReplicated lastAckedTimestamp lastConsumedFlowTimestamp lastConsumedTimestamp
    lastExpireTimestamp lastMarkDeleteAdvancedTimestamp messageAckRate msgBacklog msgBacklogNoDelayed msgDelayed
    msgInReplay msgOutCounter msgRateExpired msgRateOut msgRateRedeliver msgThroughputOut
    nonContiguousDeletedMessagesRanges replicated subscriptionProperties totalMsgExpired type unackedMessages
""")
CONSUMER_NAMES: Final = words("""
    address availablePermits avgMessagesPerEntry blockedConsumerOnUnackedMsgs bytesOutCounter chunkedMessageRate
    clientVersion connectedSince consumerName drainingHashesClearedTotal drainingHashesCount
    drainingHashesUnackedMessages lastAckedTime lastAckedTimestamp lastConsumedFlowTimestamp lastConsumedTime
    lastConsumedTimestamp messageAckRate metadata msgOutCounter msgRateOut msgRateRedeliver msgThroughputOut
    unackedMessages
""")
# Left out by Magnetar, whose cursors are stored in another way: nonContiguousDeletedMessagesRangesSerializedSize.


def ask(server: StockServer, path: str) -> Any:
    with urllib.request.urlopen(f"{server.http_url}/admin/v2/{path}", timeout=GENEROUS_S) as answer:
        return json.load(answer)


def test_a_busy_topic_shows_pulsars_names_and_exact_numbers(server: StockServer, client: pulsar.Client) -> None:
    """ADM-1, WIRE-2"""
    name = topic("busy")
    path = f"persistent/public/default/{name.rpartition('/')[2]}/stats"
    consumer = client.subscribe(
        name, "shared", ConsumerType.Shared, consumer_name="eats", properties={"ck": "cv"}, receiver_queue_size=100
    )
    idle = client.subscribe(name, "idle", ConsumerType.Failover, receiver_queue_size=1)
    producer = client.create_producer(
        name, producer_name="feeds", properties={"pk": "pv"}, batching_enabled=True, batching_max_publish_delay_ms=5_000
    )
    for number in range(5):
        producer.send_async(b"%d" % number, lambda *_: None)
    producer.flush()
    producer.send(b"alone", ordering_key="k")
    messages = [consumer.receive(LONG_MS) for _ in range(6)]
    consumer.acknowledge(messages[5])  # the second entry: a hole

    def find(wanted: Callable[[Any], bool]) -> Any:
        found: list[Any] = []

        def is_wanted() -> bool:
            found[:] = [ask(server, path)]
            return wanted(found[0])

        until(is_wanted, "the statistics show it")
        return found[0]

    stats = find(lambda stats: stats["subscriptions"]["shared"]["msgBacklog"] == 1)
    assert not TOPIC_NAMES - set(stats)
    assert (stats["msgInCounter"], stats["storageSize"] > 0, stats["backlogSize"]) == (6, True, stats["storageSize"])
    (publisher,) = stats["publishers"]
    assert not PUBLISHER_NAMES - set(publisher)
    assert (publisher["producerName"], publisher["metadata"], publisher["accessMode"]) == (
        "feeds",
        {"pk": "pv"},
        "Shared",
    )
    shared, idling = stats["subscriptions"]["shared"], stats["subscriptions"]["idle"]
    for one in (shared, idling):
        assert not SUBSCRIPTION_NAMES - set(one)
        (shown,) = one["consumers"]
        assert not CONSUMER_NAMES - set(shown)
        assert (one["isDurable"], one["durable"]) == (True, True)
        assert shown["clientVersion"].startswith("Pulsar-CPP-v")
        assert shown["address"].startswith("/127.0.0.1:")
    assert (shared["type"], idling["type"], idling["activeConsumerName"]) == (
        "Shared",
        "Failover",
        idle.consumer_name(),
    )
    assert publisher["clientVersion"] == shared["consumers"][0]["clientVersion"]
    assert (shared["msgOutCounter"], shared["unackedMessages"], shared["nonContiguousDeletedMessagesRanges"]) == (
        6,
        5,
        1,
    )
    eats = shared["consumers"][0]
    assert (eats["consumerName"], eats["metadata"], eats["unackedMessages"]) == ("eats", {"ck": "cv"}, 5)
    assert eats["availablePermits"] == 94
    assert 0 < shared["lastConsumedFlowTimestamp"] <= shared["lastConsumedTimestamp"] <= shared["lastAckedTimestamp"]
    assert (idling["msgBacklog"], idling["msgBacklogNoDelayed"], idling["lastAckedTimestamp"]) == (2, 2, 0)
    for message in messages[:5]:
        consumer.acknowledge(message)
    shared = find(lambda stats: stats["subscriptions"]["shared"]["msgBacklog"] == 0)["subscriptions"]["shared"]
    assert (shared["unackedMessages"], shared["nonContiguousDeletedMessagesRanges"]) == (0, 0)
    assert ask(server, f"{path}?excludePublishers=true&excludeConsumers=true")["publishers"] == []
    if server.process is not None:
        _check_clients_of_the_sdk(server.process.service_url, name, find)
    for one in (consumer, idle, producer):
        one.close()


def _check_clients_of_the_sdk(url: str, name: str, find: Callable[[Callable[[Any], bool]], Any]) -> None:
    with ExitStack() as stack:
        client = stack.enter_context(magnetar.Client(url))
        admin = stack.enter_context(Admin(url))
        client.create_producer(name, producer_name="native", properties={"sdk": "1"}).send(b"7")
        client.subscribe(name, "native", magnetar.ConsumerType.Exclusive, consumer_name="reads")
        stats = find(lambda stats: "native" in stats["subscriptions"])
        publisher = next(one for one in stats["publishers"] if one["producerName"] == "native")
        (consumer,) = stats["subscriptions"]["native"]["consumers"]
        version = f"Magnetar-Python-v{magnetar.__version__}"
        assert (publisher["clientVersion"], consumer["clientVersion"]) == (version, version)
        assert publisher["metadata"] == {"sdk": "1"}
        assert stats["subscriptions"]["native"]["type"] == "Exclusive"
        assert stats["subscriptions"]["native"]["activeConsumerName"] == "reads"
        same = admin.topics.stats(name)
        assert same.received.messages == stats["msgInCounter"] == 7
        assert same.backlog_bytes == stats["backlogSize"] > 0
        assert {one.client_version for one in same.producers} == {one["clientVersion"] for one in stats["publishers"]}
