"""The producers of one connection, and the handlers of PRODUCER, SEND and CLOSE_PRODUCER."""

from __future__ import annotations

from magnetar_broker.errors import TopicUnloaded
from magnetar_broker.server.pulsar.producer import ConnectedProducer
from magnetar_broker.server.pulsar.replies import success_frame
from magnetar_broker.server.pulsar.session import ClientSession
from magnetar_protos.pulsar_pb2 import BaseCommand, CommandProducer, CommandSend

__all__ = ["Producers"]


class Producers:
    __slots__ = ("_gathering", "_session", "by_id")

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        # Producers that are opening or open.
        self.by_id: dict[int, ConnectedProducer] = {}
        # Producers that have gathered entries since the last `publish_gathered`.
        self._gathering: list[ConnectedProducer] = []

    def open(self, command: BaseCommand) -> None:
        """Handle PRODUCER."""
        request, session = command.producer, self._session
        existing = self.by_id.get(request.producer_id)
        if existing is not None:
            if existing.is_open:
                existing.send_opened(request.request_id)  # the client had stopped waiting for the first answer
                return
            session.fail_not_ready(request.request_id, f"producer {request.producer_id}")
            return
        maximum = session.context.settings.max_producers_per_stream
        if len(self.by_id) >= maximum:
            session.fail_too_many(request.request_id, "producers", maximum)
            return
        producer = self.by_id[request.producer_id] = ConnectedProducer(session, self.by_id, request.producer_id)
        producer.opening = session.start_request(request.request_id, self._open(producer, request))

    async def _open(self, producer: ConnectedProducer, request: CommandProducer) -> None:
        try:
            await producer.open(request)
        finally:
            producer.opening = None
            if not producer.is_open:
                producer.forget()

    def close(self, command: BaseCommand) -> None:
        """Handle CLOSE_PRODUCER."""
        request = command.close_producer
        producer = self.by_id.get(request.producer_id)
        if producer is not None:
            producer.stop()  # at once: entries behind the command must not find it open
        self._session.start_request(request.request_id, self._close(producer, request.request_id))

    async def _close(self, producer: ConnectedProducer | None, request_id: int) -> None:
        if producer is not None:
            await producer.close()
        self._session.write(success_frame(request_id))

    def gather(self, send: CommandSend, entry: bytes) -> None:
        """Handle SEND: its entry is published by the next `publish_gathered`."""
        producer = self.by_id.get(send.producer_id)
        # If the producer was closed, its client has been notified or is about to be.
        if producer is not None and producer.is_open:
            if not producer.gathered:
                self._gathering.append(producer)
            producer.gather(send.sequence_id, send.highest_sequence_id, entry)

    def publish_gathered(self) -> None:
        """Publish all gathered entries. Reading pauses if the broker has no capacity for more."""
        if not self._gathering:
            return
        gathered = self._gathering[:]
        self._gathering.clear()
        for producer in gathered:
            if producer.publish():
                self._session.pause_until(producer.wait_for_broker_capacity)

    def leave_all(self) -> None:
        """Close all producers of a connection that is closed."""
        producers = list(self.by_id.values())
        self.by_id.clear()
        for producer in producers:
            producer.leave(TopicUnloaded("its connection is closed"))
