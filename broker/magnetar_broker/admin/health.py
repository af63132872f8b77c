"""The health check: publish a message through this broker, and read it back.

The message passes through the same parts as any other: a producer of the broker's own heartbeat topic, the topic's
log, and the bookies. It is read back from the bookies, not from the cache. Before that the metadata store is pinged,
since without it the broker opens no topic and no ledger. So the check succeeds only if all of these parts work within
the timeout.

One message is in flight at a time, for all callers; a caller within a second of the last check gets its result. While a
message hangs, the check reports that, and no further message is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.position import Position
from magnetar_broker.settings.administration import HealthSettings
from magnetar_broker.system_topics import heartbeat_topic
from magnetar_broker.topics.topics import Topics
from magnetar_metadata.store import MetadataStore, SessionState
from magnetar_protos.broker_pb2 import OpenProducer
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_wire.clock import Clock
from magnetar_wire.entry import decode_entry, encode_entry
from magnetar_wire.process.single_flight_check import SingleFlightCheck
from magnetar_wire.randomness import Randomness

__all__ = ["BrokerHealth", "SessionParts"]

_PRODUCER: Final = "__heartbeat"
_TOKEN_BYTES: Final = 16


class Registered(Protocol):
    @property
    def waits_for(self) -> str:
        """The reason why the broker is not registered yet, or an empty text."""


class SessionParts(Protocol):
    """The parts of a broker session that the health check uses."""

    store: MetadataStore
    topics: Topics

    @property
    def ownership(self) -> Registered: ...


class BrokerHealth:
    def __init__(
        self,
        session: Callable[[], SessionParts | None],
        broker_id: Callable[[], str],
        settings: HealthSettings,
        clock: Clock,
        randomness: Randomness,
        waits_for: Callable[[], str] = str,
    ) -> None:
        """`waits_for` returns the reason why the broker has no session yet, or an empty text."""
        self._session_parts = session
        self._waits_for = waits_for
        self._broker_id = broker_id
        self._settings = settings
        self._clock = clock
        self._randomness = randomness
        self._instance = randomness.token(_TOKEN_BYTES)
        self._messages = 0
        # The check in the present session, and that session.
        self._checked: SessionParts | None = None
        self._check: SingleFlightCheck | None = None

    async def check(self) -> tuple[bool, list[str]]:
        """Return whether a message can be published and read, and if not, why."""
        session = self._session_parts()
        if session is None:
            waits_for = self._waits_for()
            return False, [waits_for or "the broker has no session with its metadata store, and serves nothing"]
        if waits_for := session.ownership.waits_for:
            # Another process may own the heartbeat topic: it would lose it.
            return False, [waits_for]
        if session is not self._checked or self._check is None:
            before, self._checked = self._check, session
            self._check = SingleFlightCheck(
                lambda: self._send_and_read(session), self._settings.health_check_timeout_seconds, self._clock
            )
            if before is not None:
                await before.close()
        self._check.timeout_s = self._settings.health_check_timeout_seconds
        problem = await self._check.find_problem(self._settings.health_check_max_age_seconds)
        if not problem:
            return True, []
        reasons = [f"a message that was sent through the broker {problem}"]
        if session.store.session.state is not SessionState.CONNECTED:
            reasons.append(f"the session with the metadata store is {session.store.session.state.value}")
        topic = session.topics.get_loaded(heartbeat_topic(self._broker_id()))
        if topic is not None and topic.log.waiting_for:
            reasons.append(f"publishing waits: {topic.log.waiting_for}")
        return False, reasons

    async def close(self) -> None:
        if self._check is not None:
            await self._check.close()

    async def _send_and_read(self, session: SessionParts) -> None:
        """Publish a message and read it back. Raises the error of the first step that fails."""
        await session.store.ping()
        name = heartbeat_topic(self._broker_id())
        topic = await session.topics.get(name, create=True, explicit=True)
        self._messages += 1
        payload = self._randomness.token(_TOKEN_BYTES)
        metadata = MessageMetadata(
            producer_name=_PRODUCER, sequence_id=self._messages, publish_time=self._clock.time_ms()
        )
        opening = OpenProducer(
            topic=str(name),
            producer_name=_PRODUCER,
            instance=self._instance,
            connection_epoch=self._messages,
        )
        sent = _Sent()
        producer = await topic.producers.open(opening, sent)
        try:
            producer.publish(0, [encode_entry(metadata, payload)])
            position = await sent.outcome
        finally:
            topic.producers.leave(producer, TopicUnloaded("the heartbeat has been read"))
        stored = await topic.managed_ledger.reads.read_stored(position)
        if stored is None or decode_entry(stored.stored).payload != payload:
            raise TopicUnloaded(f"the bookies return another entry for {position} of {name} than was stored")


class _Sent:
    """A ProducerSink for one message."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[Position] = asyncio.get_running_loop().create_future()

    def partly_stored(self, number: int, position: Position, duplicates: int) -> None:
        """It sends no batches."""

    def stored(self, number: int, position: Position) -> None:
        if not self.outcome.done():
            self.outcome.set_result(position)

    def refused(self, number: int, error: BrokerError) -> None:
        self.ended(error)

    def decided(self, size_bytes: int) -> None:
        pass

    async def check_alive(self) -> bool:
        return True

    def report_waiting(self, waiting_for: str) -> None:
        pass  # the health check reads the log's own reason

    def topic_grew(self, partitions: int) -> None:
        pass

    def queued(self, producer_name: str) -> None: ...

    def ended(self, error: BrokerError) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)
