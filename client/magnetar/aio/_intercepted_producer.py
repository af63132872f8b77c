"""The asyncio producer with interceptors, as magnetar._intercepted_producer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from magnetar._interceptors.interceptor import ProducerInterceptor, ProducerMessage
from magnetar._interceptors.producer_interceptors import ProducerInterceptors
from magnetar._producing.topic_producer import TopicProducer
from magnetar.aio._producer import Producer
from magnetar.schema._schema import T
from magnetar_wire.message_id import MessageId

__all__ = ["InterceptedProducer"]


class InterceptedProducer(Producer[T]):
    """Passes each message to interceptors, and then encodes it."""

    def __init__(self, core: TopicProducer, interceptors: Sequence[ProducerInterceptor]) -> None:
        super().__init__(core)
        self._interceptors = ProducerInterceptors(self, core, interceptors, lambda call: call())

    async def send(
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
        message = self._interceptors.intercept(
            ProducerMessage(
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
        )
        try:
            message_id = await self._send(message.encoded)
        except BaseException as error:
            message.notify(None, error)
            raise
        message.notify(message_id, None)
        return message_id
