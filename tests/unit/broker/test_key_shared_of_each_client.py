"""Key_Shared subscriptions of each client on a real broker: of the SDK, synchronous and asyncio, over gRPC, and of
pulsar-client over Pulsar's protocol.
"""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest

import magnetar
from magnetar_wire.hashing import key_shared_slot
from tests.unit.broker.each_client import KINDS, LONG_MS, EachClient, each_client

_of_each_client = pytest.mark.parametrize("kind", KINDS)
_KEYS = [f"key-{number}" for number in range(12)]
_SHORT_MS = 5


def _subscribe(made: EachClient, topic: str = "t", **options: Any) -> Any:
    library = made.library
    return made.client.subscribe(
        topic,
        "s",
        library.ConsumerType.KeyShared,
        **{"initial_position": library.InitialPosition.Earliest} | options,
    )


def _policy(made: EachClient, **options: Any) -> Any:
    return made.library.ConsumerKeySharedPolicy(**options)


def _sticky(made: EachClient, *ranges: tuple[int, int]) -> Any:
    return _policy(made, key_shared_mode=made.library.KeySharedMode.Sticky, sticky_ranges=list(ranges))


def _publish(made: EachClient, keys: list[str], topic: str = "t", **options: Any) -> None:
    """Publish a message for each key, which is numbered within its key."""
    numbers = dict.fromkeys(keys, 0)
    with made.readers[0].create_producer(topic, **{"batching_enabled": False} | options) as producer:
        for key in keys:
            producer.send_async(b"%d" % numbers[key], None, partition_key=key)
            numbers[key] += 1
        producer.flush()


class _Group:
    """The consumers of a subscription. Each message that they receive must be the next of its key, and no other
    consumer may have an unacknowledged one of that key."""

    def __init__(self, made: EachClient) -> None:
        self.made = made
        self.consumers: list[Any] = []
        # Consumer → the unacknowledged messages, by key.
        self.unacked: dict[Any, dict[str, list[Any]]] = {}
        self.next = dict.fromkeys(_KEYS, 0)

    def join(self) -> None:
        at_once: dict[str, Any] = {"ack_grouping_time_ms": 0} if self.made.is_ours else {}
        consumer = _subscribe(self.made, receiver_queue_size=20, **at_once)
        self.consumers.append(consumer)
        self.unacked[consumer] = {}

    def leave(self, consumer: Any) -> None:
        """What it has not acknowledged comes again."""
        consumer.close()
        self.consumers.remove(consumer)
        for key, messages in self.unacked.pop(consumer).items():
            if messages:
                self.next[key] = int(messages[0].data())

    def receive(self, consumer: Any) -> bool:
        try:
            message = consumer.receive(_SHORT_MS)
        except self.made.errors.Timeout:
            return False
        key = message.partition_key()
        holders = [one for one in self.consumers if self.unacked[one].get(key)]
        assert holders in ([], [consumer]), f"{key} is at two consumers"
        assert int(message.data()) == self.next[key], f"{key} is out of order"
        self.next[key] += 1
        self.unacked[consumer].setdefault(key, []).append(message)
        return True

    def acknowledge(self, consumer: Any) -> None:
        for messages in self.unacked[consumer].values():
            for message in messages:
                consumer.acknowledge(message)
            messages.clear()

    def keys(self, consumer: Any) -> set[str]:
        return {key for key, messages in self.unacked[consumer].items() if messages}


@_of_each_client
def test_a_key_is_at_one_consumer_and_in_order_while_consumers_join_and_leave(kind: str) -> None:
    """(SUB-5, SUB-6, CHK-35)"""
    chances = random.Random(5)
    with each_client(kind) as made:
        group = _Group(made)
        group.join()
        count = 10
        _publish(made, _KEYS * count)
        changes = iter([15, 30, 45, 60, 75, 90])
        change, received = next(changes), 0
        while any(number < count for number in group.next.values()) or any(map(group.keys, group.consumers)):
            consumer = chances.choice(group.consumers)
            received += group.receive(consumer)
            if not chances.randrange(4) or received > 110:
                group.acknowledge(consumer)
            if received >= change:
                change = next(changes, 2**31)
                if len(group.consumers) < 3 or chances.randrange(2):
                    group.join()
                else:
                    group.leave(chances.choice(group.consumers))
        assert received >= count * len(_KEYS)
        assert len(group.consumers) > 1


@_of_each_client
def test_keys_are_divided_among_consumers_and_messages_without_a_key_are_one(kind: str) -> None:
    """(SUB-5) The ordering key counts before the key."""
    with each_client(kind) as made:
        first, second = _subscribe(made), _subscribe(made)
        with made.readers[0].create_producer("t", batching_enabled=False) as producer:
            for number in range(40):
                ordering = {} if number % 2 else {"ordering_key": f"o{number % 8}"}
                producer.send(b"%d" % number, partition_key=f"k{number}", **ordering)
            for _ in range(10):
                producer.send(b"without")
        found: list[dict[str, int]] = [{}, {}]
        while sum(sum(mine.values()) for mine in found) < 50:
            for consumer, mine in zip((first, second), found, strict=True):
                try:
                    message = consumer.receive(_SHORT_MS)
                except made.errors.Timeout:
                    continue
                key = message.ordering_key() or message.partition_key() or "none"
                mine[key] = mine.get(key, 0) + 1
                consumer.acknowledge(message)
        assert not found[0].keys() & found[1].keys()
        assert len(found[0] | found[1]) == 20 + 4 + 1
        assert min(map(len, found)) > 1


@_of_each_client
def test_sticky_consumers_get_their_slots(kind: str) -> None:
    """(SUB-12) The worked example. One without ranges, or with an overlap, is refused, and the others go on."""
    keys = [*_KEYS, "Order-3459134"]
    with each_client(kind) as made:
        slots = {1: [(0, 16_383), (32_768, 49_151)], 2: [(16_384, 32_767), (49_152, 65_535)]}
        consumers = {number: _subscribe(made, key_shared_policy=_sticky(made, *slots[number])) for number in slots}
        with pytest.raises(Exception, match=r"slots|ConsumerAssign"):
            _subscribe(made, key_shared_policy=_sticky(made, (100, 200)))
        with pytest.raises(ValueError, match="sticky_ranges"):
            _policy(made, key_shared_mode=made.library.KeySharedMode.Sticky)
        _publish(made, keys)
        for number, consumer in consumers.items():
            expected = [key for key in keys if _is_in(slots[number], key)]
            assert expected
            assert ("Order-3459134" in expected) == (number == 1)
            messages = [consumer.receive(LONG_MS) for _ in expected]
            assert sorted(message.partition_key() for message in messages) == sorted(expected)


def _is_in(ranges: list[tuple[int, int]], key: str) -> bool:
    return any(first <= key_shared_slot(key.encode()) <= last for first, last in ranges)


@_of_each_client
def test_a_cumulative_acknowledgement_is_refused(kind: str) -> None:
    """(SUB-6)"""
    with each_client(kind) as made:
        consumer = _subscribe(made)
        _publish(made, ["a"])
        message = consumer.receive(LONG_MS)
        with pytest.raises(made.errors.CumulativeAcknowledgementNotAllowedError):
            consumer.acknowledge_cumulative(message)
        consumer.acknowledge(message)


@_of_each_client
def test_a_batch_of_several_keys_goes_whole_to_one_consumer(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """(SUB-13) The SDK warns of it once. With batches by key, each key goes to its consumer."""
    batched: Any = {"batching_enabled": True, "batching_max_publish_delay_ms": 3_600_000}
    with each_client(kind) as made, caplog.at_level(logging.WARNING, "magnetar"):
        consumers = [
            _subscribe(made, key_shared_policy=_sticky(made, *ranges)) for ranges in _ranges_of_keys(_KEYS[:2])
        ]
        for _ in range(2):
            _publish(made, _KEYS[:2], **batched)
        messages = [consumers[0].receive(LONG_MS) for _ in range(4)]
        assert [message.partition_key() for message in messages] == _KEYS[:2] * 2
        warned = [record.getMessage() for record in caplog.records if "batch of several keys" in record.getMessage()]
        assert len(warned) == (1 if made.is_ours else 0)
        assert all("BatchingType.KeyBased" in text for text in warned)
        caplog.clear()
        _publish(made, _KEYS[:2] * 2, **batched, batching_type=magnetar.BatchingType.KeyBased)
        for key, consumer in zip(_KEYS, consumers, strict=False):
            assert [consumer.receive(LONG_MS).partition_key() for _ in range(2)] == [key, key]
        assert not caplog.records


def _ranges_of_keys(keys: list[str]) -> list[list[tuple[int, int]]]:
    """Return the ranges of two consumers: the first has the slot of the first key alone."""
    slot = key_shared_slot(keys[0].encode())
    return [[(slot, slot)], [(0, slot - 1), (slot + 1, 65_535)]]


@_of_each_client
def test_keys_on_a_non_persistent_topic(kind: str) -> None:
    """(TOP-5)"""
    topic = "non-persistent://public/default/n"
    with each_client(kind) as made:
        low = _subscribe(made, topic, key_shared_policy=_sticky(made, (0, 32_767)))
        high = _subscribe(made, topic, key_shared_policy=_sticky(made, (32_768, 65_535)))
        _publish(made, _KEYS * 2, topic)
        for consumer, is_low in ((low, True), (high, False)):
            expected = [key for key in _KEYS if (key_shared_slot(key.encode()) < 32_768) is is_low]
            messages = [consumer.receive(LONG_MS) for _ in range(2 * len(expected))]
            for key in expected:
                assert [int(one.data()) for one in messages if one.partition_key() == key] == [0, 1]
