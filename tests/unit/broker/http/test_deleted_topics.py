"""Topics that are deleted or truncated over HTTP while clients of both listeners use them."""

from __future__ import annotations

import pytest

from magnetar import exceptions
from magnetar_protos.pulsar_pb2 import BaseCommand, CommandProducer, ServerError
from magnetar_wire.message_id import MessageId
from tests.unit.broker.http.admin_scene import running_http, serving_http
from tests.unit.broker.pulsar.pulsar_scene import running_pulsar_broker

_PATH = "persistent/public/default/t"


async def test_clients_of_both_listeners_notice_a_deletion_by_force() -> None:
    """TOP-7, WIRE-2: without `force` a topic in use stays; with it, its producers and consumers are closed."""
    async with running_pulsar_broker(allow_auto_topic_creation=False) as scene, serving_http(scene) as http:
        assert (await http.ask("PUT", _PATH)).status == 204
        async with scene.client() as client:
            producer = await client.create_producer("t")
            consumer = await client.subscribe("t", "s")
            stock = await scene.pulsar_client()
            await stock.open_producer()
            await stock.subscribe(subscription="stock")
            old = await producer.send(b"one")
            answer = await http.ask("DELETE", _PATH)
            assert (answer.status, "with force" in answer.reason) == (412, True)
            await producer.send(b"two")
            assert (await http.ask("DELETE", f"{_PATH}?force=true")).status == 204
            await stock.wait_for_answers(BaseCommand.CLOSE_PRODUCER)
            await stock.wait_for_answers(BaseCommand.CLOSE_CONSUMER)
            with pytest.raises(exceptions.TopicNotFound):
                await producer.send(b"three")
            again = await stock.ask(
                BaseCommand.PRODUCER, producer=CommandProducer(topic="t", producer_id=2, request_id=stock.request_id())
            )
            assert again.error.error == ServerError.TOPIC_NOT_FOUND
            assert await http.get("persistent/public/default") == []

            # Another one of the same name has nothing of it.
            await http.admin.topics.create("t")
            assert "stock" not in await http.get(f"{_PATH}/subscriptions")
            answer = await http.ask("GET", f"{_PATH}/ledger/{old.ledger_id()}/entry/0")
            assert answer.status == 404
            await scene.admin.subscriptions.create("t", "new")
            for admin in (scene.admin, http.admin):
                with pytest.raises(exceptions.IncarnationChanged):
                    await admin.subscriptions.reset("t", "new", old)
            with pytest.raises(exceptions.IncarnationChanged):
                await consumer.seek(old)


async def test_a_truncated_topic_goes_on() -> None:
    """TOP-7: its subscriptions stay, and have no backlog."""
    async with running_http() as scene, scene.broker.client() as client:
        await scene.admin.topics.create("t")
        await scene.admin.subscriptions.create("t", "s", MessageId.earliest)
        producer = await client.create_producer("t")
        old = await producer.send(b"one")
        assert (await scene.ask("DELETE", f"{_PATH}/truncate")).status == 204
        for admin in (scene.admin, scene.broker.admin):
            stats = await admin.topics.stats("t")
            assert (stats.stored_entries, stats.subscription("s").backlog_entries) == (0, 0)
        assert (await scene.ask("GET", f"{_PATH}/ledger/{old.ledger_id()}/entry/0")).status == 404
        await producer.send(b"two")
        consumer = await client.subscribe("t", "s")
        assert (await consumer.receive()).data() == b"two"


async def test_ledgers_that_nothing_needs_are_trimmed_on_request() -> None:
    settings = {"managed_ledger_max_entries_per_ledger": 1, "managed_ledger_min_ledger_rollover_time_minutes": 0}
    async with running_http(**settings) as scene, scene.broker.client() as client:
        await scene.admin.topics.create("t")
        consumer = await client.subscribe("t", "s")
        producer = await client.create_producer("t", batching_enabled=False)
        for _ in range(3):
            await producer.send(b"x")
            await consumer.acknowledge(await consumer.receive(), receipt=True)
        assert (await scene.ask("POST", f"{_PATH}/trim")).status == 200
        ledgers = (await scene.admin.topics.internal_stats("t")).ledgers
        assert [ledger.closed for ledger in ledgers] in ([], [False])
