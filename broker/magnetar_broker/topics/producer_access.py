"""Admits the producers of a topic by their access modes (producer_access_rules.py), and stores the topic's epochs.

    request ─► admitted ───────────────► its epoch is stored ─► it may publish
       └─────► queued ─► its turn comes ──┘

**Only one at a time.** A producer is admitted in memory before its epoch is stored, so others are refused, or wait,
while the change of the topic's node is in flight. Fenced producers have ended before it begins. If the node is not
changed, the opening fails, and the next producer of the queue is admitted. If the outcome is unknown, the broker
unloads the topic, and its next owner reads which epoch is stored. A change that has begun goes on if the opening is
cancelled; one that has not is not made.

A producer that reopens with the stored epoch changes nothing in the node. So it is checked that this broker still owns
the topic: the next owner may have admitted another producer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import TopicLog
from magnetar_broker.topics.producer import Producer
from magnetar_broker.topics.producer_access_rules import AccessRequest, ProducerAccess, StaleTopicEpoch, StoredEpoch
from magnetar_protos.broker_pb2 import ErrorCode, ProducerAccessMode
from magnetar_protos.managed_ledger_pb2 import TopicEpoch

__all__ = ["TopicAccess"]

# How many connected producers are pinged for one that they block.
_MAX_PINGED: Final = 100
# How far a producer may raise the number of a first partition that was created again.
_MAX_RAISE: Final = 1_000_000


class TopicAccess:
    __slots__ = (
        "_by_instance",
        "_changes",
        "_check",
        "_checked",
        "_end_fenced",
        "_log",
        "_rules",
        "_storing",
        "_turns",
    )

    def __init__(self, log: TopicLog, end_fenced: Callable[[Producer, BrokerError], object]) -> None:
        """`end_fenced` ends a producer, which may not be open yet, and calls `leave`."""
        self._log = log
        self._end_fenced = end_fenced
        # Made when the first producer is opened.
        self._rules: ProducerAccess[Producer] | None = None
        # By queued producer: it is set when its turn comes, or when it has ended.
        self._turns: dict[Producer, asyncio.Future[None]] = {}
        # The last producer, admitted or queued, of each client's instance.
        self._by_instance: dict[bytes, Producer] = {}
        # The check in progress whether producers that block others are alive, and those producers.
        self._check: asyncio.Task[bool] | None = None
        self._checked: list[Producer] = []
        # Held while an epoch is stored, so that epochs are stored in the order of their numbers.
        self._storing = asyncio.Lock()
        # Tasks that store epochs.
        self._changes: set[asyncio.Task[None]] = set()

    @property
    def topic_epoch(self) -> int | None:
        """The number that was assigned last and stored; None: the topic was never opened exclusively."""
        stored = self._loaded().stored
        return None if stored is None else stored.number

    @property
    def waiting(self) -> int:
        """The number of queued producers."""
        return 0 if self._rules is None else self._rules.waiting

    def find_instance(self, instance: bytes) -> Producer | None:
        """Return the producer, admitted or queued, of a client's instance."""
        return self._by_instance.get(instance)

    def _loaded(self) -> ProducerAccess[Producer]:
        if self._rules is None:
            stored = self._log.topic_epoch
            self._rules = ProducerAccess(
                None if stored is None else _decode_epoch(stored),
                topic=str(self._log.name),
                are_epochs_durable=self._log.name.is_persistent,
            )
        return self._rules

    async def check_first_partition(self, number: int) -> None:
        """Raise `BrokerError` unless `number` may be the epoch that a producer has at the topic's first partition.

        Otherwise one number that is too high would keep all later producers out.
        """
        name = self._log.name
        if not name.is_persistent:  # it forgets numbers when it is unloaded
            return
        if name.partition_index <= 0:
            limit = (self.topic_epoch or 0) + _MAX_RAISE
            if name.partition_index < 0 or number > limit:
                text = f"the epoch of {name} can't be raised to {number}"
                raise BrokerError(ErrorCode.INVALID_ARGUMENT, text)
            return
        first = await self._log.read_first_partition_epoch()
        if first is None or number > first:
            current = "none" if first is None else f"epoch {first}"
            raise StaleTopicEpoch(f"the first partition of {name.base} has {current}, which does not admit {number}")

    async def admit(self, producer: Producer, request: AccessRequest, replaced: Producer | None) -> None:
        """Return when the producer is admitted and its epoch is stored. Then no other one can publish that must not.

        `replaced` is the earlier connection of the same client's producer: it is ended. If this raises `BrokerError`,
        or is cancelled, the caller calls `leave`.
        """
        try:
            is_queued = self._request(producer, request, replaced)
        except StaleTopicEpoch:
            raise
        except BrokerError:
            if await self._check_blockers():
                raise
            is_queued = self._request(producer, request, None)
        if is_queued:
            await self._wait_for_turn(producer)
        if not await self._store(producer) and request.mode != ProducerAccessMode.ACCESS_SHARED:
            await self._log.check_current()

    def _request(self, producer: Producer, request: AccessRequest, replaced: Producer | None) -> bool:
        """Return whether the producer is queued. Raises `BrokerError`."""
        rules = self._loaded()
        try:
            admission = rules.request(producer, request, replaced)
        finally:
            if replaced is not None:
                text = f"producer {request.name!r} has reconnected: its former connection may not publish any more"
                self._end(replaced, text)
            self._admit_next()
        for fenced in admission.fenced:
            self._end(fenced, f"producer {request.name!r} has fenced it: it has opened the topic exclusively")
        if admission.is_queued:
            self._turns[producer] = asyncio.get_running_loop().create_future()
        if producer.identity.instance:
            self._by_instance[producer.identity.instance] = producer
        return admission.is_queued

    def _end(self, producer: Producer, text: str) -> None:
        error = BrokerError(ErrorCode.PRODUCER_FENCED, text)
        self._end_fenced(producer, error)

    def _wake(self, producer: Producer) -> None:
        """End the wait of a queued producer: its turn has come, or it has ended."""
        turn = self._turns.pop(producer, None)
        if turn is not None and not turn.done():
            turn.set_result(None)

    async def _check_blockers(self) -> bool:
        """Return whether the clients of all producers that block others are alive. The others are disconnected.

        Those that are blocked by the same ones share a check.
        """
        blockers = self._loaded().blockers()[:_MAX_PINGED]
        if self._check is None or self._check.done() or self._checked != blockers:
            self._check = asyncio.get_running_loop().create_task(_are_alive(blockers))
            self._checked = blockers
        return await asyncio.shield(self._check)

    async def _wait_for_turn(self, producer: Producer) -> None:
        turn = self._turns[producer]
        producer.report_queued()
        await self._check_blockers()
        await turn
        if producer.error is not None:
            raise producer.error.again()

    async def _store(self, producer: Producer) -> bool:
        """Store what the rules want stored for an admitted producer. Return whether there was something to store.

        Raises `BrokerError`.
        """
        if not self._loaded().must_store(producer):
            return False
        change = asyncio.get_running_loop().create_task(self._change_epoch(producer))
        self._changes.add(change)
        change.add_done_callback(self._on_changed)
        await asyncio.shield(change)
        return True

    def _on_changed(self, change: asyncio.Task[None]) -> None:
        self._changes.discard(change)
        if not change.cancelled():
            change.exception()  # asyncio does not log it, should the opening have been cancelled

    async def _change_epoch(self, producer: Producer) -> None:
        rules = self._loaded()
        epoch: StoredEpoch | None = None

        def choose() -> TopicEpoch | None:
            nonlocal epoch
            if not rules.must_store(producer):  # it has left, or was fenced, while the change waited
                return None
            epoch = rules.assign_epoch(producer)
            return _encode_epoch(epoch)

        async with self._storing:
            try:
                await self._log.change_topic_epoch(choose)
            except BaseException:
                rules.record_not_stored()
                raise
            if epoch is not None:
                rules.record_stored(producer, epoch)

    def leave(self, producer: Producer) -> None:
        """Record that a producer has left, or was not opened. The next one of the queue is admitted."""
        self._wake(producer)
        if self._by_instance.get(producer.identity.instance) is producer:
            del self._by_instance[producer.identity.instance]
        if self._rules is not None:
            self._rules.leave(producer)
            self._admit_next()

    def _admit_next(self) -> None:
        producer = self._loaded().next_admitted()
        if producer is not None:
            self._wake(producer)

    def end_waiting(self, error: BrokerError) -> None:
        """Fail the openings of all queued producers: the topic accepts no more."""
        for producer in [] if self._rules is None else self._rules.waiting_producers():
            producer.end(error)
            self._wake(producer)


async def _are_alive(producers: list[Producer]) -> bool:
    return all(await asyncio.gather(*(one.check_alive() for one in producers)))


def _decode_epoch(stored: TopicEpoch) -> StoredEpoch:
    first = stored.first_partition_number if stored.HasField("first_partition_number") else None
    return StoredEpoch(stored.number, stored.holder, first, stored.from_first_partition)


def _encode_epoch(epoch: StoredEpoch) -> TopicEpoch:
    return TopicEpoch(
        number=epoch.number,
        holder=epoch.holder,
        first_partition_number=epoch.first_partition_number,
        from_first_partition=epoch.from_first_partition,
    )
