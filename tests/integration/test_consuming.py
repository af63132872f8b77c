"""Consumers and readers of the SDK on a real standalone, over gRPC, whose process is killed."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import magnetar
from magnetar import ConsumerType, InitialPosition, Message, MessageId
from magnetar.admin import Admin
from magnetar.exceptions import AlreadyClosed, ConsumerBusy
from magnetar_testing.pytest_plugin import StartStandalone
from magnetar_testing.standalone_process import StandaloneProcess
from tests.running import GENEROUS_S

pytestmark = pytest.mark.slow

EARLIEST: Any = {"initial_position": InitialPosition.Earliest}
LONG_MS = 60_000


def send_batch(producer: magnetar.Producer, *payloads: bytes) -> None:
    """As one batch."""
    for payload in payloads:
        producer.send_async(payload, None)
    producer.flush()


def test_acknowledgements_within_batches_survive_kill_9(magnetar_start_standalone: StartStandalone) -> None:
    """CON-3, CON-4: and what was in hand may be acknowledged afterwards."""
    server = magnetar_start_standalone()
    with server.client() as client:
        producer = client.create_producer("t", batching_max_publish_delay_ms=10_000, batching_max_messages=4)
        consumers = {
            kind: client.subscribe("t", kind.name, kind, **EARLIEST)
            for kind in (ConsumerType.Exclusive, ConsumerType.Shared)
        }
        for number in range(5):
            send_batch(producer, *[b"%d.%d" % (number, at) for at in range(4)])
        everything = {b"%d.%d" % (number, at) for number in range(5) for at in range(4)}
        in_hand: dict[ConsumerType, list[Message]] = {}
        for kind, consumer in consumers.items():
            messages = [consumer.receive(LONG_MS) for _ in range(20)]
            assert {message.data() for message in messages} == everything
            assert messages[0].message_id().batch_size() == 4
            consumer.acknowledge(messages[:3] + messages[7:9], receipt=True)
            in_hand[kind] = messages
        server.kill()
        server.start()
        for kind, consumer in consumers.items():
            messages = in_hand[kind]
            consumer.acknowledge(messages[16:], receipt=True)
            left = {message.data() for message in messages[3:7] + messages[9:16]}
            got: set[bytes] = set()
            while got < left:
                again = consumer.receive(LONG_MS)
                got.add(again.data())
                consumer.acknowledge(again)
            # the last batch was in flight again before it was acknowledged, or was not
            assert got - left <= {message.data() for message in messages[16:]}
        for consumer in consumers.values():
            consumer.close()
        admin = Admin(server.service_url)
        stats = admin.topics.stats("t")
        assert {one.subscription: one.backlog_entries for one in stats.subscriptions} == {"Exclusive": 0, "Shared": 0}
        admin.close()


def test_a_partitioned_topic_is_read_by_threads_and_grows(
    magnetar_standalone: StandaloneProcess, magnetar_topic: str
) -> None:
    """SUB-2, CON-2, TOP-3 (the client's part), CHK-56"""
    with magnetar_standalone.client() as client:
        admin = magnetar_standalone.admin()
        admin.topics.create_partitioned(magnetar_topic, 3)
        consumer = client.subscribe(magnetar_topic, "s", **EARLIEST, auto_update_partitions_interval_seconds=0.1)
        with pytest.raises(ConsumerBusy):
            client.subscribe(magnetar_topic, "s")
        producer = client.create_producer(magnetar_topic, auto_update_partitions_interval_seconds=0.1)
        got: list[bytes] = []

        def receive() -> None:
            while len(got) < 2000:
                try:
                    message = consumer.receive(100)
                except magnetar.exceptions.Timeout:
                    continue
                got.append(message.data())
                consumer.acknowledge(message)

        threads = [threading.Thread(target=receive) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(1000):
            producer.send_async(b"%d" % number, None, partition_key=str(number))
        producer.flush()
        admin.topics.update_partitioned(magnetar_topic, 5)
        direct = client.create_producer(f"{magnetar_topic}-partition-4")
        for number in range(1000, 2000):
            direct.send_async(b"%d" % number, None)
        direct.flush()
        for thread in threads:
            thread.join(60)
        assert sorted(map(int, got)) == list(range(2000))
        admin.close()


async def test_asyncio_reader_resumes_after_kill(tmp_path: Path) -> None:
    """SUB-7, CON-11"""
    with StandaloneProcess(tmp_path / "data") as server:
        async with magnetar.aio.Client(server.service_url) as client:
            # Without a subscription a topic keeps only its open ledger, and each start closes one.
            await client.subscribe("t", "keeps it")
            producer = await client.create_producer("t")
            reader = await client.create_reader("t", MessageId.latest)
            got: list[bytes] = []
            sent = 0
            for _ in range(3):
                await asyncio.gather(*(producer.send(b"%d" % (sent + at)) for at in range(100)))
                sent += 100
                got += [(await reader.read_next(LONG_MS)).data() for _ in range(70)]
                server.kill()
                server.start()
            while await reader.has_message_available():
                got.append((await reader.read_next(LONG_MS)).data())
            assert got == [b"%d" % number for number in range(300)]


def _child(client: magnetar.Client, consumer: magnetar.Consumer, message: Message, answers: Connection) -> None:
    try:
        for refused in (consumer.receive, consumer.batch_receive, lambda: consumer.acknowledge(message)):
            with pytest.raises(AlreadyClosed, match="before the process forked"):
                refused()
        consumer.close()
        reader = client.create_reader(message.topic_name(), MessageId.earliest)
        assert reader.read_next(LONG_MS).data() == b"0"
        client.close()
        answers.send("fine")
    except BaseException as error:
        answers.send(repr(error))
        raise


def test_consumer_survives_fork_in_parent_and_is_closed_in_child(
    magnetar_standalone: StandaloneProcess, magnetar_topic: str
) -> None:
    """CHK-60: also while other threads receive, which hold locks that nobody gives back in the child."""
    context = multiprocessing.get_context("fork")
    with magnetar_standalone.client() as client:
        producer = client.create_producer(magnetar_topic)
        consumer = client.subscribe(magnetar_topic, "s", **EARLIEST)
        producer.send(b"0")
        first = consumer.receive(LONG_MS)
        got: set[bytes] = set()

        def receive() -> None:
            with contextlib.suppress(AlreadyClosed):
                while True:
                    got.add(consumer.receive().data())

        threads = [threading.Thread(target=receive, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        for turn in range(3):
            for number in range(200):
                producer.send_async(b"%d" % (1 + turn * 200 + number), None)
            answers, their_end = context.Pipe(duplex=False)
            process = context.Process(target=_child, args=(client, consumer, first, their_end))
            process.start()
            their_end.close()
            assert answers.poll(GENEROUS_S), "the child hangs"
            assert answers.recv() == "fine"
            process.join(GENEROUS_S)
        producer.flush()
        deadline = time.monotonic() + GENEROUS_S
        while len(got) < 600:
            assert time.monotonic() < deadline, f"only {len(got)} were received"
            time.sleep(0.01)
        consumer.acknowledge(first, receipt=True)
        consumer.close()
        for thread in threads:
            thread.join(GENEROUS_S)
