"""Subscriptions on Pulsar's REST paths, and the same calls of the Python admin over gRPC."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any, Final

import pytest

from magnetar import aio
from magnetar.admin import AsyncAdmin
from magnetar.exceptions import InvalidArgument, NotAllowedError, SubscriptionNotFound
from magnetar_wire.message_id import MessageId
from tests.unit.broker.http.admin_scene import HttpScene, running_http

TOPIC: Final = "persistent/public/default/orders"
ONE: Final = f"{TOPIC}/subscription/s"
EARLIEST: Final = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
LATEST: Final = {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1}


async def publish_batches(client: aio.Client, topic: str = "orders") -> list[MessageId]:
    """Publish three batches of three messages, and return the ids of the messages."""
    producer = await client.create_producer(topic, batching_max_messages=3, batching_max_publish_delay_ms=10_000)
    ids = await asyncio.gather(*[producer.send(b"%d" % number) for number in range(9)])
    await producer.close()
    return list(ids)


async def backlogs(scene: HttpScene, topic: str = TOPIC) -> dict[str, int]:
    stats = await scene.get(f"{topic}/stats")
    return {name: one["msgBacklog"] for name, one in stats["subscriptions"].items()}


async def next_message(client: aio.Client, topic: str = "orders") -> bytes:
    """Return the first message that the subscription `s` delivers."""
    consumer = await client.subscribe(topic, "s")
    message = await consumer.receive()
    await consumer.close()
    return bytes(message.data())


def at(message: MessageId, **more: Any) -> dict[str, Any]:
    return {"ledgerId": message.ledger_id(), "entryId": message.entry_id(), **more}


async def test_subscriptions_are_created_at_a_position_listed_and_deleted() -> None:
    """SUB-9, ADM-1: also on a topic that does not exist, as first use by a client would create it."""
    async with running_http() as scene:
        assert (await scene.ask("GET", f"{TOPIC}/subscriptions")).status == 404
        assert (await scene.ask("PUT", ONE)).status == 204
        assert (await scene.ask("PUT", ONE)).status == 409
        client = scene.broker.client()
        ids = await publish_batches(client)
        for name, body in (
            ("none", None),
            ("earliest", EARLIEST),
            ("latest", LATEST),
            ("text", "earliest"),
            ("second", at(ids[3])),
            ("third", at(ids[3], excluded=True, batchIndex=-1)),
            ("within", at(ids[4], batchIndex=1, properties={"k": "v"})),
        ):
            assert (await scene.ask("PUT", f"{TOPIC}/subscription/{name}", body)).status == 204, name
        expected = {"s": 3, "none": 0, "earliest": 3, "latest": 0, "text": 3, "second": 2, "third": 1, "within": 2}
        assert await backlogs(scene) == expected
        assert sorted(await scene.get(f"{TOPIC}/subscriptions")) == sorted(expected)
        assert await scene.get(f"{TOPIC}/subscription/within/properties") == {"k": "v"}

        too_large = {"ledgerId": 1, "entryId": 2**63}
        bodies: tuple[Any, ...] = ("nonsense", [], {}, {"ledgerId": "a", "entryId": 0}, too_large, 7)
        for bad in bodies:
            answer = await scene.ask("PUT", f"{TOPIC}/subscription/bad", bad)
            assert (answer.status, bool(answer.reason)) == (400, True), bad
        answer = await scene.ask("PUT", f"{TOPIC}/subscription/bad?replicated=true")
        assert (answer.status, "replicated" in answer.reason) == (405, True)
        assert "bad" not in await backlogs(scene)

        consumer = await client.subscribe("orders", "s")
        assert (await scene.ask("DELETE", ONE)).status == 412
        assert (await scene.ask("DELETE", f"{ONE}?force=true")).status == 204
        assert (await scene.ask("DELETE", ONE)).status == 404
        await consumer.close()
        await client.close()


async def test_no_topic_is_created_where_first_use_creates_none() -> None:
    """TOP-2: by a request to create a subscription, over HTTP and gRPC."""
    async with running_http(allow_auto_topic_creation=False) as scene:
        assert (await scene.ask("PUT", ONE)).status == 404
        with pytest.raises(Exception, match="there is no topic"):
            await scene.broker.admin.subscriptions.create("orders", "s")
        assert await scene.broker.admin.topics.list("public/default") == []


async def test_a_cursor_is_reset_by_time_and_position() -> None:
    """SUB-9"""
    async with running_http() as scene:
        await scene.ask("PUT", ONE)
        client = scene.broker.client()
        before_ms = scene.broker.clock.time_ms()
        ids = await publish_batches(client)
        admin: AsyncAdmin = scene.broker.admin
        for path, body, next_one in (
            (f"resetcursor/{before_ms + 3_600_000}", None, None),
            (f"resetcursor/{before_ms}", None, b"0"),
            ("resetcursor", LATEST, None),
            ("resetcursor/0", None, b"0"),
            ("resetcursor", at(ids[3]), b"3"),
            ("resetcursor", at(ids[3], excluded=True), b"6"),
            ("resetcursor", at(ids[0], isExcluded=True), b"3"),
            ("resetcursor", at(ids[4], batchIndex=1), b"4"),
            ("resetcursor", at(ids[4], batchIndex=1, excluded=True), b"5"),
            ("resetcursor", at(ids[5], batchIndex=2, excluded=True), b"6"),
            ("resetcursor", EARLIEST, b"0"),
        ):
            assert (await scene.ask("POST", f"{ONE}/{path}", body)).status == 204, path
            if next_one is None:
                assert await backlogs(scene) == {"s": 0}
            else:
                assert await next_message(client) == next_one, (path, body)
        await admin.subscriptions.reset("orders", "s", ids[4])
        assert await next_message(client) == b"4"
        await admin.subscriptions.reset("orders", "s", ids[4], excluded=True)
        assert await next_message(client) == b"5"
        with pytest.raises(InvalidArgument):
            await admin.subscriptions.reset("orders", "s", MessageId.latest, excluded=True)

        for path, body, status in (
            ("resetcursor", None, 400),
            ("resetcursor/x", None, 400),
            ("resetcursor", {"ledgerId": 0, "entryId": 0}, 412),  # a position of another topic
        ):
            assert (await scene.ask("POST", f"{ONE}/{path}", body)).status == status, path
        assert (await scene.ask("POST", f"{TOPIC}/subscription/no/resetcursor", EARLIEST)).status == 404
        assert (await scene.ask("POST", "persistent/public/default/no/subscription/s/resetcursor/0")).status == 404
        assert await next_message(client) == b"5"
        await client.close()


async def test_entries_are_skipped_and_expired() -> None:
    """SUB-9"""
    async with running_http() as scene:
        await scene.ask("PUT", ONE)
        client = scene.broker.client()
        ids = await publish_batches(client)

        async def change(path: str, body: Any = None) -> tuple[int, str | None, int]:
            """Return the status, the number of acknowledged entries, and of those that are left."""
            answer = await scene.ask("POST", f"{ONE}/{path}", body)
            return answer.status, answer.headers.get("x-magnetar-entries"), (await backlogs(scene))["s"]

        async def start_again() -> None:
            assert (await scene.ask("POST", f"{ONE}/resetcursor", EARLIEST)).status == 204

        assert await change("skip/2") == (204, "2", 1)
        assert await change("skip/99") == (204, "1", 0)
        await start_again()
        assert await change("skip_all") == (204, "3", 0)
        await start_again()
        assert await change("expireMessages/3600") == (204, "0", 3)
        assert await change("expireMessages", at(ids[0])) == (204, "1", 2)
        assert await change("expireMessages", at(ids[3], excluded=True)) == (204, "0", 2)
        assert await change("expireMessages", at(ids[3], batchIndex=0)) == (204, "0", 2)
        assert await next_message(client) == b"4"
        assert await change("expireMessages", at(ids[5], batchIndex=2)) == (204, "1", 1)
        assert (await change("expireMessages", {"ledgerId": 10**9, "entryId": 0}))[0] == 409
        assert (await change("expireMessages", None))[0] == 400
        for path in ("skip/1", "skip_all", "expireMessages/1"):
            assert (await scene.ask("POST", f"{TOPIC}/subscription/no/{path}")).status == 404
        for path in ("skip/x", "skip/-1", "expireMessages/-1"):
            assert (await change(path))[::2] == (400, 1)

        admin: AsyncAdmin = scene.broker.admin
        await start_again()
        assert await admin.subscriptions.expire_up_to("orders", "s", ids[3], excluded=True) == 1
        assert await admin.subscriptions.expire_up_to("orders", "s", ids[8]) == 2
        with pytest.raises(InvalidArgument):
            await admin.subscriptions.expire_up_to("orders", "s", MessageId.earliest)
        await client.close()


async def test_all_subscriptions_of_a_topic_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    """SUB-9"""
    async with running_http() as scene:
        await scene.ask("PUT", ONE)
        await scene.ask("PUT", f"{TOPIC}/subscription/t")
        client = scene.broker.client()
        await publish_batches(client)
        time_ms = scene.broker.clock.time_ms
        monkeypatch.setattr(scene.broker.clock, "time_ms", lambda: time_ms() + 60_000)
        answer = await scene.ask("POST", f"{TOPIC}/all_subscription/expireMessages/30")
        assert (answer.status, answer.headers["x-magnetar-entries"]) == (204, "6")
        assert await scene.broker.admin.subscriptions.expire_all("orders", 30) == 0
        stats = (await scene.get(f"{TOPIC}/stats"))["subscriptions"]["t"]
        assert (stats["msgBacklog"], stats["totalMsgExpired"]) == (0, 3)
        assert stats["lastExpireTimestamp"] >= stats["lastMarkDeleteAdvancedTimestamp"] > 0
        await client.close()


async def test_properties_are_replaced() -> None:
    """ADM-1"""
    async with running_http() as scene:
        await scene.ask("PUT", ONE)
        admin: AsyncAdmin = scene.broker.admin
        assert await scene.get(f"{ONE}/properties") == {}
        assert (await scene.ask("PUT", f"{ONE}/properties", {"a": "1", "b": "2"})).status == 204
        assert await admin.subscriptions.get_properties("orders", "s") == {"a": "1", "b": "2"}
        await admin.subscriptions.set_properties("orders", "s", {"c": "3"})
        assert await scene.get(f"{ONE}/properties") == {"c": "3"}
        assert (await scene.ask("PUT", f"{ONE}/properties", {"a": 1})).status == 400
        assert (await scene.ask("PUT", f"{ONE}/properties", {"magnetar.progress-owner": "me"})).status == 412
        assert (await scene.ask("PUT", f"{TOPIC}/subscription/no/properties", {})).status == 404
        assert (await scene.ask("GET", f"{TOPIC}/subscription/no/properties")).status == 404
        assert (await scene.get(f"{TOPIC}/stats"))["subscriptions"]["s"]["subscriptionProperties"] == {"c": "3"}


async def test_a_backlog_is_analyzed_by_reading_it() -> None:
    """ADM-1"""
    async with running_http(subscription_backlog_scan_max_entries=2) as scene:
        await scene.ask("PUT", ONE)
        client = scene.broker.client()
        ids = await publish_batches(client)
        admin: AsyncAdmin = scene.broker.admin

        async def analyze(body: Any = None) -> tuple[int, int, bool]:
            answer = await scene.ask("POST", f"{ONE}/analyzeBacklog", body)
            assert answer.status == 200, answer
            return answer.body["entries"], answer.body["messages"], answer.body["aborted"]

        assert await analyze() == (2, 6, True)
        assert await analyze(at(ids[3])) == (2, 6, False)
        assert await analyze(at(ids[8], excluded=True)) == (0, 0, False)
        consumer = await client.subscribe("orders", "s", aio.ConsumerType.Shared)
        for number in range(5):
            message = await consumer.receive()
            if number in (3, 4):  # of the second batch
                await consumer.acknowledge(message)
        await consumer.close()
        assert await analyze(at(ids[3])) == (2, 4, False)
        assert (await scene.ask("POST", f"{ONE}/analyzeBacklog")).body == {
            "entries": 2,
            "messages": 4,
            "aborted": True,
            "lostEntries": 0,
            "firstMessageId": f"{ids[0].ledger_id()}:0",
            "lastMessageId": f"{ids[0].ledger_id()}:1",
            "filterAcceptedEntries": 2,
            "filterAcceptedMessages": 4,
            "filterRejectedEntries": 0,
            "filterRejectedMessages": 0,
            "filterRescheduledEntries": 0,
            "filterRescheduledMessages": 0,
        }
        found = await admin.subscriptions.analyze_backlog("orders", "s", ids[6])
        assert (found.entries, found.messages, found.aborted, found.lost_entries) == (1, 3, False, 0)
        with pytest.raises(SubscriptionNotFound):
            await admin.subscriptions.analyze_backlog("orders", "no")
        assert (await scene.ask("POST", f"{TOPIC}/subscription/no/analyzeBacklog")).status == 404

        size = await scene.ask("PUT", f"{TOPIC}/backlogSize", at(ids[2]))
        stored = (await scene.get(f"{TOPIC}/stats"))["storageSize"]
        assert (size.status, size.body) == (200, stored * 2 // 3)
        assert await admin.topics.backlog_size("orders", ids[5]) == stored // 3
        await client.close()


async def test_partitions_change_together_but_at_a_position_only_the_named_one() -> None:
    """SUB-9"""
    async with running_http() as scene:
        admin: AsyncAdmin = scene.broker.admin
        await admin.topics.create_partitioned("orders", 2)
        assert (await scene.ask("PUT", ONE)).status == 204
        client = scene.broker.client()
        for number in range(2):
            ids = await publish_batches(client, f"orders-partition-{number}")

        async def left() -> list[int]:
            return [(await backlogs(scene, f"{TOPIC}-partition-{number}")).get("s", -1) for number in range(2)]

        assert await scene.get(f"{TOPIC}/subscriptions") == ["s"]
        assert (await scene.ask("POST", f"{ONE}/skip_all")).headers["x-magnetar-entries"] == "6"
        assert (await scene.ask("POST", f"{ONE}/resetcursor/0")).status == 204
        assert await left() == [3, 3]
        second = at(ids[3], partitionIndex=1)
        assert (await scene.ask("POST", f"{ONE}/resetcursor", second)).status == 204
        assert await left() == [3, 2]
        assert (await scene.ask("POST", f"{ONE}/expireMessages", second)).headers["x-magnetar-entries"] == "1"
        assert await left() == [3, 1]
        await admin.subscriptions.reset("orders", "s", MessageId(1, *_position(ids[3]), -1))
        assert await left() == [3, 2]
        assert (await scene.ask("POST", f"{ONE}/analyzeBacklog")).body["messages"] == 15
        assert (await scene.ask("POST", f"{ONE}/analyzeBacklog", second)).body["messages"] == 6

        for path, body in (("skip/1", None), ("resetcursor", at(ids[3])), ("expireMessages", at(ids[3]))):
            assert (await scene.ask("POST", f"{ONE}/{path}", body)).status == 405, path
        assert (await scene.ask("POST", f"{ONE}/resetcursor", at(ids[3], partitionIndex=7))).status == 412
        with pytest.raises(NotAllowedError):
            await admin.subscriptions.skip("orders", "s", 1)
        assert await left() == [3, 2]

        assert (await scene.ask("PUT", f"{TOPIC}/subscription/t", second)).status == 204
        assert await backlogs(scene, f"{TOPIC}-partition-0") == {"s": 3}
        assert (await scene.ask("PUT", f"{TOPIC}/subscription/t/properties", {"k": "v"})).status == 204
        assert await scene.get(f"{TOPIC}/subscription/t/properties") == {"k": "v"}
        assert (await scene.ask("DELETE", f"{TOPIC}/subscription/t")).status == 204
        assert (await scene.ask("DELETE", f"{TOPIC}/subscription/t")).status == 404
        await client.close()


def _position(message: MessageId) -> tuple[int, int]:
    return message.ledger_id(), message.entry_id()


async def test_entries_of_a_backlog_are_peeked_at_by_their_number() -> None:
    """ADM-1"""
    async with running_http() as scene:
        await scene.ask("PUT", ONE)
        client = scene.broker.client()
        ids = await publish_batches(client)
        await scene.ask("POST", f"{ONE}/skip/1")
        answer = await scene.ask("GET", f"{ONE}/position/1")
        assert (answer.status, answer.headers["x-pulsar-message-id"]) == (200, f"{ids[0].ledger_id()}:1")
        assert answer.headers["x-pulsar-num-batch-message"] == "3"
        assert (await scene.ask("GET", f"{ONE}/position/2")).headers["x-pulsar-message-id"] == f"{ids[0].ledger_id()}:2"
        assert (await scene.ask("GET", f"{ONE}/position/3")).status == 404
        assert (await scene.ask("GET", f"{TOPIC}/subscription/no/position/1")).status == 404
        assert await backlogs(scene) == {"s": 2}
        await client.close()


async def test_the_python_admin_does_the_same_over_http() -> None:
    """ADM-1, SUB-9"""
    async with running_http() as scene:
        native: AsyncAdmin = scene.broker.admin
        await native.topics.create("orders")
        client = scene.broker.client()
        ids = await publish_batches(client)
        async with AsyncAdmin(f"http://{scene.address}") as admin:
            subscriptions = admin.subscriptions
            await subscriptions.create("orders", "s", ids[3], {"k": "v"})
            assert (await subscriptions.list("orders"), await backlogs(scene)) == (["s"], {"s": 2})
            await subscriptions.reset("orders", "s", MessageId.earliest)
            assert await backlogs(scene) == {"s": 3}
            assert [one.payload for one in await subscriptions.peek("orders", "s", 2)] == [b"%d" % n for n in range(6)]
            await subscriptions.reset("orders", "s", ids[4], excluded=True)
            assert [one.payload for one in await subscriptions.peek("orders", "s", 9)] == [b"5", b"6", b"7", b"8"]
            await subscriptions.reset("orders", "s", 1)
            assert await subscriptions.skip("orders", "s", 1) == 1
            assert await subscriptions.expire_up_to("orders", "s", ids[3]) == 0
            assert (await subscriptions.analyze_backlog("orders", "s")).messages == 5
            assert (
                await subscriptions.expire("orders", "s", 3600) == await subscriptions.expire_all("orders", 3600) == 0
            )
            assert await subscriptions.get_properties("orders", "s") == {"k": "v"}
            await subscriptions.set_properties("orders", "s", {})
            assert await subscriptions.get_properties("orders", "s") == {}
            assert await subscriptions.skip_all("orders", "s") == 2
            assert await subscriptions.peek("orders", "s") == []
            shown = await admin.topics.stats("orders")
            # Over HTTP, brokers have the addresses of their HTTP servers as ids.
            assert shown == dataclasses.replace(await native.topics.stats("orders"), owner_broker=scene.address)
            await subscriptions.reset("orders", "s", ids[4])
            assert (await native.topics.stats("orders")).subscription("s").backlog_messages == 5
            size = await admin.topics.backlog_size("orders", ids[0])
            assert size == await native.topics.backlog_size("orders", ids[0]) > 0
            await subscriptions.delete("orders", "s")
            with pytest.raises(SubscriptionNotFound):
                await subscriptions.delete("orders", "s")
            await native.topics.create_partitioned("parts", 2)
            await subscriptions.create("parts", "s")
            await admin.topics.unload("parts")
            on_grpc = await native.topics.partitioned_stats("parts")
            parts = [dataclasses.replace(one, owner_broker=scene.address) for one in on_grpc.partitions]
            assert await admin.topics.partitioned_stats("parts") == dataclasses.replace(on_grpc, partitions=parts)
            assert (await admin.topics.partitioned_stats("parts", per_partition=False)).partitions == []
        await client.close()
