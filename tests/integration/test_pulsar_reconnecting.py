"""pulsar-client over what a real standalone goes through: kill -9, an unload, a clean end. Its producers, consumers and
readers go on by themselves, and nothing that had a receipt is lost."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest
from pulsar import ConsumerType, MessageId

from magnetar_testing.standalone_process import StandaloneProcess
from tests.running import GENEROUS_S
from tests.stock_clients import (
    ALL_TYPES,
    BATCHES,
    BY_MESSAGE,
    EARLIEST,
    LONG_MS,
    QUIET,
    SHORT_MS,
    StockServer,
    payloads,
    send_batch,
    stock_server,
    topic,
    until,
)

pytest_plugins = ["tests.stock_fixtures"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockServer]:
    with stock_server(tmp_path_factory.mktemp("standalone") / "data") as server:
        yield server


@pytest.fixture(scope="module")
def process(server: StockServer) -> StandaloneProcess:
    if server.process is None:
        pytest.skip("it is somebody else's server")
    return server.process


class Publishing:
    """Numbers, one after the other, in a thread of its own, as long as it is let."""

    def __init__(self, client: pulsar.Client, name: str, **options: Any) -> None:
        self.acknowledged: list[bytes] = []
        self.refused: list[pulsar.Result] = []
        self.sent = 0
        self._producer = client.create_producer(name, block_if_queue_full=True, send_timeout_millis=300_000, **options)
        self._ending = False
        self._thread = threading.Thread(target=self._publish)
        self._thread.start()

    def _publish(self) -> None:
        while not self._ending:
            content = b"%d" % self.sent
            self.sent += 1
            self._producer.send_async(content, lambda result, _, content=content: self._on_sent(result, content))
            time.sleep(0.001)  # so that it is never far ahead

    def _on_sent(self, result: pulsar.Result, content: bytes) -> None:
        if result == pulsar.Result.Ok:
            self.acknowledged.append(content)
        else:
            self.refused.append(result)

    def wait_more(self, count: int) -> None:
        """Wait until this many more are acknowledged."""
        aim = len(self.acknowledged) + count
        until(lambda: len(self.acknowledged) >= aim, f"{count} more messages are acknowledged")

    def end(self) -> list[bytes]:
        """Everything that was acknowledged."""
        self._ending = True
        self._thread.join(GENEROUS_S)
        self._producer.flush()
        until(lambda: len(self.acknowledged) + len(self.refused) == self.sent, "all have results")
        self._producer.close()
        return self.acknowledged


class Late:
    """Subscribes in a thread of its own."""

    def __init__(self, client: pulsar.Client, name: str, subscription: str) -> None:
        self._made: list[pulsar.Consumer] = []
        self._thread = threading.Thread(
            target=lambda: self._made.append(client.subscribe(name, subscription, **EARLIEST))
        )
        self._thread.start()

    def drain(self, expected: set[bytes]) -> None:
        self._thread.join(GENEROUS_S)
        [consumer] = self._made
        drain(consumer, expected)


def first_times(contents: list[bytes]) -> list[int]:
    """In the order in which each came first."""
    return [int(content) for content in dict.fromkeys(contents)]


def drain(receiver: Any, expected: set[bytes]) -> list[bytes]:
    """Until everything of that has come."""
    read = receiver.read_next if isinstance(receiver, pulsar.Reader) else receiver.receive
    found: list[bytes] = []
    missing = set(expected)
    while missing:
        message = read(LONG_MS)
        found.append(message.data())
        missing.discard(message.data())
        if isinstance(receiver, pulsar.Consumer):
            receiver.acknowledge(message)
    return found


def test_nothing_that_had_a_receipt_is_lost_or_reordered_by_a_server_that_ends(
    server: StockServer, process: StandaloneProcess
) -> None:
    """WIRE-1, MSG-1, SUB-7, PRD-9, PRD-10: killed, or ended gracefully. Producers with and without a name of their own,
    consumers of each type and readers go on at their positions; new clients wait while nothing serves.
    """
    single, batched = topic("singles"), topic("batches")
    with server.client() as client:
        consumers = {kind: client.subscribe([single, batched], kind.name, kind, **EARLIEST) for kind in ALL_TYPES}
        readers = {one: client.create_reader(one, MessageId.earliest) for one in (single, batched)}
        publishing = {
            single: Publishing(client, single, producer_name="mine"),
            batched: Publishing(client, batched, batching_enabled=True),
        }
        lates: list[Late] = []
        for end in (process.kill, process.stop):
            for one in publishing.values():
                one.wait_more(50)
            end()
            lates.append(Late(client, single, f"late-{len(lates)}"))
            process.start()
        for one in publishing.values():
            one.wait_more(50)
        acknowledged = {of: one.end() for of, one in publishing.items()}
        assert not any(one.refused for one in publishing.values())
        for of, reader in readers.items():
            assert first_times(drain(reader, set(acknowledged[of]))) == list(range(publishing[of].sent))
        for late in lates:
            late.drain(set(acknowledged[single]))
        for kind, consumer in consumers.items():
            missing = {(of, content) for of, contents in acknowledged.items() for content in contents}
            found: dict[str, list[bytes]] = {single: [], batched: []}
            while missing:
                message = consumer.receive(LONG_MS)
                consumer.acknowledge(message)
                found[message.topic_name()].append(message.data())
                missing.discard((message.topic_name(), message.data()))
            if kind != ConsumerType.Shared:
                assert all(first_times(one) == sorted(first_times(one)) for one in found.values())


def test_acknowledgements_survive_kill_9_parts_of_batches_too(server: StockServer, process: StandaloneProcess) -> None:
    """WIRE-1, CON-3, CON-4: what was written down is not delivered again; what is in hand may be acknowledged later."""
    name = topic("acks")
    with server.client() as client:
        producer = client.create_producer(name, **BATCHES)
        consumers = [
            client.subscribe(name, kind.name, kind, **EARLIEST, **BY_MESSAGE)
            for kind in (ConsumerType.Exclusive, ConsumerType.Shared)
        ]
        for first in (0, 10):
            send_batch(producer, *[b"%d" % number for number in range(first, first + 10)])
        for consumer in consumers:
            for message in [consumer.receive(LONG_MS) for _ in range(20)]:
                if int(message.data()) % 3:
                    consumer.acknowledge(message)
            consumer.close()  # by then they are durable
        process.kill()
        process.start()
        for kind in (ConsumerType.Exclusive, ConsumerType.Shared):
            again = client.subscribe(name, kind.name, kind, **BY_MESSAGE)
            in_hand = [again.receive(LONG_MS) for _ in range(7)]
            assert [message.data() for message in in_hand] == [b"%d" % number for number in range(0, 20, 3)]
            for message in in_hand:
                again.acknowledge(message)
            with pytest.raises(pulsar.Timeout):
                again.receive(SHORT_MS)
            again.close()


def test_an_unload_is_only_noticed_by_a_pause(server: StockServer) -> None:
    """WIRE-1: all go on by themselves; nothing is lost, and the order is preserved."""
    name = topic("unloaded")
    with server.client() as client:
        consumers = {
            kind: client.subscribe(name, kind.name, kind, receiver_queue_size=10, **EARLIEST) for kind in ALL_TYPES
        }
        reader = client.create_reader(name, MessageId.earliest, receiver_queue_size=10)
        publishing = Publishing(client, name)
        for _ in range(3):
            publishing.wait_more(20)
            server.unload(name)
        publishing.wait_more(20)
        acknowledged = publishing.end()
        assert first_times(drain(reader, set(acknowledged))) == list(range(publishing.sent))
        for kind, consumer in consumers.items():
            found = first_times(drain(consumer, set(acknowledged)))
            assert sorted(found) == list(range(publishing.sent))
            assert kind == ConsumerType.Shared or found == sorted(found)


def test_reader_resumes_within_a_batch(server: StockServer) -> None:
    """WIRE-1, SUB-7: behind the last message that it handed out."""
    name = topic("reader")
    with server.client() as client:
        producer = client.create_producer(name, **BATCHES)
        send_batch(producer, *[b"%d" % number for number in range(10)])
        send_batch(producer, b"10", b"11")
        reader = client.create_reader(name, MessageId.earliest, receiver_queue_size=5)
        found = [reader.read_next(LONG_MS).data() for _ in range(4)]
        server.unload(name)
        until(reader.is_connected, "it is connected again")
        found += [reader.read_next(LONG_MS).data() for _ in range(8)]
        assert first_times(found) == list(range(12))
        reader.seek(MessageId.earliest)
        server.unload(name)
        assert reader.read_next(LONG_MS).data() == b"0"
        reader.close()


def test_nacked_and_unacked_messages_are_redelivered_after_unload(server: StockServer) -> None:
    """WIRE-1, CON-5: also what was delivered before it, and nobody acknowledged."""
    name = topic("nacks")
    with server.client() as client:
        consumer = client.subscribe(name, "s", ConsumerType.Shared, negative_ack_redelivery_delay_ms=100, **EARLIEST)
        producer = client.create_producer(name)
        for number in range(4):
            producer.send(b"%d" % number)
        messages = [consumer.receive(LONG_MS) for _ in range(4)]
        consumer.acknowledge(messages[0])
        consumer.negative_acknowledge(messages[1])
        assert consumer.receive(LONG_MS).data() == b"1"
        server.unload(name)
        assert sorted(set(payloads(consumer, 3, acknowledge=True))) == [b"1", b"2", b"3"]
        consumer.close()


def test_names_and_subscriptions_are_free_after_a_client_was_cut_off(server: StockServer) -> None:
    """WIRE-1, PRD-11, SUB-2: the next client gets its name, and all that it had not acknowledged."""
    name = topic("cut")
    killed = pulsar.Client(server.url, logger=QUIET)
    producer = killed.create_producer(name, producer_name="p")
    consumer = killed.subscribe(name, "s", **EARLIEST)
    producer.send(b"x")
    assert payloads(consumer, 1) == [b"x"]
    killed.shutdown()
    with server.client() as client:
        successor = client.create_producer(name, producer_name="p")
        successor.send(b"y")
        assert payloads(client.subscribe(name, "s"), 2) == [b"x", b"y"]


def test_timed_out_send_does_not_block_the_next_one(server: StockServer, process: StandaloneProcess) -> None:
    """WIRE-1, PRD-9: a message whose send timed out is stored or not; unknown is not no."""
    name = topic("too-long")
    with server.client() as client:
        producer = client.create_producer(name, send_timeout_millis=300)
        producer.send(b"before")
        process.signal(signal.SIGSTOP)
        try:
            with pytest.raises(pulsar.Timeout):
                producer.send(b"timed out")
        finally:
            process.signal(signal.SIGCONT)
        patient = client.create_producer(name)
        patient.send(b"after")
        consumer = client.subscribe(name, "s", **EARLIEST)
        found = payloads(consumer, 2)
        if found[1] == b"timed out":
            found = [found[0], *payloads(consumer, 1)]
        assert found == [b"before", b"after"]
