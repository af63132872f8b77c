"""The synchronous producer with interceptors. It is a class of its own, so that others have no step more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from magnetar._interceptors.interceptor import ProducerInterceptor, ProducerMessage
from magnetar._interceptors.producer_interceptors import InterceptedMessage, ProducerInterceptors
from magnetar._producer import Producer, SendResult
from magnetar._producing.batch import Callback, OutcomeCallback, Waiter
from magnetar._producing.topic_producer import TopicProducer
from magnetar.schema._schema import T
from magnetar_wire.message_id import MessageId

__all__ = ["InterceptedProducer"]


class InterceptedProducer(Producer[T]):
    """Passes each message to interceptors, and then encodes it, on the thread that sends it."""

    def __init__(
        self,
        core: TopicProducer,
        interceptors: Sequence[ProducerInterceptor],
        call_later: Callable[[Callable[[], object]], object],
    ) -> None:
        super().__init__(core)
        self._interceptors = ProducerInterceptors(self, core, interceptors, call_later)

    def send(
        self,
        content: T | None,
        properties: Mapping[str, str] | None = None,
        partition_key: str | bytes | None = None,
        ordering_key: str | bytes | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> MessageId:
        message = ProducerMessage(
            content,
            properties,
            partition_key,
            ordering_key,
            sequence_id,
            replication_clusters,
            disable_replication,
            event_timestamp,
            deliver_at,
            deliver_after,
        )
        result = SendResult()
        self._send_intercepted(self._interceptors.intercept(message), None, result)
        return result.wait()

    def send_async(
        self,
        content: T | None,
        callback: Callback | None = None,
        properties: Mapping[str, str] | None = None,
        partition_key: str | bytes | None = None,
        ordering_key: str | bytes | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> None:
        message = ProducerMessage(
            content,
            properties,
            partition_key,
            ordering_key,
            sequence_id,
            replication_clusters,
            disable_replication,
            event_timestamp,
            deliver_at,
            deliver_after,
        )
        self._send_intercepted(self._interceptors.intercept(message), callback, None)

    def _send_intercepted(self, message: InterceptedMessage, callback: Callback | None, waiter: Waiter | None) -> None:
        try:
            self._send(message.encoded, OutcomeCallback(message.notify, callback), waiter)
        except Exception as error:
            message.notify(None, error)
            raise
