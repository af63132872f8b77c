"""Retry and dead letter topics, of each client on a real broker: of the SDK, synchronous and asyncio, over gRPC, and of
pulsar-client, which has dead letters alone, over Pulsar's protocol. Letters are read over both.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.broker.each_client import KINDS, LONG_MS, EachClient, each_client

_of_each_client = pytest.mark.parametrize("kind", KINDS)
_of_ours = pytest.mark.parametrize("kind", ["sync", "aio"])
_DLQ = "t-s-DLQ"


def _subscribe(made: EachClient, topic: str = "t", **options: Any) -> Any:
    """Subscribe to "s" with a policy of two redeliveries."""
    library = made.library
    policy = library.ConsumerDeadLetterPolicy(2, initial_subscription_name="first")
    given = {
        "consumer_type": library.ConsumerType.Shared,
        "dead_letter_policy": policy,
        "batch_index_ack_enabled": True,
    }
    delay = {"negative_ack_redelivery_delay_ms": 1 if made.is_ours else 100}
    return made.client.subscribe(topic, "s", **given | delay | options)


def _letters(made: EachClient, count: int, topic: str = _DLQ, subscription: str = "first") -> list[Any]:
    """Return the letters in the topic, as pulsar-client gets them."""
    import pulsar

    consumer = made.readers[1].subscribe(topic, subscription, pulsar.ConsumerType.Shared)
    found = [consumer.receive(LONG_MS) for _ in range(count)]
    consumer.close()
    return found


def _backlog(made: EachClient, topic: str, subscription: str = "s") -> int:
    stats = made.run(lambda: made.scene.admin.topics.stats(topic))
    return sum(one.backlog_entries for one in stats.subscriptions if one.subscription == subscription)


@_of_each_client
def test_a_message_that_is_refused_too_often_becomes_a_dead_letter(kind: str) -> None:
    """CON-8, CON-10: after 1 + 2 deliveries. It is acknowledged, and its letter has its key, payload, time and
    properties, and names its origin. The first subscription of the dead letter topic was there before."""
    with each_client(kind) as made:
        consumer = _subscribe(made)
        producer = made.readers[0].create_producer("t", batching_enabled=False)
        sent = producer.send(b"bad", {"own": "1"}, "key", "order", event_timestamp=77)
        producer.send(b"good")
        counts = []
        for _ in range(4):
            message = consumer.receive(LONG_MS)
            if message.data() == b"good":
                consumer.acknowledge(message)
            else:
                counts.append(message.redelivery_count())
                consumer.negative_acknowledge(message)
        assert counts == [0, 1, 2]
        (letter,) = _letters(made, 1)
        assert (letter.data(), letter.partition_key()) == (b"bad", "key")
        properties = letter.properties()
        assert properties["own"] == "1"
        assert properties["REAL_TOPIC"] == "persistent://public/default/t"
        if made.is_ours:
            assert (letter.ordering_key(), letter.event_timestamp()) == ("order", 77)
            assert properties["ORIGIN_MESSAGE_ID"] == f"{sent.ledger_id()}:{sent.entry_id()}:-1"
            assert properties["REAL_SUBSCRIPTION"] == "s"
        assert made.payloads(_DLQ) == [b"bad"]
        consumer.close()
        assert _backlog(made, "t") == 0


@_of_ours
def test_a_message_is_retried_until_it_is_a_dead_letter(kind: str) -> None:
    """CON-9, CON-10"""
    with each_client(kind) as made:
        consumer = _subscribe(made, enable_retry=True)
        sent = made.readers[0].create_producer("t").send(b"bad", {"own": "1"}, "key", "order", event_timestamp=77)
        for times in range(3):
            message = consumer.receive(LONG_MS)
            assert (message.data(), message.partition_key()) == (b"bad", "key")
            assert (message.ordering_key(), message.event_timestamp()) == ("order", 77)
            assert message.topic_name().endswith("t-s-RETRY" if times else "/t")
            assert message.properties().get("RECONSUMETIMES") == (str(times) if times else None)
            consumer.reconsume_later(message, 1, {"try": str(times)})
        (letter,) = _letters(made, 1)
        assert letter.properties() == {
            "own": "1",
            "try": "2",
            "REAL_TOPIC": "persistent://public/default/t",
            "REAL_SUBSCRIPTION": "s",
            "ORIGIN_MESSAGE_ID": f"{sent.ledger_id()}:{sent.entry_id()}:-1",
            "ORIGIN_MESSAGE_IDY_TIME": f"{sent.ledger_id()}:{sent.entry_id()}:-1",
            "RECONSUMETIMES": "3",
            "DELAY_TIME": "1",
        }
        consumer.close()
        for topic in ("t", "t-s-RETRY"):
            assert _backlog(made, topic) == 0
