"""`subscriptions.explain` on brokers in this process, with consumers of both listeners.

As in test_delivery_reasons.py, a test of a reason has its code as its name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from magnetar import MessageId, schema
from magnetar.admin import ConsumerStats, DeliveryReason, SubscriptionExplanation
from magnetar.exceptions import MagnetarException, SubscriptionNotFound, TopicNotFound
from magnetar_broker.admin import explain_calls
from magnetar_broker.admin.reasons import describe_reason, merge_reasons
from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.bundle_ownership import BundleOwnership
from magnetar_broker.topics.backlog_quota_rules import QuotaKind
from magnetar_broker.topics.topic import Topic
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.delivery_reasons import NO_PERMITS, REASONS
from magnetar_wire.topic_name import TopicName
from tests.running import until
from tests.unit.broker import test_delivery_reasons
from tests.unit.broker.admin.explain_scene import ExplainClients, running_clients
from tests.unit.broker.http.admin_scene import serving_http
from tests.unit.broker.rate_scene import LISTENERS


def _find(found: SubscriptionExplanation, code: str) -> DeliveryReason:
    (reason,) = [one for one in found.reasons if one.code == code]
    return reason


def test_each_reason_has_a_test() -> None:
    """ADM-3"""
    tests = {name.removeprefix("test_") for name in (*globals(), *vars(test_delivery_reasons))}
    levels = {f"dispatch_rate_of_{level}" for level in ("subscription", "topic")}
    assert set(REASONS) - tests - levels == set()


@pytest.mark.parametrize("listener", LISTENERS)
async def test_what_consumers_wait_for_is_explained(listener: str) -> None:
    """ADM-3: no consumer; no permits; everything delivered; of a consumer that is not active."""
    async with running_clients(listener) as clients:
        await clients.publish(4)
        found = await clients.explain()
        assert [one.code for one in found.reasons] == ["no_consumer"]
        (part,) = found.parts
        assert (part.topic, part.loaded) == ("persistent://public/default/t", True)
        assert part.owner_broker
        assert part.stats is not None
        assert part.stats.backlog_entries == 4
        await clients.consume("a", "Failover", permits=2)
        found = await clients.until_answer("no_permits")
        assert found.reasons[0].facts == {"who": "consumer a"}
        assert "call receive" in found.reasons[0].action
        await clients.consume("b", "Failover")
        stats = (await clients.admin.topics.stats("t")).subscription("s")
        reasons = {one.consumer_name: one.reason for one in stats.consumers}
        assert {name: reason and reason.code for name, reason in reasons.items()} == {
            "a": "no_permits",
            "b": "not_active",
        }
        assert stats.reasons[0].code == "no_permits"
        assert stats.blocked_by == stats.reasons[0].text
        await clients.admin.subscriptions.skip("t", "s", 2)
        found = await clients.until_answer("no_permits")
        assert not found.reasons[0].normal


@pytest.mark.parametrize("listener", LISTENERS)
async def test_consumers_of_a_lower_priority_wait_for_the_others(listener: str) -> None:
    """ADM-3, SUB-4: those of the highest level get all messages, while they have permits."""
    async with running_clients(listener) as clients:
        await clients.consume("later", "Shared", priority=1)
        await clients.consume("first", "Shared", permits=3)

        async def consumers() -> dict[str, ConsumerStats]:
            stats = (await clients.admin.topics.stats("t")).subscription("s")
            return {one.consumer_name: one for one in stats.consumers}

        async def waits() -> bool:
            reason = (await consumers())["later"].reason
            return reason is not None and reason.code == "lower_priority"

        async def are_delivered() -> bool:
            shown = await consumers()
            return [shown[name].unacknowledged_messages for name in ("first", "later")] == [3, 2]

        await until(waits, "it waits for the others")
        await clients.publish(5)
        await until(are_delivered, "it gets what the others have no permits for")


async def _deliver_keys(clients: ExplainClients) -> None:
    """Deliver 10 keys to one consumer, let another one take over half of the slots, and publish 10 messages more."""
    await clients.consume("a", "KeyShared")
    await clients.publish(10)
    await clients.until_answer("waiting_for_acks")
    await clients.consume("b", "KeyShared")
    await clients.publish(10)


async def _consume_10(clients: ExplainClients, kind: str, **options: Any) -> None:
    await clients.publish(10)
    await clients.consume(kind=kind, **options)


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize(
    ("code", "act", "settings"),
    [
        ("no_backlog", ExplainClients.consume, {}),
        ("waiting_for_acks", partial(_consume_10, kind="KeyShared"), {}),
        ("max_unacked_consumer", partial(_consume_10, kind="Shared"), {"max_unacked_messages_per_consumer": 2}),
        (
            "max_unacked_subscription",
            partial(_consume_10, kind="KeyShared"),
            {"max_unacked_messages_per_subscription": 2},
        ),
        ("slot_without_consumer", partial(_consume_10, kind="KeyShared", slots=(0, 0)), {}),
        ("key_held", _deliver_keys, {}),
        (
            "look_ahead",
            _deliver_keys,
            {"key_shared_look_ahead_msg_in_replay_threshold_per_subscription": 1, "dispatcher_max_read_batch_size": 1},
        ),
        *(
            (
                f"dispatch_rate_of_{level}",
                partial(_consume_10, kind="KeyShared"),
                {f"dispatch_throttling_rate_per_{level}_in_msg": 1},
            )
            for level in ("subscription", "topic")
        ),
    ],
)
async def test_what_holds_messages_back_is_explained(
    listener: str, code: str, act: Callable[[ExplainClients], Awaitable[Any]], settings: dict[str, Any]
) -> None:
    """ADM-3: also of Key_Shared subscriptions (SUB-6, SUB-12)."""
    async with running_clients(listener, **settings) as clients:
        await act(clients)
        found = await clients.until_answer(code)
        assert found.reasons[0].text
        assert found.reasons[0].action
        if code == "key_held":
            stats = (await clients.admin.topics.stats("t")).subscription("s")
            reasons = {one.consumer_name: one.reason for one in stats.consumers}
            assert (reason := reasons["b"]) is not None
            assert (reason.code, reason.facts["holder"]) == (code, "a")


@pytest.mark.parametrize("listener", LISTENERS)
async def test_consumer_refused(listener: str) -> None:
    """ADM-3: the last refusal is named until that consumer can join."""
    async with running_clients(listener) as clients:
        await clients.publish(1)
        consumer = await clients.consume("first")
        for _ in range(2):
            await clients.refuse("second")
        reason = _find(await clients.explain(), "consumer_refused")
        assert (reason.facts["times"], reason.facts["consumer"]) == ("2", "second")
        assert "Exclusive consumer is already connected" in reason.text
        if clients.pulsar is None:
            await consumer.close()
        else:
            await clients.pulsar.close_consumer(consumer)
        await clients.consume("second")
        assert "consumer_refused" not in {one.code for one in (await clients.explain()).reasons}


async def test_a_consumer_with_another_schema_is_named() -> None:
    """ADM-3: of a subscription that its refused consumer would have created, too."""

    class Name(schema.Record):
        name = schema.String()

    class Number(schema.Record):
        number = schema.Integer(required=True)

    async with running_clients() as clients:
        producer = await clients.sdk.create_producer("t", schema=schema.AvroSchema(Name))
        await producer.send(Name(name="x"))
        for subscription in ("s", "new"):
            with pytest.raises(MagnetarException):
                await clients.sdk.subscribe("t", subscription, schema=schema.AvroSchema(Number))
        assert "chema" in _find(await clients.explain(), "consumer_refused").facts["error"]
        with pytest.raises(SubscriptionNotFound, match=r"a consumer was refused: .*chema"):
            await clients.admin.subscriptions.explain("t", "new")


async def test_what_does_not_exist_is_an_error() -> None:
    async with running_clients() as clients:
        with pytest.raises(SubscriptionNotFound, match="It has: s"):
            await clients.admin.subscriptions.explain("t", "other")
        with pytest.raises(TopicNotFound):
            await clients.admin.subscriptions.explain("other", "s")


@pytest.mark.parametrize("listener", LISTENERS)
async def test_dispatch_rate_of_broker(listener: str) -> None:
    """ADM-3, RET-4"""
    async with running_clients(listener, dispatch_throttling_rate_in_msg=2) as clients:
        await clients.publish(20)
        await clients.consume()
        found = await clients.until_answer("dispatch_rate_of_broker")
        assert "at its maximum of 2 messages a second" in found.reasons[0].text
        assert int(found.reasons[0].facts["until_ms"]) > 0


@pytest.mark.parametrize("listener", LISTENERS)
async def test_non_persistent(listener: str) -> None:
    """ADM-3"""
    topic = "non-persistent://public/default/t"
    async with running_clients(listener) as clients:
        await clients.consume(topic=topic)
        found = await clients.until_answer("non_persistent", topic)
        assert found.reasons[0].normal


@pytest.mark.parametrize("listener", LISTENERS)
async def test_dropped(listener: str) -> None:
    """ADM-3: how many."""
    topic = "non-persistent://public/default/t"
    async with running_clients(listener) as clients:
        await clients.consume(topic=topic, permits=1)
        await clients.publish(4, topic)
        found = await clients.until_answer("no_permits", topic)
        assert _find(found, "dropped").facts == {"messages": "3"}


async def test_publishing_waits() -> None:
    """ADM-3: there is no backlog, because messages are not stored."""
    async with running_clients() as clients:
        clients.topic().quotas.blocks_producers = "the backlog quota is reached"
        assert _find(await clients.explain(), "publishing_waits").facts == {"cause": "the backlog quota is reached"}
        await clients.publish(1)
        assert "publishing_waits" not in {one.code for one in (await clients.explain()).reasons}


async def test_evicted() -> None:
    """ADM-3"""
    async with running_clients() as clients:
        clients.topic().quotas.evictions[QuotaKind.SIZE] = 3
        assert _find(await clients.explain(), "evicted").facts == {"times": "3"}


async def test_policies_unknown() -> None:
    """ADM-3"""
    async with running_clients() as clients:
        assert "policies_unknown" not in {one.code for one in (await clients.explain()).reasons}
        clients.topic().live_settings.are_known = False
        assert _find(await clients.explain(), "policies_unknown").action


async def test_topic_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """ADM-3: why, and the least backlog by what is stored; a topic that can be loaded is explained after that."""
    async with running_clients() as clients:
        await clients.publish(3)
        await clients.admin.topics.unload("t")
        find = clients.scene.broker_session.topics.get
        failure = BrokerError(ErrorCode.PERSISTENCE_ERROR, "no bookie answers")

        async def fail(name: TopicName, **options: Any) -> Topic:
            raise failure

        async def hang(name: TopicName, **options: Any) -> Topic:
            await asyncio.Event().wait()
            raise AssertionError

        for get, text, load_s in ((fail, "no bookie answers", 60.0), (hang, "it is being loaded", 0.01)):
            monkeypatch.setattr(explain_calls, "LOAD_S", load_s)
            monkeypatch.setattr(clients.scene.broker_session.topics, "get", get)
            found = await clients.explain()
            assert found.reasons[0].code == "topic_not_loaded"
            assert text in found.reasons[0].text
            (part,) = found.parts
            assert part.stats is not None
            assert (part.loaded, part.owner_broker, part.stats.backlog_entries) == (False, "b/1", 3)
        monkeypatch.setattr(explain_calls, "LOAD_S", 60.0)
        monkeypatch.setattr(clients.scene.broker_session.topics, "get", find)
        (part,) = (await clients.explain()).parts
        assert (part.loaded, [one.code for one in part.reasons]) == (False, ["no_consumer"])


async def test_no_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """ADM-3: one answer for all partitions, and what each has."""
    async with running_clients() as clients:
        await clients.admin.topics.create_partitioned("p", 2)
        await clients.admin.subscriptions.create("p", "s", MessageId.earliest)
        await clients.publish(5, "p-partition-1")
        find = BundleOwnership.find_owner

        async def find_owner(ownership: BundleOwnership, topic: TopicName) -> Any:
            if topic.partition_index == 1:
                raise BrokerError(ErrorCode.METADATA_ERROR, "the metadata store does not answer")
            return await find(ownership, topic)

        monkeypatch.setattr(BundleOwnership, "find_owner", find_owner)
        found = await clients.explain("p")
        assert [(one.code, list(one.partitions)) for one in found.reasons] == [
            ("no_owner", [1]),
            ("no_consumer", [0]),
            ("no_backlog", [0]),
        ]
        first, second = found.parts
        assert (first.owner_broker, second.owner_broker) == ("b/1", "")
        assert second.topic == "persistent://public/default/p-partition-1"


async def test_partitions_are_explained_together() -> None:
    """ADM-3: also in the statistics of the partitioned topic; what is wrong comes first."""
    async with running_clients() as clients:
        await clients.admin.topics.create_partitioned("p", 3)
        await clients.admin.subscriptions.create("p", "s", MessageId.earliest)
        await clients.sdk.subscribe("p-partition-0", "s")
        await clients.publish(1, "p-partition-2")
        found = await clients.explain("p")
        expected = [("no_consumer", [1, 2]), ("no_backlog", [0, 1])]
        assert [(one.code, list(one.partitions)) for one in found.reasons] == expected
        assert [part.reasons[0].code for part in found.parts] == ["no_backlog", "no_consumer", "no_consumer"]
        stats = (await clients.admin.topics.stats("p")).subscription("s")
        assert [(one.code, list(one.partitions)) for one in stats.reasons] == expected


def test_a_text_of_several_partitions_names_the_one_whose_numbers_it_has() -> None:
    """ADM-3"""
    parts = [(number, [describe_reason(NO_PERMITS(who=who))]) for number, who in ((3, "consumer a"), (5, "all others"))]
    (merged,) = merge_reasons(parts)
    assert merged.text == "in partition 3, for example, the receiver queue of consumer a is full: no permits are left"
    (same,) = merge_reasons([parts[0], parts[0]])
    assert same.text.startswith("the receiver queue of consumer a")


async def test_http_explains_as_grpc_does() -> None:
    """ADM-3: a path of our own, and the reasons in Pulsar's statistics."""
    async with running_clients() as clients, serving_http(clients.scene) as http:
        await clients.publish(2)
        path = "persistent/public/default/t"
        body = await http.get(f"{path}/subscription/s/explain")
        assert (body["topic"], body["subscription"]) == ("persistent://public/default/t", "s")
        (reason,) = body["reasons"]
        assert reason == {
            "code": "no_consumer",
            "text": "no consumer is connected",
            "action": REASONS["no_consumer"].action,
            "facts": {},
            "normal": False,
            "partitions": [],
        }
        assert body["parts"][0]["stats"]["msgBacklog"] == 2
        stats = await http.get(f"{path}/stats")
        assert stats["subscriptions"]["s"]["reasons"] == [reason]
        over_http, over_grpc = await http.admin.subscriptions.explain("t", "s"), await clients.explain()
        assert over_http.reasons == over_grpc.reasons
        assert over_http.parts[0].last == over_grpc.parts[0].last
        assert (await http.ask("GET", f"{path}/subscription/other/explain")).status == 404


async def test_http_shows_keys_as_grpc_does() -> None:
    """ADM-3, SUB-6: the slots of each consumer, those that it drains, and what waits for them."""
    async with running_clients() as clients, serving_http(clients.scene) as http:
        await _deliver_keys(clients)
        found = await clients.until_answer("key_held")
        by_grpc, by_http = [(await one.topics.stats("t")).subscription("s") for one in (clients.admin, http.admin)]
        for name in ("key_shared_mode", "draining_slots", "draining_entries", "drained_slots", "to_be_redelivered"):
            assert getattr(by_http, name) == getattr(by_grpc, name), name
        for shown, expected in zip(by_http.consumers, by_grpc.consumers, strict=True):
            assert list(shown.key_ranges) == list(expected.key_ranges)
            assert list(shown.draining) == list(expected.draining)
        assert [len(one.draining) > 0 for one in by_http.consumers] == [True, False]
        assert str(by_http.draining_slots) == found.reasons[0].facts["slots"]
