"""One consumer of many topics: of a list, and of those that match a pattern, which come and go.

Of each client on a real broker: of the SDK, synchronous and asyncio, over gRPC, and of pulsar-client over Pulsar's
protocol.

pulsar-client 3.13 asks for the list of topics every minute, and has no option for that. Its watch of topics that appear
is tested in tests/integration/test_pulsar_consumers.py, and Java's, which is notified, in tests/java/Finding.java.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest

from magnetar_wire.topic_name import TopicName
from tests.unit.broker.each_client import KINDS, LONG_MS, EachClient, each_client

_of_each_client = pytest.mark.parametrize("kind", KINDS)
_of_ours = pytest.mark.parametrize("kind", ["sync", "aio"])
_NS = "persistent://public/default/"
_SOON = {"topic_list_watch_interval_seconds": 0.02}


def _send(made: EachClient, topic: str, *contents: bytes) -> None:
    producer = made.client.create_producer(topic)
    for content in contents:
        producer.send(content)
    producer.close()


def _receive(consumer: Any, count: int) -> dict[str, list[bytes]]:
    """Return the contents by topic, without the namespace."""
    found: dict[str, list[bytes]] = {}
    for _ in range(count):
        message = consumer.receive(LONG_MS)
        found.setdefault(message.topic_name().rpartition("/")[2], []).append(message.data())
        consumer.acknowledge(message)
    return found


def _earliest(made: EachClient) -> dict[str, Any]:
    return {"initial_position": made.library.InitialPosition.Earliest}


def _count_topics(made: EachClient, consumer: Any) -> str:
    """Return the text that has the number of the consumer's topics."""
    with pytest.raises(made.errors.Timeout) as raised:
        consumer.receive(5)
    return str(raised.value)


def _subscriptions(made: EachClient, topic: str) -> list[str]:
    stats = made.run(lambda: made.scene.admin.topics.stats(topic))
    return sorted(one.subscription for one in stats.subscriptions)


@_of_each_client
def test_a_list_and_a_pattern_of_topics(kind: str) -> None:
    """SUB-8: a list, and a regular expression within one namespace. A partitioned topic counts as one, with all of its
    partitions. `unsubscribe` and `seek` are of all topics.

    pulsar-client 3.13 does not call `unsubscribe` here: tests/stock_clients.py says why. Java's client does, in
    tests/java/Finding.java.
    """
    with each_client(kind, **_SOON) as made:
        made.run(lambda: made.scene.admin.topics.create_partitioned("a-b", 2))
        for topic in ("a-a", "a-b", "a-b", "b-a"):
            _send(made, topic, b"0")
        library = made.library
        listed = made.client.subscribe(["a-a", "a-b"], "list", **_earliest(made))
        matched = made.client.subscribe(re.compile(_NS + "a-.*"), "pattern", **_earliest(made))
        for consumer in (listed, matched):
            found = _receive(consumer, 3)
            assert {TopicName.parse(topic).base.local_name for topic in found} == {"a-a", "a-b"}
        if made.is_ours:  # pulsar-client's seek of several topics takes a time alone, and its message ids none
            matched.seek(library.MessageId.earliest)
            assert sum(map(len, _receive(matched, 3).values())) == 3
        assert _subscriptions(made, "a-b-partition-1") == ["list", "pattern"]
        if made.is_ours:
            matched.unsubscribe()
            listed.unsubscribe()
            assert [_subscriptions(made, topic) for topic in ("a-a", "a-b-partition-0", "b-a")] == [[], [], []]


@_of_ours
def test_topics_that_appear_join_from_their_first_message(kind: str) -> None:
    """SUB-8: promptly, and from their first message, also if it was published before the consumer noticed the topic; so
    do new partitions. A topic that was there before begins at the latest message. System topics and others don't."""
    with each_client(kind, topic_list_watch_interval_seconds=0.2) as made:
        _send(made, "a-old", b"before")
        consumer = made.client.subscribe(_NS + "a-.*", "s", is_pattern_topic=True)
        made.run(lambda: made.scene.admin.topics.create_partitioned("a-p", 1))
        for number in range(5):
            _send(made, f"a-{number}", b"1", b"2")
        _send(made, "b-0", b"no")
        _send(made, "a-p", b"1")
        _send(made, "a-old", b"after")
        expected = {f"a-{number}": [b"1", b"2"] for number in range(5)}
        assert _receive(consumer, 12) == expected | {"a-p-partition-0": [b"1"], "a-old": [b"after"]}
        made.run(lambda: made.scene.admin.topics.update_partitioned("a-p", 3))
        _send(made, "a-p", b"2", b"3", b"4")
        contents = [content for found in _receive(consumer, 3).values() for content in found]
        assert sorted(contents) == [b"2", b"3", b"4"]
        assert consumer.topic() == _NS + "a-.*"
        assert not consumer.has_reached_end_of_topic()


@_of_ours
def test_a_namespace_that_does_not_exist_is_named_in_the_log(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """SUB-8: once for each consumer, which waits: the namespace may be created. One that exists is not named."""
    with each_client(kind, **_SOON) as made:
        made.client.subscribe(re.compile("a-.*"), "s")
        made.client.subscribe(re.compile("public/missing/a-.*"), "s")
        made.client.subscribe(re.compile("nobody/default/b-.*"), "s")
        logged = [one.getMessage() for one in caplog.records if one.name == "magnetar"]
        warnings = [text for text in logged if "does not exist" in text]
        assert warnings == [
            "the namespace public/missing does not exist: the consumer of public/missing/a-.* waits until it is "
            "created, and has topics",
            "the namespace nobody/default does not exist: the consumer of nobody/default/b-.* waits until it is "
            "created, and has topics",
        ]


@_of_ours
def test_a_deleted_topic_leaves_and_joins_again_when_it_is_recreated(kind: str) -> None:
    """SUB-8: without an error, and the others go on. The consumer does not create it. Acknowledgements of messages that
    were received before have no effect."""
    with each_client(kind, **_SOON) as made:
        admin = made.scene.admin.topics
        _send(made, "a-1", b"1", b"2")
        _send(made, "a-2", b"1")
        consumer = made.client.subscribe(re.compile("a-.*"), "s", **_earliest(made))
        messages = [consumer.receive(LONG_MS) for _ in range(3)]
        made.run(lambda: admin.delete("a-1", force=True))
        while "the 1 topics" not in (text := _count_topics(made, consumer)):
            assert "the 2 topics" in text
        for message in messages:
            consumer.acknowledge(message)
            consumer.acknowledge(message.message_id())
        [deleted, *_] = [one for one in messages if one.topic_name().endswith("a-1")]
        with pytest.raises(made.errors.MagnetarException, match="a-1"):
            consumer.acknowledge(deleted, receipt=True)
        assert made.run(lambda: admin.list("public/default")) == [_NS + "a-2"]
        for content in (b"3", b"4"):
            _send(made, "a-1", content)
            assert _receive(consumer, 1) == {"a-1": [content]}
            made.run(lambda: admin.delete("a-1", force=True))
        consumer.unsubscribe()
        assert _subscriptions(made, "a-2") == []


@_of_ours
def test_a_topic_that_can_not_be_opened_is_retried_and_the_others_go_on(kind: str) -> None:
    """SUB-8. If another consumer has a topic exclusively when the pattern is subscribed to, that is refused (SUB-2)."""
    with each_client(kind, **_SOON) as made:
        consumer = made.client.subscribe(re.compile("a-.*"), "s")
        made.run(lambda: made.scene.admin.topics.create("b"))
        busy = made.client.subscribe("a-busy", "s", **_earliest(made))
        _send(made, "a-busy", b"busy")
        _send(made, "a-free", b"free")
        assert _receive(consumer, 1) == {"a-free": [b"free"]}
        with pytest.raises(made.errors.ConsumerBusy):
            made.client.subscribe(re.compile("a-.*"), "s")
        busy.close()
        assert _receive(consumer, 1) == {"a-busy": [b"busy"]}


@_of_ours
def test_changes_during_an_outage_are_noticed(kind: str) -> None:
    """SUB-8: the client watches again when its watch has broken."""
    with each_client(kind, **_SOON) as made:
        consumer = made.client.subscribe(re.compile("a-.*"), "s")
        store = made.scene.store
        assert store is not None
        made.run(lambda: made.scene.metadata.expire(store))
        made.until(lambda: made.scene.store is not store and made.scene.broker.session is not None, "another session")
        _send(made, "a-1", b"1")
        assert _receive(consumer, 1) == {"a-1": [b"1"]}


@_of_ours
def test_a_client_that_may_not_watch_polls(kind: str) -> None:
    """SUB-8: every `pattern_auto_discovery_period`."""
    with each_client(kind, max_topic_watchers_per_connection=1, **_SOON) as made:
        consumers = [
            made.client.subscribe(re.compile("a-.*"), name, pattern_auto_discovery_period=1) for name in ("s", "t")
        ]
        _send(made, "a-1", b"1")
        assert [_receive(consumer, 1) for consumer in consumers] == [{"a-1": [b"1"]}] * 2


@_of_ours
def test_what_a_pattern_means(kind: str) -> None:
    """SUB-8: modes of topics, expressions that RE2 does not support, and topics that are left out."""
    with each_client(kind, **_SOON) as made:
        library = made.library
        modes = library.RegexSubscriptionMode
        stored = made.client.subscribe(re.compile("T-(?!no).*", re.IGNORECASE), "s")
        volatile = made.client.subscribe(
            re.compile("non-persistent://public/default/t-.*"), "s", regex_subscription_mode=modes.NonPersistentOnly
        )
        policy = library.ConsumerDeadLetterPolicy(1)
        both = made.client.subscribe(
            re.compile("t-.*"),
            "all",
            library.ConsumerType.Shared,
            regex_subscription_mode=modes.AllTopics,
            dead_letter_policy=policy,
        )
        for topic in ("t-no", "t-1", "t-1-all-DLQ"):
            _send(made, topic, b"1")
        assert _receive(stored, 2) == {"t-1": [b"1"], "t-1-all-DLQ": [b"1"]}
        assert _receive(both, 2) == {"t-1": [b"1"], "t-no": [b"1"]}
        producer = made.client.create_producer("non-persistent://public/default/t-2")
        for consumer in (volatile, both):
            assert _send_until_received(made, producer, consumer) == "non-persistent://public/default/t-2"
        assert [_subscriptions(made, topic) for topic in ("t-1", "t-no", "t-1-all-DLQ")] == [
            ["all", "s"],
            ["all"],
            ["s"],
        ]


def _send_until_received(made: EachClient, producer: Any, consumer: Any) -> str:
    """Send to a topic that stores nothing until the consumer has joined it."""
    while True:
        producer.send(b"2")
        with suppress(made.errors.Timeout):
            name: str = consumer.receive(10).topic_name()
            return name
