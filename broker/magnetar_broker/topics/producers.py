"""A topic's producers: they are opened one after another, each with a name of its own, and closed with the topic.

Opening a producer takes these steps. Each may refuse the request with an error:

    the topic is open and not terminated ─► the request is within its limits ─► backlog quotas (backlog_quotas.py)
      ─► the schema is compatible ─► deduplication has read what is stored ─► the topic has not too many producers
      ─► access mode (producer_access.py): fences other producers, or waits for them, and stores the topic epoch
      ─► name (producer_names.py): evicts the client's earlier producer of that name, its predecessor
      ─► all entries of the predecessor are decided; for an exclusive producer, those of all earlier producers

A producer that has left is recorded here until all its entries are persisted or refused, because its successor waits
for that. So the application of an exclusive producer can read everything that others have published before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from magnetar_broker.counters import BrokerCounters, TopicCounters
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import TopicLog
from magnetar_broker.settings.topics import TopicSettings
from magnetar_broker.system_topics import is_system_topic
from magnetar_broker.topics.consumer import MAX_CLIENT_VERSION_LENGTH
from magnetar_broker.topics.deduplication.deduplication import Deduplication
from magnetar_broker.topics.producer import Producer, TopicPublishing
from magnetar_broker.topics.producer_access import TopicAccess
from magnetar_broker.topics.producer_access_rules import AccessRequest
from magnetar_broker.topics.producer_names import ProducerNames
from magnetar_broker.topics.producer_sink import ProducerIdentity, ProducerSink
from magnetar_broker.topics.publish_throttle import PublishThrottle
from magnetar_broker.topics.topic_schemas import TopicSchemas
from magnetar_protos.broker_pb2 import ErrorCode, OpenProducer, ProducerAccessMode
from magnetar_wire.clock import Clock
from magnetar_wire.process.addresses import get_host
from magnetar_wire.randomness import Randomness

__all__ = ["Producers"]

_NAME_BYTES: Final = 6
_MAX_NAME_LENGTH: Final = 256
_MAX_INSTANCE_BYTES: Final = 64
_MAX_PROPERTIES_BYTES: Final = 16_384


class Producers:
    __slots__ = (
        "_access",
        "_check_quotas",
        "_check_served",
        "_clock",
        "_deduplication",
        "_log",
        "_names",
        "_opening",
        "_publishing",
        "_randomness",
        "_reported_waiting",
        "_schemas",
        "_settings",
        "_undecided",
    )

    def __init__(
        self,
        log: TopicLog,
        schemas: TopicSchemas,
        settings: TopicSettings,
        clock: Clock,
        randomness: Randomness,
        throttle: PublishThrottle,
        counters: TopicCounters,
        broker_counters: BrokerCounters,
        names: ProducerNames[Producer],
        deduplication: Deduplication[Producer],
        check_served: Callable[[], None],
        check_quotas: Callable[[], Awaitable[None]],
    ) -> None:
        """`check_served` raises `BrokerError` if the topic is being closed, and `check_quotas` if a backlog quota
        blocks producers."""
        self._log = log
        self._schemas = schemas
        self._settings = settings
        self._randomness = randomness
        self._check_served = check_served
        self._check_quotas = check_quotas
        self._clock = clock
        self._names = names
        self._deduplication = deduplication
        self._publishing = TopicPublishing(
            log=log,
            throttle=throttle,
            settings=settings,
            clock=clock,
            counters=counters,
            broker_counters=broker_counters,
            record_stored=deduplication.record_stored,
        )
        self._access = TopicAccess(log, self._evict)
        # The number of requests that are being handled.
        self._opening = 0
        # By name, producers that have left and have entries that are not decided.
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

    @property
    def topic_epoch(self) -> int | None:
        """The topic epoch. None: the topic never had an exclusive producer."""
        return self._access.topic_epoch

    @property
    def queued(self) -> int:
        """The number of producers that wait to become the exclusive one."""
        return self._access.waiting

    @property
    def opening(self) -> int:
        """The number of producers that are being opened, including those that wait."""
        return self._opening

    def end_queued(self, error: BrokerError) -> None:
        """Refuse the producers that wait to become the exclusive one: the topic accepts no more requests."""
        self._access.end_waiting(error)

    def report_waiting(self) -> None:
        """Report to producers why publishing waits, if that has changed. Housekeeping calls it about every second."""
        waiting_for = self._log.waiting_for
        if waiting_for != self._reported_waiting:
            self._reported_waiting = waiting_for
            for producer in self.connected():
                producer.report_waiting(waiting_for)

    async def open(self, opening: OpenProducer, sink: ProducerSink, address: str = "") -> Producer:
        """Open a producer with a name that no other producer of the topic has.

        When this returns, all entries of the previous producer with that name are decided; for an exclusive producer,
        those of all previous ones. Before it returns, only `report_waiting` and `queued` of the sink are called. Raises
        `BrokerError`. If it is cancelled, no producer is open, but its schema may have been added.
        """
        self._opening += 1
        try:
            return await self._open(opening, sink, address)
        finally:
            self._opening -= 1

    async def _open(self, opening: OpenProducer, sink: ProducerSink, address: str) -> Producer:
        self._check_served()
        self._log.check_not_terminated()
        _check_request(opening)
        await self._check_quotas()
        schema_version = await self._schemas.admit_producer(opening.schema, address)
        await self._wait_for_deduplication(sink)
        if self._deduplication.is_on and not opening.incarnation:
            # A new producer goes on with the last sequence id. If another broker has stored more of its predecessor
            # since, its first messages would be taken for duplicates of those, and dropped.
            await self._log.check_current()
        is_exclusive = opening.access_mode != ProducerAccessMode.ACCESS_SHARED
        if is_exclusive and opening.HasField("topic_epoch") and not opening.incarnation:
            await self._access.check_first_partition(opening.topic_epoch)
        self._check_served()
        name = opening.producer_name or self._generate_name()
        self._check_capacity(name, opening.access_mode, address)
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
            access_mode=opening.access_mode,
        )
        producer = Producer(identity, self._publishing, sink)
        predecessor = self._find_predecessor(identity)
        if predecessor is None:
            self._check_queue(opening)
        request = AccessRequest(
            mode=opening.access_mode,
            name=name,
            epoch=opening.topic_epoch if opening.HasField("topic_epoch") else None,
            was_open=bool(opening.incarnation),
        )
        try:
            await self._access.admit(producer, request, predecessor)
            _check_not_ended(producer)
            evicted = self._names.claim(name, opening.instance, opening.connection_epoch, producer)
            if evicted is not None:
                self._evict(evicted, _replaced(name))
            if self._reported_waiting:
                producer.report_waiting(self._reported_waiting)
            await self._wait_for_earlier_entries(identity)
            _check_not_ended(producer)
            self._check_served()
            self._log.check_not_terminated()
        except BaseException:
            self._names.release(name, producer, self._clock.time_ms())
            self._access.leave(producer)
            raise
        producer.is_opened = True
        if self._deduplication.is_on:
            producer.begin_deduplication(self._names.find_stored(name))
        return producer

    def disconnect(self, error: BrokerError) -> None:
        """End all producers, each as soon as the entries that the log has accepted from it are decided."""
        self.end_queued(error)  # they would be refused, too
        for producer in self.connected():
            producer.end_when_settled(error)

    def _check_capacity(self, name: str, mode: ProducerAccessMode, address: str) -> None:
        """Raise `BrokerError` if the topic has too many producers. `_check_queue` limits exclusive ones that wait."""
        settings, topic = self._settings, self._log.name
        if is_system_topic(topic):
            return
        is_shared = mode == ProducerAccessMode.ACCESS_SHARED
        count, limit = len(self._names.live), settings.max_producers_per_topic
        if is_shared and 0 < limit <= count and name not in self._names.live:
            raise BrokerError(
                ErrorCode.PRODUCER_BUSY,
                f"{topic} has as many producers as max_producers_per_topic allows ({limit}): close some, or raise the "
                "policy or setting",
            )
        limit = settings.max_same_address_producers_per_topic
        if limit and address and name not in self._names.live:
            host = get_host(address)
            count = sum(get_host(one.identity.address) == host for one in self._names.live.values())
            if count >= limit:
                raise BrokerError(
                    ErrorCode.PRODUCER_BUSY,
                    f"{topic} has as many producers from {host} as max_same_address_producers_per_topic allows "
                    f"({limit}): close some, or raise the setting",
                )

    def _check_queue(self, opening: OpenProducer) -> None:
        """Raise `BrokerError` if this producer would wait to become the exclusive one, and too many wait already."""
        if opening.access_mode != ProducerAccessMode.ACCESS_WAIT_FOR_EXCLUSIVE or opening.HasField("topic_epoch"):
            return
        settings = self._settings
        for limit, name in (
            (settings.max_producers_per_topic, "max_producers_per_topic (policy or setting)"),
            (settings.max_waiting_producers_per_topic, "max_waiting_producers_per_topic"),
        ):
            if 0 < limit <= self.queued:
                raise BrokerError(
                    ErrorCode.PRODUCER_BUSY,
                    f"{self.queued} producers wait until they have {self._log.name} to themselves, and {name} is "
                    f"{limit}",
                )

    def _find_predecessor(self, identity: ProducerIdentity) -> Producer | None:
        """Return the earlier producer, connected or being opened, that the same client replaces by this one.

        Raises `BrokerError` if this request is the older one.
        """
        predecessor = self._names.check_epoch(identity.name, identity.instance, identity.epoch)
        if predecessor is None and identity.access_mode != ProducerAccessMode.ACCESS_SHARED and identity.instance:
            # The client may not know yet which name it got.
            predecessor = self._access.find_instance(identity.instance)
        return predecessor

    def _evict(self, producer: Producer, error: BrokerError) -> None:
        """End a producer that another one replaces or fences, also if it is still being opened."""
        producer.end(error)
        self.leave(producer, error)

    async def _wait_for_earlier_entries(self, identity: ProducerIdentity) -> None:
        if identity.access_mode == ProducerAccessMode.ACCESS_SHARED:
            while before := self._undecided.get(identity.name):
                await before[0].settled()
        else:
            while self._undecided:
                await next(iter(self._undecided.values()))[0].settled()

    async def _wait_for_deduplication(self, sink: ProducerSink) -> None:
        """Return when deduplication, if it is on, has read what is stored. Raises `BrokerError`."""
        if self._deduplication.is_ready:
            return
        await self._deduplication.wait_until_ready(sink.report_waiting)
        self._check_served()
        self._log.check_not_terminated()

    def last_sequence_id(self, producer: Producer) -> int:
        return self._names.last_sequence_id(producer.producer_name)

    def leave(self, producer: Producer, error: BrokerError) -> None:
        """End a producer and release its name. Its pending entries are still decided."""
        producer.end(error, report=False)
        self._names.release(producer.producer_name, producer, self._clock.time_ms())
        self._record_undecided(producer)
        self._access.leave(producer)

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


def _check_not_ended(producer: Producer) -> None:
    """Raise the error that ended the producer, or the topic, while it was being opened."""
    if producer.error is not None:
        raise producer.error.again()


def _replaced(name: str) -> BrokerError:
    text = f"producer {name!r} has reconnected: messages of its former connection are not accepted any more"
    return BrokerError(ErrorCode.PRODUCER_FENCED, text)


def _check_request(opening: OpenProducer) -> None:
    if opening.access_mode not in ProducerAccessMode.values():
        raise BrokerError(ErrorCode.UNSUPPORTED, f"there is no producer access mode {opening.access_mode}")
    properties_size = sum(len(key) + len(value) for key, value in opening.properties.items())
    for what, size, limit in (
        ("the producer's name", len(opening.producer_name), _MAX_NAME_LENGTH),
        ("the producer's instance", len(opening.instance), _MAX_INSTANCE_BYTES),
        ("the producer's properties", properties_size, _MAX_PROPERTIES_BYTES),
    ):
        if size > limit:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"{what} has {size} characters, above the limit of {limit}")
