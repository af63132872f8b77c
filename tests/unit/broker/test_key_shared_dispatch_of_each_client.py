"""Key_Shared subscriptions, of each client on a real broker: of the SDK, synchronous and asyncio, over gRPC, and of
pulsar-client over Pulsar's protocol. Statistics are read by both admin interfaces.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from magnetar_broker.admin.topic_stats import describe_loaded
from magnetar_broker.topics.subscription_stats import SubscriptionStats
from magnetar_protos.admin_pb2 import TopicStats, TopicStatsRequest
from magnetar_testing.clock import ManualClock
from magnetar_wire.admin.json.stats import TOPIC_STATS
from magnetar_wire.hashing import KEY_SHARED_SLOTS, key_shared_slot, murmur3_32
from magnetar_wire.topic_name import TopicName
from tests.unit.broker.each_client import KINDS, LONG_MS, EachClient, each_client

TOPIC = "persistent://public/default/t"
_of_each_client = pytest.mark.parametrize("kind", KINDS)
_MIDDLE = KEY_SHARED_SLOTS // 2
_KEYS = [f"key-{number}" for number in range(12)]
# A second consumer takes over the lower half of the slots.
_LOWER = [key for key in _KEYS if key_shared_slot(key.encode()) < _MIDDLE]
_UPPER = [key for key in _KEYS if key not in _LOWER]
# Of the worked examples: slot 6,067.
_EXAMPLE = "Order-3459134"


def _subscribe(made: EachClient, name: str, listener: dict[str, Any] | None = None, **policy: Any) -> Any:
    library = made.library
    if policy:
        policy["key_shared_mode"] = getattr(library.KeySharedMode, policy.pop("mode", "AutoSplit"))
        policy = {"key_shared_policy": library.ConsumerKeySharedPolicy(**policy)}
    return made.client.subscribe(
        TOPIC,
        "s",
        library.ConsumerType.KeyShared,
        consumer_name=name,
        initial_position=library.InitialPosition.Earliest,
        negative_ack_redelivery_delay_ms=1,
        **policy,
        **(listener or {}),
    )


def _publish(made: EachClient, keys: list[str]) -> None:
    """Publish a message of each key, which is its content, too."""
    producer = made.client.create_producer(TOPIC, batching_enabled=False)
    made.send_all(producer, *(key.encode() for key in keys), partition_keys=keys)
    producer.close()


def _receive(consumer: Any, count: int) -> list[Any]:
    return [consumer.receive(LONG_MS) for _ in range(count)]


def _keys(messages: list[Any]) -> list[str]:
    return [message.data().decode() for message in messages]


def _stats(made: EachClient) -> SubscriptionStats:
    topic = made.scene.broker_session.topics.get_loaded(TopicName.parse(TOPIC))
    assert topic is not None
    [stats] = topic.subscriptions.stats()
    return stats


def _describe(made: EachClient) -> TopicStats:
    topic = made.scene.broker_session.topics.get_loaded(TopicName.parse(TOPIC))
    assert topic is not None
    return describe_loaded(topic, TopicStatsRequest())


def _ranges(made: EachClient) -> dict[str, list[tuple[int, int]]]:
    """Return the slots of each consumer, as an administrator sees them."""
    shown = made.run(partial(made.scene.admin.topics.stats, TOPIC)).subscription("s")
    return {one.consumer_name: [(each.first, each.last) for each in one.key_ranges] for one in shown.consumers}


@_of_each_client
def test_slots_are_split_as_consumers_join_and_leave(kind: str) -> None:
    """(SUB-10) The worked example: C1, C2, C3 and C4 join, C4 and C1 leave."""
    with each_client(kind) as made:
        c1, c2 = _subscribe(made, "C1"), _subscribe(made, "C2")
        assert _ranges(made) == {"C2": [(0, 32_767)], "C1": [(32_768, 65_535)]}
        c3 = _subscribe(made, "C3")  # both ranges have the same size: the lowest
        assert _ranges(made) == {"C3": [(0, 16_383)], "C2": [(16_384, 32_767)], "C1": [(32_768, 65_535)]}
        c4 = _subscribe(made, "C4")
        lower = {"C3": [(0, 16_383)], "C2": [(16_384, 32_767)]}
        assert _ranges(made) == lower | {"C4": [(32_768, 49_151)], "C1": [(49_152, 65_535)]}
        _publish(made, [_EXAMPLE])
        assert _keys(_receive(c3, 1)) == [_EXAMPLE]
        c4.close()
        assert _ranges(made) == lower | {"C1": [(32_768, 65_535)]}
        c1.close()
        assert _ranges(made) == {"C3": [(0, 16_383)], "C2": [(16_384, 65_535)]}
        c2.close()
        assert _ranges(made) == {"C3": [(0, 65_535)]}


@_of_each_client
def test_keys_go_to_the_next_points_of_consistent_hashing(kind: str) -> None:
    """(SUB-11) The points of the worked example: the hash of the name followed by 1 … 100."""
    with each_client(kind, subscription_key_shared_use_consistent_hashing=True) as made:
        names = ["orders-aggregator-pod-2345-consumer", "other"]
        points = {murmur3_32(f"{name}{number}".encode()): name for name in names for number in range(1, 101)}
        assert points[1003084738] == names[0]
        consumers = {name: _subscribe(made, name) for name in names}
        expected: dict[str, list[str]] = {name: [] for name in names}
        for key in [*_KEYS, _EXAMPLE]:
            hash_ = murmur3_32(key.encode())
            expected[points[min((point for point in points if point >= hash_), default=min(points))]].append(key)
        _publish(made, [*_KEYS, _EXAMPLE])
        for name, consumer in consumers.items():
            assert expected[name]
            assert _keys(_receive(consumer, len(expected[name]))) == expected[name]
        shown = _ranges(made)
        assert sum(last - first + 1 for ranges in shown.values() for first, last in ranges) == 2**32
        consumers["other"].close()
        assert _ranges(made) == {names[0]: [(0, 2**32 - 1)]}


@_of_each_client
def test_a_key_moves_when_its_old_consumer_has_acknowledged_all_that_it_got(kind: str) -> None:
    """(SUB-5, SUB-6, CHK-35, CHK-53) What the old client has prefetched or negatively acknowledged counts. Keys that
    did not move are delivered in the meantime."""
    with each_client(kind) as made:
        first = _subscribe(made, "first")
        _publish(made, _KEYS)
        had = _receive(first, len(_KEYS))
        assert _keys(had) == _KEYS
        second = _subscribe(made, "second")
        _publish(made, _KEYS)
        assert _keys(_receive(first, len(_UPPER))) == _UPPER
        made.until(lambda: _stats(made).redelivery_entries == len(_LOWER), "messages of keys that moved wait")
        refused, *others = [message for message in had if message.data().decode() in _LOWER]
        first.negative_acknowledge(refused)
        again = _receive(first, 1)
        assert _keys(again) == [_LOWER[0]]
        assert again[0].redelivery_count() == 1
        for message in others:
            first.acknowledge(message)
        assert _keys(_receive(second, len(others))) == _LOWER[1:]
        shown = made.run(partial(made.scene.admin.topics.stats, TOPIC)).subscription("s")
        assert (shown.key_shared_mode, shown.draining_slots, shown.draining_entries) == ("AUTO_SPLIT", 1, 1)
        assert shown.drained_slots == len(others)
        [drained] = [one.draining for one in shown.consumers if one.consumer_name == "first"]
        assert [(one.slot, one.entries) for one in drained] == [(key_shared_slot(_LOWER[0].encode()), 1)]
        assert drained[0].blocked > 0
        json = TOPIC_STATS.to_json(made.run(partial(_describe, made)))["subscriptions"]["s"]
        of_first = {name: json["consumers"][0][name] for name in ("keyHashRanges", "keyHashRangeArrays")}
        assert of_first == {"keyHashRanges": ["[32768, 65535]"], "keyHashRangeArrays": [[32768, 65535]]}
        for counts in (json, json["consumers"][0]):
            assert (counts["drainingHashesCount"], counts["drainingHashesUnackedMessages"]) == (1, 1)
            assert counts["drainingHashesClearedTotal"] == len(others)
        assert json["consumers"][0]["drainingHashes"] == [
            {"hash": drained[0].slot, "unackMsgs": 1, "blockedAttempts": drained[0].blocked}
        ]
        assert (json["keySharedMode"], json["allowOutOfOrderDelivery"]) == ("AUTO_SPLIT", False)
        assert _ranges(made) == {"first": [(_MIDDLE, KEY_SHARED_SLOTS - 1)], "second": [(0, _MIDDLE - 1)]}
        first.acknowledge(again[0])
        assert _keys(_receive(second, 1)) == [_LOWER[0]]


@_of_each_client
def test_what_a_consumer_leaves_goes_to_the_others_in_order(kind: str) -> None:
    """(SUB-6) A consumer that reconnects under the same name is a new one."""
    with each_client(kind) as made:
        first = _subscribe(made, "same")
        _publish(made, _KEYS * 2)
        _receive(first, 3)
        second = _subscribe(made, "same")
        assert _stats(made).redelivery_entries == 0
        first.close()
        assert _keys(_receive(second, 2 * len(_KEYS))) == _KEYS * 2


@_of_each_client
def test_fixed_ranges_have_gaps_that_wait_and_no_overlaps(kind: str) -> None:
    """(SUB-12, SUB-5) Another mode than that of the connected consumers is refused, too."""
    with each_client(kind) as made:
        upper = _subscribe(made, "upper", mode="Sticky", sticky_ranges=[(_MIDDLE, KEY_SHARED_SLOTS - 1)])
        with pytest.raises(made.errors.ConsumerAssignError):
            _subscribe(made, "refused", mode="Sticky", sticky_ranges=[(0, 0), (40_000, 40_001)])
        with pytest.raises(made.errors.ConsumerBusy):
            _subscribe(made, "refused")
        with pytest.raises(made.errors.ConsumerBusy):
            ranges = [(0, 1)]
            _subscribe(made, "refused", mode="Sticky", sticky_ranges=ranges, allow_out_of_order_delivery=True)
        _publish(made, _KEYS)
        assert _keys(_receive(upper, len(_UPPER))) == _UPPER
        assert _stats(made).redelivery_entries == len(_LOWER)
        lower = _subscribe(made, "lower", mode="Sticky", sticky_ranges=[(0, _MIDDLE - 1)])
        assert _keys(_receive(lower, len(_LOWER))) == _LOWER


@_of_each_client
def test_out_of_order_delivery_waits_for_no_other_consumer(kind: str) -> None:
    """(SUB-6) With allow_out_of_order_delivery a key moves at once."""
    with each_client(kind) as made:
        first = _subscribe(made, "first", allow_out_of_order_delivery=True)
        _publish(made, _KEYS)
        _receive(first, len(_KEYS))
        second = _subscribe(made, "second", allow_out_of_order_delivery=True)
        _publish(made, _KEYS)
        assert _keys(_receive(second, len(_LOWER))) == _LOWER


@_of_each_client
def test_a_batch_of_several_keys_goes_to_the_consumer_of_its_first_one(kind: str) -> None:
    """(SUB-13) It is counted, and the count survives the consumers. A batch of one key is not."""
    with each_client(kind) as made:
        batches: Any = {"batching_enabled": True, "batching_max_publish_delay_ms": 3_600_000}
        consumers = {name: _subscribe(made, name) for name in ("upper", "lower")}
        producer = made.client.create_producer(TOPIC, **batches)
        for keys in (["key-0"] * 3, [_UPPER[0], _LOWER[0]], [_LOWER[0], _UPPER[0], _UPPER[1]]):
            made.send_all(producer, *(key.encode() for key in keys), partition_keys=keys)
        one_key = "lower" if "key-0" in _LOWER else "upper"
        expected: dict[str, list[str]] = {"upper": [_UPPER[0], _LOWER[0]], "lower": [_LOWER[0], _UPPER[0], _UPPER[1]]}
        expected[one_key] = ["key-0"] * 3 + expected[one_key]
        for name, consumer in consumers.items():
            assert _keys(_receive(consumer, len(expected[name]))) == expected[name]
            consumer.close()
        made.until(lambda: not _stats(made).consumers, "all consumers have left")
        shown = made.run(partial(made.scene.admin.topics.stats, TOPIC)).subscription("s")
        assert (shown.mixed_batches, shown.reasons[-1].code) == (2, "mixed_batches")


@pytest.mark.parametrize("level", ["subscription", "topic"])
@pytest.mark.parametrize("kind", ["sync", "stock"])
def test_a_dispatch_rate_delays_keys_and_keeps_their_order(kind: str, level: str) -> None:
    """(SUB-5, RET-4) Redelivered messages count, too."""
    clock, settings = ManualClock(), {f"dispatch_throttling_rate_per_{level}_in_msg": 5}
    with each_client(kind, **settings) as made:
        made.client.create_producer(TOPIC).close()
        topic = made.scene.broker_session.topics.get_loaded(TopicName.parse(TOPIC))
        assert topic is not None
        rates = topic.subscriptions.rates
        for one in (rates, *rates.limits):
            one.clock = clock
        upper, lower = (_subscribe(made, name) for name in ("upper", "lower"))

        def has_delivered(messages: int) -> bool:
            clock.advance(1.0)
            return _stats(made).counters.delivered.messages == messages

        _publish(made, _KEYS * 2)
        made.until(lambda: _stats(made).counters.delivered.messages == 5, "as many as the rate allows")
        assert _stats(made).reasons[0].code == f"dispatch_rate_of_{level}"
        made.until(partial(has_delivered, 2 * len(_KEYS)), "all are delivered")
        had = _receive(upper, 2 * len(_UPPER))
        assert _keys(had) == _UPPER * 2
        assert _keys(_receive(lower, 2 * len(_LOWER))) == _LOWER * 2
        for message in had:
            upper.negative_acknowledge(message)
        made.until(lambda: _stats(made).redelivery_entries > 0, "some wait for redelivery")
        made.until(partial(has_delivered, 2 * len(_KEYS) + len(had)), "all are redelivered")
        assert _keys(_receive(upper, len(had))) == _UPPER * 2


@pytest.mark.parametrize("kind", ["sync", "stock"])
def test_messages_in_chunks_go_to_the_consumer_of_their_key(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """(SUB-5) pulsar-client joins them. The SDK joins none on Key_Shared: it logs that, and acknowledges none."""
    with each_client(kind, max_message_size=10_000) as made:
        upper, lower = (_subscribe(made, name) for name in ("upper", "lower"))
        producer = made.readers[0].create_producer(TOPIC, chunking_enabled=True, batching_enabled=False)
        large = {key: key.encode() + bytes(25_000) for key in _KEYS}
        for key, content in large.items():
            producer.send(content, partition_key=key)
        if made.is_ours:
            reason = "on a Shared or Key_Shared subscription: use Exclusive or Failover"
            made.until(lambda: reason in caplog.text, "it is logged")
            assert _stats(made).backlog_entries > 2 * len(_KEYS)
            return
        for consumer, keys in ((upper, _UPPER), (lower, _LOWER)):
            for message, key in zip(_receive(consumer, len(keys)), keys, strict=True):
                assert (message.partition_key(), message.data()) == (key, large[key])
                consumer.acknowledge(message)
        made.until(lambda: _stats(made).backlog_entries == 0, "all chunks are acknowledged")


@_of_each_client
def test_listeners_get_the_messages_of_a_key_one_after_the_other(kind: str) -> None:
    """(SUB-5, CON-2) Also if an executor calls a listener with messages of several keys at a time."""
    with each_client(kind) as made, ThreadPoolExecutor(3) as executor:
        got: dict[str, list[tuple[str, bytes]]] = {key: [] for key in _KEYS}
        running: list[str] = []
        overlaps: list[str] = []

        def listen(consumer: Any, message: Any) -> Any:
            key = message.partition_key()
            if key in running:
                overlaps.append(key)
            running.append(key)
            got[key].append((consumer.consumer_name(), message.data()))
            running.remove(key)
            return consumer.acknowledge(message)

        options: dict[str, Any] = {"message_listener": listen}
        if kind == "sync":
            options["message_listener_executor"] = executor
        consumers = [_subscribe(made, name, options) for name in ("upper", "lower")]
        producer = made.client.create_producer(TOPIC, batching_enabled=False)
        contents = [b"%d" % number for number in range(10)]
        for content in contents:
            made.send_all(producer, *[content] * len(_KEYS), partition_keys=_KEYS)
        made.until(lambda: _stats(made).backlog_entries == 0, "all are acknowledged")
        for key in _KEYS:
            assert got[key] == [("lower" if key in _LOWER else "upper", content) for content in contents]
        assert not overlaps
        for consumer in consumers:
            consumer.close()
