"""A topic's producers: opened one after another, each with a name that no other one has, and ended with the topic.

A request to open a producer passes these stages, in this order, and each may refuse it:

    the topic is served and not terminated ─► the request's own limits ─► backlog quotas (backlog_quotas.py)
      ─► its schema ─► limits of the topic ─► its name (producer_names.py): a predecessor of that name is evicted
      ─► the predecessor's entries are decided

Entries of a producer that has left are still decided. Until then it is recorded here: its successor waits for that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from magnetar_broker.counters import BrokerCounters, TopicCounters
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_broker.settings.topics import TopicSettings
from magnetar_broker.topics.consumer import MAX_CLIENT_VERSION_LENGTH
from magnetar_broker.topics.producer import Producer, ProducerIdentity, ProducerSink, TopicPublishing
from magnetar_broker.topics.producer_names import ProducerNames
from magnetar_broker.topics.publish_gate import PublishGate
from magnetar_broker.topics.topic_schemas import TopicSchemas
from magnetar_protos.broker_pb2 import ErrorCode, OpenProducer
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness

__all__ = ["Producers"]

_NAME_BYTES: Final = 6
_MAX_NAME_LENGTH: Final = 256
_MAX_INSTANCE_BYTES: Final = 64
_MAX_PROPERTIES_BYTES: Final = 16_384


class Producers:
    __slots__ = (
        "_check_quotas",
        "_check_served",
        "_log",
        "_names",
        "_publishing",
        "_randomness",
        "_reported_waiting",
        "_schemas",
        "_settings",
        "_undecided",
    )

    def __init__(
        self,
        log: ManagedLedger,
        schemas: TopicSchemas,
        settings: TopicSettings,
        clock: Clock,
        randomness: Randomness,
        gate: PublishGate,
        counters: TopicCounters,
        broker_counters: BrokerCounters,
        check_served: Callable[[], None],
        check_quotas: Callable[[], Awaitable[None]],
    ) -> None:
        """`check_served` raises `BrokerError` when the topic accepts no more requests, and `check_quotas` while it
        accepts no producers because of its backlog."""
        self._log = log
        self._schemas = schemas
        self._settings = settings
        self._randomness = randomness
        self._check_served = check_served
        self._check_quotas = check_quotas
        self._names: ProducerNames[Producer] = ProducerNames()
        self._publishing = TopicPublishing(
            log=log,
            gate=gate,
            max_message_bytes=settings.max_message_size,
            clock=clock,
            counters=counters,
            broker_counters=broker_counters,
            record_stored=self._names.record_stored,
        )
        # By name, producers that have left and whose entries are not all decided.
        self._undecided: dict[str, list[Producer]] = {}
        # What `report_waiting` reported last.
        self._reported_waiting = ""

    def connected(self) -> list[Producer]:
        return list(self._names.live.values())

    def __len__(self) -> int:
        """The number of connected producers."""
        return len(self._names.live)

    def undecided(self) -> list[Producer]:
        """Return the connected producers, and those that have left with entries that are not decided yet.

        The simulation compares their entries with the topic's bound.
        """
        left = [one for several in self._undecided.values() for one in several]
        return list(dict.fromkeys([*self.connected(), *left]))

    def report_waiting(self) -> None:
        """Report to producers why publishing waits, if that has changed. Housekeeping calls it about every second."""
        waiting_for = self._log.waiting_for
        if waiting_for != self._reported_waiting:
            self._reported_waiting = waiting_for
            for producer in self.connected():
                producer.report_waiting(waiting_for)

    async def open(self, opening: OpenProducer, sink: ProducerSink, address: str = "") -> Producer:
        """Open a producer with a name that no other producer of the topic has.

        When this returns, all entries of the previous producer with that name are decided. Until then only
        `report_waiting` of the sink is called. Raises `BrokerError`. If it is cancelled, no producer is open, but its
        schema may have been added.
        """
        self._check_served()
        self._log.check_not_terminated()
        _check_request(opening)
        await self._check_quotas()
        schema_version = await self._schemas.admit_producer(opening.schema, address)
        limit = self._settings.max_producers_per_topic
        name = opening.producer_name or self._generate_name()
        if limit and len(self._names.live) >= limit and name not in self._names.live:
            raise BrokerError(
                ErrorCode.PRODUCER_BUSY,
                f"{self._log.name} has {limit} producers, its maximum (max_producers_per_topic)",
            )
        identity = ProducerIdentity(
            producer_id=opening.producer_id,
            name=name,
            instance=opening.instance,
            epoch=opening.connection_epoch,
            properties=dict(opening.properties),
            address=address,
            client_version=opening.client_version[:MAX_CLIENT_VERSION_LENGTH],
            partial=opening.partial,
            schema_version=schema_version,
        )
        producer = Producer(identity, self._publishing, sink)
        evicted = self._names.claim(name, opening.instance, opening.connection_epoch, producer)
        if evicted is not None:
            evicted.end(
                BrokerError(
                    ErrorCode.PRODUCER_FENCED,
                    f"producer {name!r} has reconnected: messages of its former connection are not accepted any more",
                )
            )
            self._record_undecided(evicted)
        if self._reported_waiting:
            producer.report_waiting(self._reported_waiting)
        try:
            while before := self._undecided.get(name):
                await before[0].settled()
            if producer.error is not None:  # it was evicted, or the topic was closed, while it waited
                raise producer.error.again()
            self._check_served()
            self._log.check_not_terminated()
        except BaseException:
            self._names.release(name, producer)
            raise
        producer.is_opened = True
        return producer

    def disconnect(self, error: BrokerError) -> None:
        """End all producers, each as soon as the entries that the log has accepted from it are decided."""
        for producer in self.connected():
            producer.end_when_settled(error)

    def last_sequence_id(self, producer: Producer) -> int:
        return self._names.last_sequence_id(producer.producer_name)

    def leave(self, producer: Producer, error: BrokerError) -> None:
        """End a producer and release its name. Its pending entries are still decided."""
        producer.end(error, report=False)
        self._names.release(producer.producer_name, producer)
        self._record_undecided(producer)

    def _record_undecided(self, producer: Producer) -> None:
        """Record a producer that has left until all its entries are decided."""
        if not producer.pending:
            return
        undecided = self._undecided.setdefault(producer.producer_name, [])
        if producer in undecided:
            return
        undecided.append(producer)

        def forget() -> None:
            undecided.remove(producer)
            if not undecided and self._undecided.get(producer.producer_name) is undecided:
                del self._undecided[producer.producer_name]

        producer.on_settled = forget

    def _generate_name(self) -> str:
        while True:
            name = f"magnetar-{self._randomness.token(_NAME_BYTES).hex()}"
            if name not in self._names.live:
                return name


def _check_request(opening: OpenProducer) -> None:
    properties_size = sum(len(key) + len(value) for key, value in opening.properties.items())
    for what, size, limit in (
        ("the producer's name", len(opening.producer_name), _MAX_NAME_LENGTH),
        ("the producer's instance", len(opening.instance), _MAX_INSTANCE_BYTES),
        ("the producer's properties", properties_size, _MAX_PROPERTIES_BYTES),
    ):
        if size > limit:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"{what} has {size} characters, above the limit of {limit}")
