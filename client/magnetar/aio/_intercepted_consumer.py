"""The asyncio consumer with interceptors, as magnetar._intercepted_consumer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from magnetar._acknowledging.ack_targets import to_sequence
from magnetar._consumer import Acknowledgeable
from magnetar._consuming.multi_topic_consumer import MultiTopicConsumer
from magnetar._interceptors.consumer_interceptors import ConsumerInterceptors
from magnetar._interceptors.interceptor import ConsumerInterceptor
from magnetar._message import Message
from magnetar.aio._consumer import Consumer
from magnetar.schema._schema import T
from magnetar_wire.message_id import MessageId

__all__ = ["InterceptedConsumer"]


class InterceptedConsumer(Consumer[T]):
    """Passes each message to interceptors before it is received, and reports acknowledgements to them."""

    def __init__(
        self,
        core: MultiTopicConsumer,
        listener: Callable[[Consumer[T], Message[T]], object] | None,
        message_listener_threads: int,
        interceptors: Sequence[ConsumerInterceptor],
    ) -> None:
        self._interceptors = ConsumerInterceptors(self, core, interceptors, lambda call: call())
        super().__init__(core, listener, message_listener_threads)

    async def acknowledge(self, message: Acknowledgeable, *, receipt: bool | None = None) -> None:
        messages = to_sequence(message)
        with self._interceptors.acknowledging(messages):
            await super().acknowledge(messages, receipt=receipt)

    async def acknowledge_cumulative(self, message: Message[Any] | MessageId, *, receipt: bool | None = None) -> None:
        with self._interceptors.acknowledging([message], cumulative=True):
            await super().acknowledge_cumulative(message, receipt=receipt)

    async def reconsume_later(
        self, message: Message[Any], delay_ms: int = 0, properties: Mapping[str, str] | None = None
    ) -> None:
        with self._interceptors.acknowledging([message]):
            await super().reconsume_later(message, delay_ms, properties)
