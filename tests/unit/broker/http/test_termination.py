"""A topic that is terminated over gRPC or HTTP: its publishers are refused, and its readers notified of the end."""

from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner

from magnetar import MessageId, exceptions
from magnetar_cli.command import app
from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_protos.pulsar_pb2 import BaseCommand, CommandProducer, ServerError
from tests.running import until
from tests.unit.broker.broker_scene import running_broker
from tests.unit.broker.http.admin_scene import running_http
from tests.unit.broker.pulsar.pulsar_scene import running_pulsar_broker

_TOPIC = "persistent://public/default/orders"


async def test_publishing_to_a_terminated_topic_is_refused_and_readers_reach_its_end() -> None:
    """ADM-1: on gRPC. Pending and later sends fail, without a retry."""
    async with running_http() as scene:
        client = scene.broker.client()
        async with await client.subscribe(_TOPIC, "s") as consumer, await client.create_producer(_TOPIC) as producer:
            sent = [await producer.send(b"%d" % number) for number in range(3)]
            reader = await client.create_reader(_TOPIC, MessageId.earliest)
            assert not consumer.has_reached_end_of_topic()
            answer = await scene.ask("POST", "persistent/public/default/orders/terminate")
            last = sent[-1]
            assert (answer.status, answer.body) == (
                200,
                {
                    "ledgerId": last.ledger_id(),
                    "entryId": last.entry_id(),
                    "partitionIndex": -1,
                    "batchSize": 0,
                    "batchIndex": -1,
                },
            )
            again = await scene.broker.admin.topics.terminate(_TOPIC)
            assert (again.ledger_id(), again.entry_id()) == (last.ledger_id(), last.entry_id())
            for _ in range(2):
                with pytest.raises(exceptions.TopicTerminated):
                    await producer.send(b"late")
            with pytest.raises(exceptions.TopicTerminated):
                await client.create_producer(_TOPIC)
            for number in range(3):
                message = await consumer.receive(5000)
                assert message.data() == b"%d" % number
                assert not consumer.has_reached_end_of_topic()
                await consumer.acknowledge(message)
                assert (await reader.read_next(5000)).data() == b"%d" % number
            await until(consumer.has_reached_end_of_topic, "the consumer is at the end")
            await until(reader.has_reached_end_of_topic, "the reader is at the end")
            assert not await reader.has_message_available()
            assert (await scene.broker.admin.topics.internal_stats(_TOPIC)).state == "terminated"
            # What is stored can still be read, and the topic be emptied, unloaded and deleted.
            await consumer.seek(MessageId.earliest)
            assert not consumer.has_reached_end_of_topic()
            assert (await consumer.receive(5000)).data() == b"0"
            await scene.broker.admin.topics.unload(_TOPIC)
            with pytest.raises(exceptions.TopicTerminated):
                await client.create_producer(_TOPIC)
            await scene.broker.admin.topics.truncate(_TOPIC)
            await until(consumer.has_reached_end_of_topic, "nothing is left")
        await scene.broker.admin.topics.delete(_TOPIC, force=True)
        async with await client.create_producer(_TOPIC) as producer:
            await producer.send(b"of the next topic")
        await client.close()


async def test_a_pending_send_fails_when_its_topic_is_terminated() -> None:
    """It is stored, or fails with TopicTerminated."""
    async with running_broker() as scene:
        client = scene.client()
        producer = await client.create_producer(_TOPIC, batching_enabled=False)
        await producer.send(b"first")
        sends = [asyncio.create_task(producer.send(b"%d" % number)) for number in range(50)]
        await asyncio.sleep(0)
        last = await scene.admin.topics.terminate(_TOPIC)
        results = await asyncio.gather(*sends, return_exceptions=True)
        stored = [one for one in results if isinstance(one, MessageId)]
        assert all(isinstance(one, exceptions.TopicTerminated) for one in results[len(stored) :])
        assert all((one.ledger_id(), one.entry_id()) <= (last.ledger_id(), last.entry_id()) for one in stored)
        await client.close()


async def test_all_partitions_are_terminated_by_one_call() -> None:
    """ADM-1"""
    async with running_http() as scene:
        topics = scene.broker.admin.topics
        await topics.create_partitioned("orders", 2)
        assert (await scene.ask("POST", "persistent/public/default/orders/terminate")).status == 405
        answer = await scene.ask("POST", "persistent/public/default/orders/terminate/partitions")
        assert answer.status == 200
        assert {name: one["entryId"] for name, one in answer.body.items()} == {"0": -1, "1": -1}
        assert [one.partition for one in await topics.terminate_partitioned("orders")] == [0, 1]
        client = scene.broker.client()
        with pytest.raises(exceptions.TopicTerminated):
            await client.create_producer("orders")
        await client.close()


async def test_what_can_not_be_terminated() -> None:
    """TOP-6"""
    async with running_http() as scene:
        await scene.broker.admin.topics.create("plain")
        for path, status in (
            ("persistent/public/default/none/terminate", 404),
            ("persistent/public/default/none/terminate/partitions", 405),
            ("persistent/public/default/plain/terminate/partitions", 405),
            ("persistent/public/default/__change_events/terminate", 405),
            ("non-persistent/public/default/plain/terminate", 405),
        ):
            answer = await scene.ask("POST", path)
            assert (answer.status, bool(answer.reason)) == (status, True), path
        with pytest.raises(exceptions.NotAllowedError):
            await scene.broker.admin.topics.terminate("__change_events")


async def test_clients_of_pulsars_protocol_meet_a_terminated_topic() -> None:
    """WIRE-1: the producer is closed, and its reopening refused; consumers are notified of the end."""
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        opened = await client.open_producer()
        client.publish(1, 0, name=opened.producer_name)
        await client.receipts(1, 1)
        await client.subscribe()
        [message] = await client.wait_delivered(1)
        topic = scene.broker_session.topics.loaded()[0]
        await topic.terminate()
        await client.wait_for_answers(BaseCommand.CLOSE_PRODUCER)
        assert not client.answers_of(BaseCommand.REACHED_END_OF_TOPIC)
        opening = CommandProducer(topic="t", producer_id=2, request_id=client.request_id())
        refused = await client.ask(BaseCommand.PRODUCER, producer=opening)
        assert refused.error.error == ServerError.TOPIC_TERMINATED_ERROR
        ids = [MessageIdData(ledgerId=message.ledger_id, entryId=message.entry_id)]
        await client.acknowledge(1, ids, cumulative=True)
        reached = await client.wait_for_answers(BaseCommand.REACHED_END_OF_TOPIC)
        assert reached.reached_end_of_topic.consumer_id == 1


async def test_the_command_terminates_a_topic_or_each_of_its_partitions() -> None:
    async with running_http() as scene:
        await scene.broker.admin.topics.create("plain")
        await scene.broker.admin.topics.create_partitioned("parts", 2)
        for topic, expected in (("plain", ["plain"]), ("parts", ["parts-partition-0", "parts-partition-1"])):
            command = ["topics", "terminate", topic, "--yes", "--json", "--url", f"http://{scene.address}"]
            ended = await asyncio.to_thread(CliRunner().invoke, app, command)
            assert ended.exit_code == 0, ended.stderr
            assert [json.loads(row)["topic"] for row in ended.stdout.splitlines()] == expected
            assert (await scene.broker.admin.topics.internal_stats(expected[-1])).state == "terminated"
