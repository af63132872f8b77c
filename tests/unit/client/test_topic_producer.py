"""Producers of partitioned topics: routing, and opening all partitions or none."""

from __future__ import annotations

from typing import Any

import pytest

import magnetar
from magnetar import PartitionsRoutingMode, exceptions
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.hashing import HashingScheme, partition_of
from tests.unit.client.fake_broker import FakeBroker
from tests.unit.client.scene import sync_scene

NAME = "persistent://public/default/p"


def counts(broker: FakeBroker, partitions: int) -> list[int]:
    return [len(broker.topic(f"p-partition-{index}").payloads()) for index in range(partitions)]


def test_round_robin_changes_partitions_between_batches() -> None:
    """PRD-6: the default. Messages without a key go to one partition until a batch is closed."""
    with sync_scene() as made, made.client() as client:
        made.broker.partitioned[NAME] = 3
        producer = client.create_producer("p", batching_max_messages=10, batching_max_publish_delay_ms=60_000)
        for _ in range(90):
            producer.send_async(b"x")
        producer.flush()
        assert made.on_loop(lambda broker: counts(broker, 3)) == [30, 30, 30]
        sizes = made.on_loop(lambda broker: [len(each) for each in broker.topic("p-partition-0").messages()])
        assert sizes == [10, 10, 10]
        ids = [producer.send(b"y") for _ in range(3)]
        assert sorted(each.partition() for each in ids) == [0, 1, 2]
        assert {each.topic_name() for each in ids} == {f"{NAME}-partition-{index}" for index in range(3)}
        assert producer.topic() == NAME


def test_a_single_partition() -> None:
    """PRD-6"""
    with sync_scene() as made, made.client() as client:
        made.broker.partitioned[NAME] = 4
        producer = client.create_producer("p", message_routing_mode=PartitionsRoutingMode.SinglePartition)
        assert len({producer.send(b"x").partition() for _ in range(12)}) == 1


@pytest.mark.parametrize("mode", [PartitionsRoutingMode.SinglePartition, PartitionsRoutingMode.RoundRobinPartition])
@pytest.mark.parametrize("scheme", list(HashingScheme))
def test_the_key_s_hash_selects_the_partition(mode: PartitionsRoutingMode, scheme: HashingScheme) -> None:
    """PRD-6, PRD-10: in every mode but custom. Messages of one key go to one partition."""
    with sync_scene() as made, made.client() as client:
        made.broker.partitioned[NAME] = 5
        producer = client.create_producer("p", message_routing_mode=mode, hashing_scheme=scheme)
        for number in range(20):
            key = f"key-{number % 7}"
            assert producer.send(b"x", partition_key=key).partition() == partition_of(key, 5, scheme)
        assert producer.send(b"x", partition_key=b"\x01").partition() == partition_of("AQ==", 5, scheme)


def test_a_custom_router() -> None:
    """PRD-6: it is called for every message, also for one with a key, and must return a partition."""
    with sync_scene() as made, made.client() as client:
        made.broker.partitioned[NAME] = 3

        def route(message: Any, partitions: int) -> int:
            assert message.partition_key() == "k"
            return int(message.data()) % partitions if message.properties() else 7

        producer = client.create_producer("p", message_router=route)
        for number in range(6):
            sent = producer.send(b"%d" % number, properties={"a": "b"}, partition_key="k")
            assert sent.partition() == number % 3
        with pytest.raises(exceptions.InvalidArgument, match="returned 7"):
            producer.send(b"1", partition_key="k")


def test_every_message_of_many_is_routed() -> None:
    """PRD-6: a key or a router selects the partition of each message; none joins another partition's open batch."""
    with sync_scene() as made, made.client() as client:
        made.broker.partitioned[NAME] = 3
        seen: list[bytes] = []

        def route(message: Any, partitions: int) -> int:
            seen.append(message.data())
            return len(seen) % partitions

        routed = client.create_producer("p", message_router=route)
        for _ in range(30):
            routed.send_async(b"x")
        routed.flush()
        assert made.on_loop(lambda broker: counts(broker, 3)) == [10, 10, 10]
        single = client.create_producer("p", message_routing_mode=PartitionsRoutingMode.SinglePartition)
        for number in range(30):
            single.send_async(b"keyed", partition_key=f"key-{number}")
            single.send_async(b"plain")
            single.send_async(b"plain")
        single.flush()
        plain = made.on_loop(
            lambda broker: [broker.topic(f"p-partition-{n}").payloads().count(b"plain") for n in range(3)]
        )
        assert sorted(plain) == [0, 0, 60]


def test_all_partitions_are_opened_or_none() -> None:
    with sync_scene() as made, made.client() as client:
        made.broker.partitioned[NAME] = 4
        made.on_loop(lambda broker: broker.problems.__setitem__(f"{NAME}-partition-2", ErrorCode.NOT_ALLOWED))
        with pytest.raises(exceptions.NotAllowedError, match="partition-2"):
            client.create_producer("p", producer_name="mine")
        made.until(lambda broker: not any(topic.producers for topic in broker.topics.values()), "all have left")
        made.on_loop(lambda broker: broker.problems.clear())
        producer = client.create_producer("p", producer_name="mine")
        names = made.on_loop(lambda broker: [list(topic.producers) for topic in broker.topics.values()])
        assert names == [["mine"]] * 4
        producer.close()


def test_lazily_opened_partitions() -> None:
    with sync_scene() as made, made.client() as client:
        made.broker.partitioned[NAME] = 3
        producer = client.create_producer("p", lazy_start_partitioned_producers=True)
        assert len(made.on_loop(lambda broker: broker.opened)) == 1
        assert producer.is_connected()
        assert {producer.send(b"x").partition() for _ in range(6)} == {0, 1, 2}
        names = made.on_loop(lambda broker: {opening.producer_name or "none" for opening in broker.opened})
        assert names == {"none", producer.producer_name()}
        producer.flush()
        producer.close()
        other = client.create_producer("p", lazy_start_partitioned_producers=True)
        other.close()
        opened = len(made.on_loop(lambda broker: broker.opened))
        for _ in range(3):
            with pytest.raises(exceptions.AlreadyClosed):
                other.send(b"no partition is opened for it")
        assert len(made.on_loop(lambda broker: broker.opened)) == opened


def test_pending_messages_are_limited_over_all_partitions() -> None:
    """PRD-1"""
    with sync_scene() as made, made.client() as client:
        made.broker.partitioned[NAME] = 2
        producer = client.create_producer("p", max_pending_messages_across_partitions=20, batching_max_messages=5)
        made.on_loop(lambda broker: broker.receipting.clear())
        sent = 0
        with pytest.raises(exceptions.ProducerQueueIsFull):
            while True:
                producer.send_async(b"x")
                sent += 1
        assert sent == 20
        made.on_loop(lambda broker: broker.receipting.set())
        producer.flush()


def test_a_partition_can_be_used_as_a_topic() -> None:
    with sync_scene() as made, made.client() as client:
        producer = client.create_producer("p-partition-1")
        assert producer.send(b"x").partition() == 1
        assert magnetar.MessageId.deserialize(producer.send(b"x").serialize()).partition() == 1
