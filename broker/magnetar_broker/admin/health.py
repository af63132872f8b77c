"""Whether a message can go through this broker: one is sent through it, and read back.

The message goes the way that all take: a producer of the broker's own heartbeat topic, the topic's log, the bookies. It
is read back from the bookies, not from the cache. Before that the metadata store is asked for an answer, since without
it the broker opens no topic and no ledger. So the answer is yes only if all of that worked within the bound, just now.

However many ask, one message is on its way at a time; whoever asks within a second of the last gets its answer. While
one hangs, everybody is told so, and no further ones are sent after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from magnetar_broker.admin.health_options import HealthOptions
from magnetar_broker.core.position import Position
from magnetar_broker.core.system_topics import heartbeat_topic
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.topic.topics import Topics
from magnetar_metadata.store import MetadataStore, SessionState
from magnetar_protos.broker_pb2 import OpenProducer
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_wire.clock import Clock
from magnetar_wire.entry import decode_entry, encode_entry
from magnetar_wire.process.single_flight_check import SingleFlightCheck
from magnetar_wire.randomness import Randomness

__all__ = ["BrokerHealth", "Living"]

_PRODUCER: Final = "__heartbeat"
_TOKEN_BYTES: Final = 16


class Registered(Protocol):
    @property
    def waits_for(self) -> str:
        """What keeps this broker from being registered; empty: nothing does."""


class Living(Protocol):
    """What a broker has with one metadata session."""

    store: MetadataStore
    topics: Topics

    @property
    def ownership(self) -> Registered: ...


class BrokerHealth:
    def __init__(
        self,
        living: Callable[[], Living | None],
        broker_id: Callable[[], str],
        options: HealthOptions,
        clock: Clock,
        randomness: Randomness,
        waits_for: Callable[[], str] = str,
    ) -> None:
        """`waits_for`: what keeps the broker from having a life."""
        self._living = living
        self._waits_for = waits_for
        self._broker_id = broker_id
        self._options = options
        self._clock = clock
        self._randomness = randomness
        self._instance = randomness.token(_TOKEN_BYTES)
        self._messages = 0
        # What is asked in the present session, and whose that is.
        self._asked: Living | None = None
        self._question: SingleFlightCheck | None = None

    async def look(self) -> tuple[bool, list[str]]:
        """Whether a message can go through, and if not, why."""
        living = self._living()
        if living is None:
            waits_for = self._waits_for()
            return False, [waits_for or "the broker has no session with its metadata store, and serves nothing"]
        if waits_for := living.ownership.waits_for:
            # The heartbeat's topic may be that other broker's: it would be taken from it.
            return False, [waits_for]
        if living is not self._asked or self._question is None:
            before, self._asked = self._question, living
            self._question = SingleFlightCheck(
                lambda: self._send_and_read(living), self._options.health_check_timeout_s, self._clock
            )
            if before is not None:
                await before.close()
        problem = await self._question.find_problem(self._options.health_check_max_age_s)
        if not problem:
            return True, []
        reasons = [f"a message that was sent through the broker {problem}"]
        if living.store.session.state is not SessionState.CONNECTED:
            reasons.append(f"the session with the metadata store is {living.store.session.state.value}")
        topic = living.topics.get_loaded(heartbeat_topic(self._broker_id()))
        if topic is not None and topic.log.waiting_for:
            reasons.append(f"publishing waits: {topic.log.waiting_for}")
        return False, reasons

    async def close(self) -> None:
        if self._question is not None:
            await self._question.close()

    async def _send_and_read(self, living: Living) -> None:
        """Raises whatever keeps a message from going through."""
        await living.store.ping()
        name = heartbeat_topic(self._broker_id())
        topic = await living.topics.get(name, create=True, asked=True)
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
        producer = await topic.open_producer(opening, sent)
        try:
            producer.publish(0, [encode_entry(metadata, payload)])
            position = await sent.outcome
        finally:
            topic.leave(producer, TopicUnloaded("the heartbeat was looked at"))
        stored = await topic.log.read_stored(position)
        if stored is None or decode_entry(stored.stored).payload != payload:
            raise TopicUnloaded(f"the bookies gave something else for {position} of {name} than was stored there")


class _Sent:
    """The producer's one message: a ProducerSink."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[Position] = asyncio.get_running_loop().create_future()

    def stored(self, number: int, position: Position) -> None:
        if not self.outcome.done():
            self.outcome.set_result(position)

    def refused(self, number: int, error: BrokerError) -> None:
        self.ended(error)

    def decided(self, size_bytes: int) -> None:
        pass

    async def lives(self) -> bool:
        return True

    def report_waiting(self, waiting_for: str) -> None:
        pass  # whoever looks asks the log

    def ended(self, error: BrokerError) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)
