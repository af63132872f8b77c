"""Producers on a few streams that break, with a log that is slow, fails and is lost: held against what was sent."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict

import pytest

from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_protos.broker_pb2 import CloseProducer, ErrorCode, OpenProducer, ProduceRequest
from magnetar_protos.frame_pb2 import Frame, Run
from magnetar_wire.entry import decode_entry
from magnetar_wire.in_process_transport import InProcessTransport
from magnetar_wire.transport import Connection, Rejected, TransportError
from tests.produce_client import ProduceClient, entry
from tests.running import until
from tests.unit.broker.fake_log import FakeLog
from tests.unit.broker.produce_server import ProduceServer
from tests.unit.broker.topic_scene import NAME

_STEPS = 120
_NAMES = ("a", "b")
_INSTANCES = (b"1", b"2")


class Publishing:
    """The payload of each entry names its instance, epoch and number."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.server = ProduceServer()
        self.transport = InProcessTransport()
        self.connection: Connection | None = None
        self.clients: list[ProduceClient] = []
        # Of each client: what it has opened, by id, and the number of the next entry.
        self.producers: dict[ProduceClient, dict[int, tuple[str, bytes, int]]] = {}
        self.next: dict[tuple[int, int], int] = defaultdict(int)
        self.epochs: dict[tuple[str, bytes], int] = defaultdict(int)
        self.ids = 0
        # What was refused as too bad to store, by client, producer and number.
        self.bad: set[tuple[int, int, int]] = set()

    async def play(self) -> None:
        listener = await self.transport.listen("b:1", self.server)
        self.connection = self.transport.connect("b:1")
        for _ in range(_STEPS):
            await self._step()
            for _ in range(self.chance.randrange(4)):
                await asyncio.sleep(0)
        for log in self._logs():
            log.prompt = True
            log.decide()
        for client in self.clients:
            if self.chance.randrange(2):
                await client.stream.finish()
            else:
                client.stream.cancel()
        await until(lambda: all(client.over for client in self.clients), "all streams are over")
        await self.server.topics.unload(NAME)
        self._check()
        await self.connection.close()
        await listener.close()

    def _logs(self) -> list[FakeLog]:
        return [self.server.log(number) for number in range(len(self.server.storage.opened))]

    async def _step(self) -> None:
        chance = self.chance
        alive = [client for client in self.clients if not client.over]
        if not alive or (len(alive) < 3 and not chance.randrange(6)):
            assert self.connection is not None
            client = ProduceClient(self.connection.open_stream("produce"))
            self.clients.append(client)
            self.producers[client] = {}
            alive.append(client)
        client = chance.choice(alive)
        log = self.server.log() if self.server.storage.opened else None
        kind = chance.randrange(20)
        try:
            if kind < 4 or not self.producers[client]:
                await self._open(client)
            elif kind < 12:
                await self._send(client)
            elif kind == 12:
                await client.send(CloseProducer(producer_id=chance.choice(list(self.producers[client]))))
            elif kind == 13:
                client.stream.cancel()
            elif log is None:
                pass
            elif kind < 16:
                log.decide(1 + chance.randrange(5))
            elif kind == 16:
                log.prompt = bool(chance.randrange(2))
            elif kind == 17 and not chance.randrange(3):
                log.decide(error=BrokerError(ErrorCode.TOO_MANY_REQUESTS, "later"))
            elif kind == 18 and not chance.randrange(4):
                log.on_lost(TopicUnloaded("lost"))
                log.decide(error=TopicUnloaded("lost"))
            elif kind == 19 and not chance.randrange(4):
                unloading = asyncio.create_task(self.server.topics.unload(NAME))
                await asyncio.sleep(0)
                log.prompt = True
                log.decide()
                await unloading
        except TransportError:
            pass

    async def _open(self, client: ProduceClient) -> None:
        chance = self.chance
        name, instance = chance.choice(_NAMES), chance.choice(_INSTANCES)
        # Mostly a new epoch, sometimes one that came before.
        epoch = self.epochs[name, instance] - chance.randrange(2) * (chance.randrange(4) == 0)
        epoch = max(epoch, 0)
        self.epochs[name, instance] += 1
        self.ids += 1
        self.producers[client][self.ids] = name, instance, epoch
        request = OpenProducer(
            producer_id=self.ids, topic="t", producer_name=name, instance=instance, connection_epoch=epoch
        )
        await client.send(request)

    async def _send(self, client: ProduceClient) -> None:
        chance = self.chance
        producer_id = chance.choice(list(self.producers[client]))
        name, instance, epoch = self.producers[client][producer_id]
        at = self.clients.index(client)
        first = self.next[at, producer_id]
        entries = []
        for number in range(first, first + 1 + chance.randrange(4)):
            if chance.randrange(12):
                content = b"%d %b %d %d %d" % (at, instance, epoch, producer_id, number)
                entries.append(entry(number, content, name))
            else:
                self.bad.add((at, producer_id, number))
                entries.append(b"bad")
        self.next[at, producer_id] += len(entries)
        await client.send((producer_id, first, entries))

    def _check(self) -> None:
        stored: dict[tuple[int, int], dict[int, tuple[int, int]]] = defaultdict(dict)
        for log_number, log in enumerate(self._logs()):
            epochs: dict[tuple[str, int], int] = {}
            for index, one in enumerate(log.stored):
                name = decode_entry(one).metadata.producer_name
                at, instance, epoch, producer_id, number = map(int, decode_entry(one).payload.split())
                # Nothing of an epoch is stored behind something of a higher one.
                assert epochs.setdefault((name, instance), epoch) <= epoch
                epochs[name, instance] = epoch
                assert number not in stored[at, producer_id], "it is stored twice"
                stored[at, producer_id][number] = (log_number, index)
        for at, client in enumerate(self.clients):
            for producer_id in self.producers[client]:
                found = stored[at, producer_id]
                numbers = sorted(found)
                # In order, and no gap but what was refused.
                assert sorted(found.values()) == [found[number] for number in numbers]
                bad = {number for client_at, one, number in self.bad if (client_at, one) == (at, producer_id)}
                if numbers:
                    assert set(range(numbers[-1] + 1)) - set(numbers) <= bad
                receipted = [number for one, number in client.receipts if one == producer_id]
                assert set(receipted) <= set(numbers)
                assert {one.number for one in client.refused if one.producer_id == producer_id} <= bad
                for number in receipted:
                    assert client.receipts[producer_id, number] == (7, found[number][1])
        assert self.server.budget.used_bytes == 0
        for topic in self.server.storage.opened:
            assert topic.budget.used_bytes == 0
            assert not topic.producers.connected()


@pytest.mark.parametrize("seed", range(40))
async def test_persisted_entries_are_unique_and_in_publish_and_epoch_order(seed: int) -> None:
    """CHK-33, PRD-10."""
    await Publishing(seed).play()


@pytest.mark.parametrize("seed", range(3))
async def test_corrupted_produce_streams_are_refused_and_harm_no_others(seed: int) -> None:
    """CHK-49 for the stream `produce`: bytes that were changed anywhere end the stream with a refusal at most; others
    are served on, and the broker holds nothing of ended streams.
    """
    chance = random.Random(seed)

    server = ProduceServer()
    transport = InProcessTransport()
    listener = await transport.listen("b:1", server)
    connection = transport.connect("b:1")
    good = ProduceClient(connection.open_stream("produce"))
    await good.open(1, "good")
    for number in range(60):
        client = ProduceClient(connection.open_stream("produce"))
        with contextlib.suppress(TransportError):
            for _ in range(1 + chance.randrange(4)):
                await client.stream.send(_changed(chance, number))
            await client.stream.finish()
        await until(lambda client=client: client.over, "the stream is over")  # type: ignore[misc]
        assert client.error is None or isinstance(client.error, Rejected), client.error
    await good.send((1, 0, [entry(0, producer="good")]))
    await until(lambda: len(good.receipts) == 1, "others are served")
    assert server.budget.used_bytes == 0
    assert sum(len(topic.producers.connected()) for topic in server.topics.loaded()) == 1
    await connection.close()
    await listener.close()


def _changed(chance: random.Random, number: int) -> bytes:
    request = ProduceRequest(
        open=[OpenProducer(producer_id=2, topic="t", producer_name=f"p{number}", instance=b"i", connection_epoch=1)],
        frame=Frame(
            runs=[Run(channel=2, first=0, count=2)], entries=[entry(0, producer=f"p{number}"), entry(1, bytes(30))]
        ),
        close=[CloseProducer(producer_id=2)] if chance.randrange(2) else [],
    )
    data = bytearray(request.SerializeToString())
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(data))
        kind = chance.randrange(3)
        if kind == 0:
            data[at] = chance.randrange(256)
        elif kind == 1:
            del data[at : at + chance.randrange(8)]
        else:
            data[at:at] = chance.randbytes(chance.randrange(8))
    return bytes(data)
