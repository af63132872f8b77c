"""The synchronous consumer with interceptors. It is a class of its own, so that others have no step more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from magnetar._acknowledging.ack_targets import to_sequence
from magnetar._consumer import Acknowledgeable, Consumer, Run
from magnetar._consuming.multi_topic_consumer import MultiTopicConsumer
from magnetar._interceptors.consumer_interceptors import ConsumerInterceptors
from magnetar._interceptors.interceptor import ConsumerInterceptor
from magnetar._listeners.listener_threads import ListenerThreads
from magnetar._message import Message
from magnetar.schema._schema import T
from magnetar_wire.message_id import MessageId

__all__ = ["InterceptedConsumer"]


class InterceptedConsumer(Consumer[T]):
    """Passes each message to interceptors before it is received, and reports acknowledgements to them."""

    def __init__(
        self,
        core: MultiTopicConsumer,
        run: Run,
        listener: Callable[[Consumer[T], Message[T]], object] | None,
        threads: ListenerThreads,
        interceptors: Sequence[ConsumerInterceptor],
        call_later: Callable[[Callable[[], object]], object],
    ) -> None:
        self._interceptors = ConsumerInterceptors(self, core, interceptors, call_later)
        super().__init__(core, run, listener, threads)

    def acknowledge(self, message: Acknowledgeable, *, receipt: bool | None = None) -> None:
        messages = to_sequence(message)
        with self._interceptors.acknowledging(messages):
            super().acknowledge(messages, receipt=receipt)

    def acknowledge_cumulative(self, message: Message[Any] | MessageId, *, receipt: bool | None = None) -> None:
        with self._interceptors.acknowledging([message], cumulative=True):
            super().acknowledge_cumulative(message, receipt=receipt)

    def reconsume_later(
        self, message: Message[Any], delay_ms: int = 0, properties: Mapping[str, str] | None = None
    ) -> None:
        with self._interceptors.acknowledging([message]):
            super().reconsume_later(message, delay_ms, properties)
