"""The client's end of a `consume` stream: it records what it gets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from magnetar_broker.counters import BrokerCounters
from magnetar_broker.errors import BrokerError
from magnetar_broker.position import Position
from magnetar_broker.server.grpc.consume_stream import ConsumeStream
from magnetar_broker.settings.delivery import ConsumeSettings
from magnetar_broker.topics.consumer import Consumer, ConsumerSink
from magnetar_broker.topics.dispatch.delivery_capacity import OutboxBudget
from magnetar_broker.topics.subscriptions import Subscriptions
from magnetar_protos.broker_pb2 import (
    Acknowledge,
    ConsumeAnswer,
    ConsumeRequest,
    EntryRange,
    ErrorCode,
    Flow,
    OpenConsumer,
    Problem,
    SubscriptionType,
)
from magnetar_wire.frame import decode_frame, find_entry_ids
from magnetar_wire.in_process_transport import InProcessTransport
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import Code, Peer, Refusal, Stream, TransportError
from tests.unit.broker.subscription_scene import EARLIEST

__all__ = ["ConsumeClient", "ConsumeServer", "eventually"]


async def eventually(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


@dataclass
class _Topic:
    subscriptions: Subscriptions

    async def subscribe(self, opened: OpenConsumer, sink: ConsumerSink) -> Consumer:
        return await self.subscriptions.subscribe(opened, sink)


class ConsumeServer:
    """Serves `consume` for the topics that it is given."""

    def __init__(self, options: ConsumeSettings | None = None) -> None:
        self.topics: dict[str, Subscriptions] = {}
        self.options = options or ConsumeSettings()
        self.counters = BrokerCounters()
        self.budget = OutboxBudget(self.options.max_queued_bytes)
        self.sessions: list[ConsumeStream] = []
        self.transport = InProcessTransport()
        # How many streams.
        self.serving = 0
        # Finding a topic waits for this.
        self.gate = asyncio.Event()
        self.gate.set()
        # How often a topic was looked for.
        self.finding = 0

    async def find(self, name: TopicName, incarnation: str, create: bool) -> _Topic:
        assert create
        self.finding += 1
        await self.gate.wait()
        if name.local_name not in self.topics:
            raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"there is no topic {name}")
        return _Topic(self.topics[name.local_name])

    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        raise Refusal(Code.UNIMPLEMENTED, method)

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        self.serving += 1
        try:
            session = ConsumeStream(
                stream,
                self.find,
                address=peer.address,
                settings=self.options,
                budget=self.budget,
                counters=self.counters,
            )
            self.sessions.append(session)
            await session.serve()
        finally:
            self.serving -= 1

    async def client(self) -> ConsumeClient:
        listener = await self.transport.listen("broker:0", self)
        return ConsumeClient(self.transport.connect(listener.address).open_stream("consume"))


@dataclass
class Delivered:
    position: Position
    number: int
    epoch: int
    redelivery_count: int
    acknowledged: int
    entry: bytes


@dataclass
class ConsumeClient:
    stream: Stream
    answers: list[ConsumeAnswer] = field(default_factory=list)
    delivered: dict[int, list[Delivered]] = field(default_factory=dict)
    epochs: dict[int, list[int]] = field(default_factory=dict)
    done: dict[int, Problem | None] = field(default_factory=dict)
    ended: dict[int, Problem | None] = field(default_factory=dict)
    error: TransportError | None = None
    # While this is not set, nothing is received.
    reads: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    def start(self) -> ConsumeClient:
        self.reads.set()
        self.task = asyncio.create_task(self._receive())
        return self

    async def stop(self) -> None:
        self.stream.cancel()
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])

    async def _receive(self) -> None:
        try:
            while True:
                await self.reads.wait()
                message = await self.stream.receive()
                if message is None:
                    return
                self._take(ConsumeAnswer.FromString(message))
        except TransportError as error:
            self.error = error

    def _take(self, answer: ConsumeAnswer) -> None:
        self.answers.append(answer)
        for opened in answer.opened:
            self.epochs[opened.consumer_id] = [opened.epoch]
        for began in answer.epochs:
            self.epochs[began.consumer_id].append(began.epoch)
        runs = decode_frame(answer.frame)
        for run, delivery in zip(runs, answer.deliveries, strict=True):
            had = self.delivered.setdefault(run.channel, [])
            assert run.first == (had[-1].number + 1 if had else 0)
            assert not delivery.acknowledged or len(run.entries) == 1
            entry_ids = find_entry_ids(delivery.first_entry_id, delivery.gaps, len(run.entries))
            for number, entry in enumerate(run.entries):
                had.append(
                    Delivered(
                        Position(delivery.ledger_id, entry_ids[number]),
                        run.first + number,
                        delivery.epoch,
                        delivery.redelivery_count,
                        int.from_bytes(delivery.acknowledged, "little"),
                        entry,
                    )
                )
        for done in answer.done:
            self.done[done.request_id] = done.problem if done.HasField("problem") else None
        for ended in answer.ended:
            self.ended[ended.consumer_id] = ended.problem if ended.HasField("problem") else None

    def positions(self, consumer_id: int) -> list[Position]:
        return [one.position for one in self.delivered.get(consumer_id, [])]

    async def send(self, **parts: Any) -> None:
        await self.stream.send(ConsumeRequest(**parts).SerializeToString())

    async def open(
        self,
        consumer_id: int = 1,
        subscription: str = "s",
        kind: SubscriptionType = SubscriptionType.EXCLUSIVE,
        *,
        topic: str = "topic",
        permits: int = 1000,
        broker_metadata: bool = True,
        accepts_gaps: bool = True,
    ) -> None:
        opened = OpenConsumer(
            consumer_id=consumer_id,
            topic=topic,
            subscription=subscription,
            type=kind,
            durable=True,
            start=EARLIEST,
            broker_metadata=broker_metadata,
            accepts_gaps=accepts_gaps,
        )
        await self.send(open=[opened])
        await eventually(lambda: consumer_id in self.epochs or consumer_id in self.ended)
        if permits and consumer_id in self.epochs:
            await self.flow(consumer_id, permits)

    async def flow(self, consumer_id: int, permits: int) -> None:
        await self.send(flow=[Flow(consumer_id=consumer_id, epoch=self.epochs[consumer_id][-1], permits=permits)])

    def ack(self, consumer_id: int, *positions: Position, request_id: int = 0, cumulative: bool = False) -> Acknowledge:
        return Acknowledge(
            consumer_id=consumer_id,
            request_id=request_id,
            epoch=self.epochs[consumer_id][-1],
            cumulative=cumulative,
            entries=[
                EntryRange(ledger_id=ledger_id, first_entry_id=entry_id, last_entry_id=entry_id)
                for ledger_id, entry_id in positions
            ],
        )
