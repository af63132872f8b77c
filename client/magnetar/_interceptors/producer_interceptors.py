"""Calls the interceptors of a producer. A producer without interceptors has none of this.

Each interceptor gets a copy of the message, so that one that raises has no effect. If the message that they have made
can't be encoded, the message is sent as the application has passed it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from magnetar._interceptors.interceptor import ProducerInterceptor, ProducerMessage
from magnetar._producing.outgoing_message import OutgoingMessage, make_message
from magnetar._producing.topic_producer import TopicProducer
from magnetar._values.value_encoder import encode_value
from magnetar_wire.message_id import MessageId

__all__ = ["InterceptedMessage", "ProducerInterceptors"]

log = logging.getLogger("magnetar")

CallLater = Callable[[Callable[[], object]], object]


class ProducerInterceptors:
    def __init__(
        self, producer: Any, core: TopicProducer, interceptors: Sequence[ProducerInterceptor], call_later: CallLater
    ) -> None:
        """`call_later` calls a function of the application, from the loop."""
        self.producer = producer
        self._schema = core.options.value_schema
        self._interceptors = list(interceptors)
        core.on_partitions_changed = lambda count: call_later(
            partial(self._call_each, "on_partitions_change", core.topic, count)
        )
        core.on_ended = lambda: call_later(partial(self._call_each, "close"))

    def intercept(self, message: ProducerMessage) -> InterceptedMessage:
        """Return the message as it is sent. Raises what `send` raises for a message that can't be encoded."""
        passed: list[ProducerInterceptor] = []
        changed = message
        for interceptor in self._interceptors:
            try:
                if interceptor.eligible(changed):
                    passed.append(interceptor)
                    changed = self._call_before_send(interceptor, changed)
            except Exception:
                log.exception("the interceptor %r failed before a message was sent", interceptor)
        try:
            return InterceptedMessage(self, passed, changed, self._encode(changed))
        except Exception as error:  # noqa: BLE001 (if the interceptors have caused it, it is logged)
            try:
                encoded = self._encode(message)
            except Exception as own:
                notify(passed, self.producer, message, None, own)
                raise
            log.error("a message is sent without the changes of its interceptors, which can't be sent: %s", error)
            return InterceptedMessage(self, passed, message, encoded)

    def _call_before_send(self, interceptor: ProducerInterceptor, message: ProducerMessage) -> ProducerMessage:
        properties = None if message.properties is None else dict(message.properties)
        copy = replace(message, properties=properties)
        returned: Any = interceptor.before_send(self.producer, copy)
        if returned is None:
            returned = copy
        if not isinstance(returned, ProducerMessage):
            raise TypeError(f"before_send returned {returned!r}: return a ProducerMessage, or None")
        return returned

    def _encode(self, message: ProducerMessage) -> OutgoingMessage:
        content, key = message.content, message.partition_key
        if self._schema is not None:
            content, key = encode_value(self._schema, content, key)
        return make_message(
            content,
            message.properties,
            key,
            message.ordering_key,
            message.sequence_id,
            message.replication_clusters,
            message.disable_replication,
            message.event_timestamp,
            message.deliver_at,
            message.deliver_after,
        )

    def _call_each(self, method: str, *arguments: Any) -> None:
        for interceptor in self._interceptors:
            call(interceptor, method, *arguments)


class InterceptedMessage:
    """A message between `before_send` and `on_send_acknowledgement`."""

    __slots__ = ("_interceptors", "_passed", "encoded", "message")

    def __init__(
        self,
        interceptors: ProducerInterceptors,
        passed: list[ProducerInterceptor],
        message: ProducerMessage,
        encoded: OutgoingMessage,
    ) -> None:
        self._interceptors = interceptors
        # Those for which the message is eligible.
        self._passed = passed
        self.message = message
        self.encoded = encoded

    def notify(self, message_id: MessageId | None, error: BaseException | None) -> None:
        """Call the interceptors with the message's result."""
        notify(self._passed, self._interceptors.producer, self.message, message_id, error)


def notify(interceptors: Sequence[ProducerInterceptor], *arguments: Any) -> None:
    for interceptor in interceptors:
        call(interceptor, "on_send_acknowledgement", *arguments)


def call(interceptor: object, method: str, *arguments: Any) -> Any:
    """Call a method of an interceptor. If it raises, log that, and return None."""
    try:
        return getattr(interceptor, method)(*arguments)
    except Exception:
        log.exception("the interceptor %r failed in %s", interceptor, method)
        return None
