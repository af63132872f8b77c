"""The consumers of one connection, and the handlers of the commands that open, use and close them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from magnetar_broker.errors import BrokerError
from magnetar_broker.server.pulsar.acknowledged_ids import split_ack, split_redelivery
from magnetar_broker.server.pulsar.consumer import ConnectedConsumer
from magnetar_broker.server.pulsar.replies import error_frame, no_consumer_frame, success_frame
from magnetar_broker.server.pulsar.session import ClientSession
from magnetar_broker.topics.consumer import Consumer
from magnetar_broker.topics.subscription import Subscription
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.pulsar_pb2 import BaseCommand, CommandSubscribe, ServerError

__all__ = ["Consumers"]


class Consumers:
    __slots__ = ("_max_message_ids", "_session", "by_id")

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._max_message_ids = session.context.settings.max_message_ids_at_once
        # Consumers that are opening or open.
        self.by_id: dict[int, ConnectedConsumer] = {}

    def subscribe(self, command: BaseCommand) -> None:
        """Handle SUBSCRIBE."""
        request, session = command.subscribe, self._session
        existing = self.by_id.get(request.consumer_id)
        if existing is not None:
            if existing.is_open:
                existing.send_success(request.request_id)
                return
            session.fail_not_ready(request.request_id, f"consumer {request.consumer_id}")
            return
        maximum = session.context.settings.max_consumers_per_stream
        if len(self.by_id) >= maximum:
            session.fail_too_many(request.request_id, "consumers", maximum)
            return
        consumer = self.by_id[request.consumer_id] = ConnectedConsumer(session, self.by_id, request.consumer_id)
        consumer.opening = session.start_request(request.request_id, self._subscribe(consumer, request))

    async def _subscribe(self, consumer: ConnectedConsumer, request: CommandSubscribe) -> None:
        try:
            await consumer.open(request)
        finally:
            consumer.opening = None
            if consumer.consumer is None:
                consumer.forget()

    def flow(self, command: BaseCommand) -> None:
        """Handle FLOW."""
        if (consumer := self.by_id.get(command.flow.consumer_id)) is not None:
            consumer.flow(command.flow.message_permits)

    def acknowledge(self, command: BaseCommand) -> None:
        """Handle ACK."""
        request = command.ack
        consumer = self.by_id.get(request.consumer_id)
        if consumer is None:
            if request.HasField("request_id"):
                text = (
                    f"consumer {request.consumer_id} is not open on this connection: messages that are not "
                    "acknowledged are redelivered"
                )
                self._session.write(no_consumer_frame(request.consumer_id, request.request_id, text))
        elif len(request.message_id) <= self._max_message_ids:
            consumer.acknowledge(request)
        else:
            self._session.run_in_steps(map(consumer.acknowledge, split_ack(request, self._max_message_ids)))

    def redeliver(self, command: BaseCommand) -> None:
        """Handle REDELIVER_UNACKNOWLEDGED_MESSAGES."""
        request = command.redeliver_unacknowledged_messages
        consumer = self.by_id.get(request.consumer_id)
        if consumer is None:
            return
        if len(request.message_ids) <= self._max_message_ids:
            consumer.redeliver(request)
        else:
            self._session.run_in_steps(map(consumer.redeliver, split_redelivery(request, self._max_message_ids)))

    def seek(self, command: BaseCommand) -> None:
        """Handle SEEK."""
        request = command.seek
        if (consumer := self._find(request.consumer_id, request.request_id)) is not None:
            self._start(request.request_id, partial(consumer.seek, request))

    def unsubscribe(self, command: BaseCommand) -> None:
        """Handle UNSUBSCRIBE."""
        request = command.unsubscribe
        if (consumer := self._find(request.consumer_id, request.request_id)) is not None:
            self._start(request.request_id, partial(consumer.unsubscribe, request.request_id, force=request.force))

    def close(self, command: BaseCommand) -> None:
        """Handle CLOSE_CONSUMER."""
        request = command.close_consumer
        consumer = self.by_id.get(request.consumer_id)
        if consumer is None:
            self._session.write(success_frame(request.request_id))  # the broker has closed it before
        else:
            consumer.close(request.request_id)

    def _find(self, consumer_id: int, request_id: int) -> ConnectedConsumer | None:
        """Return the consumer, or answer the request with ConsumerNotFound."""
        consumer = self.by_id.get(consumer_id)
        if consumer is None:
            text = f"consumer {consumer_id} is not open on this connection"
            self._session.fail(request_id, ServerError.CONSUMER_NOT_FOUND, text)
        return consumer

    def _start(self, request_id: int, work: Callable[[], Awaitable[None]]) -> None:
        self._session.start_request(request_id, self._answer_if_closed(request_id, work))

    async def _answer_if_closed(self, request_id: int, work: Callable[[], Awaitable[None]]) -> None:
        """Answer ConsumerNotFound if the consumer was closed: libraries take NotFound for a topic that is missing."""
        try:
            await work()
        except BrokerError as error:
            if error.code != ErrorCode.NOT_FOUND:
                raise
            self._session.write(error_frame(request_id, ServerError.CONSUMER_NOT_FOUND, str(error)))

    def leave_all(self) -> None:
        """Close all consumers of a connection that is closed.

        Those of one subscription leave together: messages of one must not be dispatched to another that leaves too.
        """
        consumers = list(self.by_id.values())
        self.by_id.clear()
        by_subscription: dict[Subscription, list[Consumer]] = {}
        for one in consumers:
            one.is_closed = True
            if one.consumer is not None:
                by_subscription.setdefault(one.consumer.subscription, []).append(one.consumer)
        for subscription, leaving in by_subscription.items():
            subscription.leave(leaving)
        for one in consumers:
            one.leave()
