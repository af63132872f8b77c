"""What one connection's client asks of its producers and consumers: found by their ids, opened, closed, asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from magnetar_broker.errors import BrokerError
from magnetar_broker.server.pulsar.acknowledged_ids import ack_in_parts, redelivery_in_parts
from magnetar_broker.server.pulsar.consumer import ConnectedConsumer
from magnetar_broker.server.pulsar.error_codes import server_error
from magnetar_broker.server.pulsar.producer import ConnectedProducer
from magnetar_broker.server.pulsar.replies import error_frame, no_consumer_frame, success_frame
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.pulsar_pb2 import BaseCommand, ServerError

if TYPE_CHECKING:
    from magnetar_broker.server.pulsar.connection import PulsarConnection

__all__ = ["Commands"]


class Commands:
    """Of one connection."""

    def __init__(self, connection: PulsarConnection) -> None:
        self._connection = connection
        self._options = connection.door.options
        self.by_type: dict[int, Callable[[BaseCommand], None]] = {
            BaseCommand.PRODUCER: self._open_producer,
            BaseCommand.CLOSE_PRODUCER: self._close_producer,
            BaseCommand.SUBSCRIBE: self._subscribe,
            BaseCommand.ACK: self._acknowledge,
            BaseCommand.FLOW: self._flow,
            BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: self._redeliver,
            BaseCommand.UNSUBSCRIBE: self._unsubscribe,
            BaseCommand.SEEK: self._seek,
            BaseCommand.CLOSE_CONSUMER: self._close_consumer,
        }

    # Producers.

    def _open_producer(self, command: BaseCommand) -> None:
        asked, producers = command.producer, self._connection.producers
        there = producers.get(asked.producer_id)
        if there is not None:
            if there.opened:
                there.tell_opened(asked.request_id)  # the client had stopped waiting for the answer
                return
            self._not_now(asked.request_id, f"producer {asked.producer_id} is being opened or closed")
            return
        if len(producers) >= self._options.max_producers_per_stream:
            text = f"this connection has {len(producers)} producers, as many as max_producers_per_stream allows"
            self._connection.write(error_frame(asked.request_id, ServerError.TOO_MANY_REQUESTS, text))
            return
        producer = producers[asked.producer_id] = ConnectedProducer(self._connection, asked.producer_id)
        producer.opening = self._connection.ask(asked.request_id, self._opening_producer(producer, command))

    async def _opening_producer(self, producer: ConnectedProducer, command: BaseCommand) -> None:
        try:
            await producer.open(command.producer)
        finally:
            producer.opening = None
            if not producer.opened:
                self._connection.forget_producer(producer)

    def _close_producer(self, command: BaseCommand) -> None:
        asked = command.close_producer
        producer = self._connection.producers.get(asked.producer_id)
        if producer is not None:
            producer.stop()  # at once: what stands behind it in one piece must not find it open
        self._connection.ask(asked.request_id, self._closing_producer(producer, asked.request_id))

    async def _closing_producer(self, producer: ConnectedProducer | None, request_id: int) -> None:
        if producer is not None:
            await producer.close()
        self._connection.write(success_frame(request_id))

    # Consumers.

    def _subscribe(self, command: BaseCommand) -> None:
        asked, consumers = command.subscribe, self._connection.consumers
        there = consumers.get(asked.consumer_id)
        if there is not None:
            if there.stays_open:
                there.tell_success(asked.request_id)
                return
            self._not_now(asked.request_id, f"consumer {asked.consumer_id} is being opened or closed")
            return
        if len(consumers) >= self._options.max_consumers_per_stream:
            text = f"this connection has {len(consumers)} consumers, as many as max_consumers_per_stream allows"
            self._connection.write(error_frame(asked.request_id, ServerError.TOO_MANY_REQUESTS, text))
            return
        consumer = consumers[asked.consumer_id] = ConnectedConsumer(self._connection, asked.consumer_id)
        consumer.opening = self._connection.ask(asked.request_id, self._opening_consumer(consumer, command))

    async def _opening_consumer(self, consumer: ConnectedConsumer, command: BaseCommand) -> None:
        try:
            await consumer.open(command.subscribe)
        finally:
            consumer.opening = None
            if consumer.opened_as is None:
                self._connection.forget_consumer(consumer)

    def _acknowledge(self, command: BaseCommand) -> None:
        asked, most = command.ack, self._options.max_message_ids_at_once
        consumer = self._connection.consumers.get(asked.consumer_id)
        if consumer is None:
            if asked.HasField("request_id"):
                text = (
                    f"consumer {asked.consumer_id} is not open on this connection: what is not acknowledged comes again"
                )
                self._connection.write(no_consumer_frame(asked.consumer_id, asked.request_id, text))
        elif len(asked.message_id) <= most:
            consumer.acknowledge(asked)
        else:
            self._connection.in_steps(map(consumer.acknowledge, ack_in_parts(asked, most)))

    def _flow(self, command: BaseCommand) -> None:
        if (consumer := self._connection.consumers.get(command.flow.consumer_id)) is not None:
            consumer.flow(command.flow.message_permits)

    def _redeliver(self, command: BaseCommand) -> None:
        asked, most = command.redeliver_unacknowledged_messages, self._options.max_message_ids_at_once
        consumer = self._connection.consumers.get(asked.consumer_id)
        if consumer is None:
            return
        if len(asked.message_ids) <= most:
            consumer.redeliver(asked)
        else:
            self._connection.in_steps(map(consumer.redeliver, redelivery_in_parts(asked, most)))

    def _unsubscribe(self, command: BaseCommand) -> None:
        asked = command.unsubscribe
        if (consumer := self._known_consumer(asked.consumer_id, asked.request_id)) is not None:
            work = partial(consumer.unsubscribe, asked.request_id, force=asked.force)
            self._connection.ask(asked.request_id, self._while_there(asked.request_id, work))

    def _seek(self, command: BaseCommand) -> None:
        asked = command.seek
        if (consumer := self._known_consumer(asked.consumer_id, asked.request_id)) is not None:
            self._connection.ask(asked.request_id, self._while_there(asked.request_id, partial(consumer.seek, asked)))

    async def _while_there(self, request_id: int, work: Callable[[], Awaitable[None]]) -> None:
        """A consumer that has left meanwhile is no topic that is not there, which libraries would take to be final."""
        try:
            await work()
        except BrokerError as error:
            if error.code != ErrorCode.NOT_FOUND:
                raise
            self._connection.write(error_frame(request_id, ServerError.CONSUMER_NOT_FOUND, str(error)))

    def _close_consumer(self, command: BaseCommand) -> None:
        asked = command.close_consumer
        consumer = self._connection.consumers.get(asked.consumer_id)
        if consumer is None:
            self._connection.write(success_frame(asked.request_id))  # the broker was faster
        else:
            consumer.close(asked.request_id)

    def _known_consumer(self, consumer_id: int, request_id: int) -> ConnectedConsumer | None:
        consumer = self._connection.consumers.get(consumer_id)
        if consumer is None:
            text = f"consumer {consumer_id} is not open on this connection"
            self._connection.write(error_frame(request_id, ServerError.CONSUMER_NOT_FOUND, text))
        return consumer

    def _not_now(self, request_id: int, text: str) -> None:
        told = f"{text} on this connection: wait for the answer"
        self._connection.write(error_frame(request_id, server_error(ErrorCode.SERVICE_NOT_READY), told))
