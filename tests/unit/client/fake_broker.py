"""A fake broker for producers, which stores entries in memory and follows the contract of broker.proto.

It checks what a real one would: checksums and sizes of entries, numbers without gaps, epochs of producers. Tests inject
faults: they hold back receipts, break streams, close producers and delete topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from magnetar_protos.broker_pb2 import (
    EntryRefused,
    ErrorCode,
    OpenProducer,
    Problem,
    ProduceAnswer,
    ProducerEnded,
    ProduceRequest,
    ProducerOpened,
    Receipt,
)
from magnetar_wire.batch import decode_messages
from magnetar_wire.entry import decode_entry
from magnetar_wire.errors import WireError
from magnetar_wire.frame import DecodedRun, decode_frame
from magnetar_wire.messages import Messages
from magnetar_wire.transport import Stream
from tests.unit.client.lookup_broker import ADDRESS, LookupBroker


@dataclass
class Topic:
    """A topic with one ledger."""

    name: str
    ledger_id: int
    incarnation: str
    entries: list[bytes] = field(default_factory=list)
    # By producer's name.
    last_sequence_ids: dict[str, int] = field(default_factory=dict)
    # Open producers, by name.
    producers: dict[str, _Producer] = field(default_factory=dict)

    def messages(self) -> list[Messages]:
        return [decode_messages(decode_entry(entry)) for entry in self.entries]

    def payloads(self) -> list[bytes | None]:
        return [payload for messages in self.messages() for payload in messages.payloads]


@dataclass(eq=False)
class _Producer:
    session: ProduceSession
    id: int
    name: str
    instance: bytes
    epoch: int
    topic: Topic
    next_number: int = 0


class FakeBroker(LookupBroker):
    """Serves producers."""

    def __init__(self, address: str = ADDRESS) -> None:
        super().__init__(address)
        self.topics: dict[str, Topic] = {}
        self.produce_sessions: list[ProduceSession] = []
        # Every OpenProducer, in order.
        self.opened: list[OpenProducer] = []
        # Whether producers with a schema get a version.
        self.has_versions = True
        # The limit in the answer to an opening; 0: none.
        self.max_message_bytes = 0
        # Decides which entries are refused.
        self.refuses: Callable[[bytes], bool] = lambda _: False
        # Cleared: entries are stored, and get no receipts.
        self.receipting = asyncio.Event()
        self.receipting.set()
        # Producers of this topic are closed with this error at their first entry.
        self.ends: tuple[Topic, ErrorCode] | None = None
        self._ledgers = 0
        self._names = 0

    async def stop(self) -> None:
        await super().stop()
        for topic in self.topics.values():
            topic.producers.clear()
        self.produce_sessions.clear()

    def topic(self, name: str) -> Topic:
        full = name if "://" in name else f"persistent://public/default/{name}"
        if full not in self.topics:
            self._ledgers += 1
            self.topics[full] = Topic(full, self._ledgers, f"incarnation-{self._ledgers}")
        return self.topics[full]

    def delete(self, name: str) -> None:
        """Delete a topic, and close its producers."""
        topic = self.topic(name)
        del self.topics[topic.name]
        self.schemas.pop(topic.name, None)
        self.end_producers(topic, ErrorCode.SERVICE_NOT_READY)

    def end_producers(self, topic: Topic, code: ErrorCode) -> None:
        for producer in list(topic.producers.values()):
            producer.session.end(producer, Problem(code=code, text="ended by the test"))

    def problem_of(self, topic: str) -> Problem | None:
        """Return the error for a producer of this topic, if there is one."""
        if self.owners.get(topic, self.address) != self.address:
            return Problem(code=ErrorCode.SERVICE_NOT_READY, text=f"{topic} is another broker's")
        return self.problem(topic)

    def make_name(self) -> str:
        self._names += 1
        return f"standalone-{self._names}" if self.address == ADDRESS else f"{self.address}-{self._names}"

    async def serve_stream(self, method: str, stream: Stream) -> None:
        if method != "produce":
            return await super().serve_stream(method, stream)
        session = ProduceSession(self, stream)
        self.produce_sessions.append(session)
        try:
            await session.serve()
        finally:
            if session in self.produce_sessions:
                self.produce_sessions.remove(session)
            session.close_producers()


class ProduceSession:
    def __init__(self, broker: FakeBroker, stream: Stream) -> None:
        self.stream = stream
        self._broker = broker
        self._producers: dict[int, _Producer] = {}
        self._ids: set[int] = set()
        self._answers: asyncio.Queue[ProduceAnswer] = asyncio.Queue()
        # The number of entries, and of bytes, of each received message.
        self.frames: list[int] = []
        self.sizes: list[int] = []

    async def serve(self) -> None:
        sender = asyncio.get_running_loop().create_task(self._send())
        try:
            while (message := await self.stream.receive()) is not None:
                self.sizes.append(len(message))
                self._handle(ProduceRequest.FromString(message))
        finally:
            sender.cancel()
            await asyncio.wait([sender])

    def close_producers(self) -> None:
        for producer in self._producers.values():
            self._forget(producer)

    def end(self, producer: _Producer, problem: Problem | None) -> None:
        self._producers.pop(producer.id, None)
        self._forget(producer)
        self._answers.put_nowait(ProduceAnswer(ended=[ProducerEnded(producer_id=producer.id, problem=problem)]))

    def send(self, answer: ProduceAnswer) -> None:
        self._answers.put_nowait(answer)

    @staticmethod
    def _forget(producer: _Producer) -> None:
        if producer.topic.producers.get(producer.name) is producer:
            del producer.topic.producers[producer.name]

    async def _send(self) -> None:
        while True:
            answer = await self._answers.get()
            await self._broker.answering.wait()
            if answer.receipts or answer.refused:
                await self._broker.receipting.wait()
            await self.stream.send(answer.SerializeToString())

    def _handle(self, request: ProduceRequest) -> None:
        for opening in request.open:
            self._open(opening)
        runs = decode_frame(request.frame)
        self.frames.append(sum(len(run.entries) for run in runs))
        answer = ProduceAnswer()
        if runs and self._broker.ends is not None:
            self._broker.end_producers(*self._broker.ends)
            return
        for run in runs:
            if run.channel in self._producers:
                self._store(self._producers[run.channel], run, answer)
        if runs:
            self._answers.put_nowait(answer)
        for closing in request.close:
            if (producer := self._producers.get(closing.producer_id)) is not None:
                self.end(producer, None)

    def _open(self, opening: OpenProducer) -> None:
        broker = self._broker
        broker.opened.append(opening)
        assert opening.producer_id not in self._ids, "an id is never used twice on one stream"
        self._ids.add(opening.producer_id)
        problem = broker.problem_of(opening.topic)
        if problem is None and opening.incarnation and opening.topic not in broker.topics:
            problem = Problem(code=ErrorCode.TOPIC_NOT_FOUND, text=f"{opening.topic} was deleted")
        topic = broker.topic(opening.topic)
        name = opening.producer_name or broker.make_name()
        if problem is None and opening.incarnation not in ("", topic.incarnation):
            problem = Problem(code=ErrorCode.INCARNATION_CHANGED, text=f"{topic.name} was recreated")
        present = topic.producers.get(name)
        if problem is None and present is not None:
            if (present.instance, True) == (opening.instance, present.epoch < opening.connection_epoch):
                present.session.end(present, Problem(code=ErrorCode.SERVICE_NOT_READY, text="evicted"))
            else:
                problem = Problem(code=ErrorCode.PRODUCER_BUSY, text=f"{topic.name} has a producer {name}")
        if problem is not None:
            ended = ProducerEnded(producer_id=opening.producer_id, problem=problem)
            self._answers.put_nowait(ProduceAnswer(ended=[ended]))
            return
        producer = _Producer(self, opening.producer_id, name, opening.instance, opening.connection_epoch, topic)
        topic.producers[name] = self._producers[producer.id] = producer
        last = topic.last_sequence_ids.get(name, -1)
        opened = ProducerOpened(
            producer_id=producer.id,
            producer_name=name,
            incarnation=topic.incarnation,
            last_sequence_id=last,
            max_message_bytes=broker.max_message_bytes,
        )
        if opening.HasField("schema") and broker.has_versions:
            opened.schema_version = broker.add_schema(opening.topic, opening.schema)
        self._answers.put_nowait(ProduceAnswer(opened=[opened]))

    def _store(self, producer: _Producer, run: DecodedRun, answer: ProduceAnswer) -> None:
        assert run.first == producer.next_number, "numbers have no gaps"
        producer.next_number += len(run.entries)
        topic = producer.topic
        if self._broker.owners.get(topic.name, self._broker.address) != self._broker.address:
            self.end(producer, self._broker.problem_of(topic.name))  # like a broker whose ledger was fenced
            return
        for number, entry in enumerate(run.entries, run.first):
            try:
                metadata = decode_entry(entry).metadata
                assert metadata.producer_name == producer.name
                if self._broker.refuses(entry):
                    raise WireError("refused by the test")
            except WireError as error:
                problem = Problem(code=ErrorCode.CHECKSUM_ERROR, text=str(error))
                answer.refused.append(EntryRefused(producer_id=producer.id, number=number, problem=problem))
                continue
            last = answer.receipts[-1] if answer.receipts else None
            if last is not None and last.producer_id == producer.id and last.first + last.count == number:
                last.count += 1
            else:
                answer.receipts.append(
                    Receipt(
                        producer_id=producer.id,
                        first=number,
                        count=1,
                        ledger_id=topic.ledger_id,
                        first_entry_id=len(topic.entries),
                    )
                )
            topic.entries.append(entry)
            last_id = max(metadata.sequence_id, metadata.highest_sequence_id)
            topic.last_sequence_ids[producer.name] = max(topic.last_sequence_ids.get(producer.name, -1), last_id)
