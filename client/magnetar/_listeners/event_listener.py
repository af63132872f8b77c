"""The application's `consumer_event_listener`, which is notified when a consumer of a Failover subscription becomes, or
stops being, the one that gets the messages of a partition."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from magnetar._consuming.multi_topic_consumer import MultiTopicConsumer
from magnetar._consuming.reconnecting_consumer import ReconnectingConsumer
from magnetar._enums import ConsumerType
from magnetar.exceptions import InvalidConfiguration

__all__ = ["ConsumerEventListener", "check_event_listener", "notify_event_listener"]

log = logging.getLogger("magnetar")


class ConsumerEventListener(Protocol):
    """An application's `consumer_event_listener`.

    It is notified which partitions of a Failover subscription are delivered to its consumer: of each partition when the
    consumer is created, and then of each change, in order. The partition is -1 if the topic has none.
    """

    def became_active(self, consumer: Any, partition: int, /) -> object: ...

    def became_inactive(self, consumer: Any, partition: int, /) -> object: ...


def check_event_listener(listener: Any) -> None:
    """Raises InvalidConfiguration."""
    for name in ("became_active", "became_inactive"):
        if listener is not None and not callable(getattr(listener, name, None)):
            raise InvalidConfiguration(f"consumer_event_listener = {listener!r} has no method {name}")


def notify_event_listener(
    core: MultiTopicConsumer,
    consumer: Any,
    listener: Any,
    call_later: Callable[[Callable[[], object]], object] | None = None,
) -> None:
    """Notify the listener from now on. `call_later` calls it on the callback thread; None: it is called here."""
    if listener is None or core.options.consumer_type is not ConsumerType.Failover:
        return

    def notify(partition: ReconnectingConsumer) -> None:
        call = partial(_call_event_listener, listener, consumer, partition.partition, partition.is_active)
        call() if call_later is None else call_later(call)

    def start() -> None:
        core.context.on_active_changed = notify
        for partition in core.partitions:
            notify(partition)

    core.call_soon(start)


def _call_event_listener(listener: Any, consumer: Any, partition: int, is_active: bool) -> None:
    try:
        (listener.became_active if is_active else listener.became_inactive)(consumer, partition)
    except Exception:
        log.exception("the consumer_event_listener of %s failed", consumer.topic())
