"""Telling an application of which partitions of a Failover subscription its consumer is served.

The listener has `became_active(consumer, partition)` and `became_inactive(consumer, partition)`; the partition is -1
where the topic has none. It is told of each partition when the consumer is made, and then of every change, in order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from magnetar._consumer_core import ConsumerCore
from magnetar._consumer_part import ConsumerPart
from magnetar._enums import ConsumerType
from magnetar.exceptions import InvalidConfiguration

__all__ = ["ConsumerEventListener", "check_event_listener", "tell_active"]

log = logging.getLogger("magnetar")


class ConsumerEventListener(Protocol):
    """What an application passes as `consumer_event_listener`."""

    def became_active(self, consumer: Any, partition: int, /) -> object: ...

    def became_inactive(self, consumer: Any, partition: int, /) -> object: ...


def check_event_listener(listener: Any) -> None:
    """Raises InvalidConfiguration."""
    for name in ("became_active", "became_inactive"):
        if listener is not None and not callable(getattr(listener, name, None)):
            raise InvalidConfiguration(f"consumer_event_listener = {listener!r} has no method {name}")


def tell_active(
    core: ConsumerCore, consumer: Any, listener: Any, put: Callable[[Callable[[], object]], object] | None = None
) -> None:
    """From now on. `put` has something called where the application's callbacks are; None: on the loop."""
    if listener is None or core.options.consumer_type is not ConsumerType.Failover:
        return

    def changed(part: ConsumerPart, active: bool) -> None:
        call = partial(_call, listener, consumer, part.partition, active)
        call() if put is None else put(call)

    def begin() -> None:
        core.on_active = changed
        for part in core.parts:
            changed(part, part.active)

    core.post(begin)


def _call(listener: Any, consumer: Any, partition: int, active: bool) -> None:
    try:
        (listener.became_active if active else listener.became_inactive)(consumer, partition)
    except Exception:
        log.exception("the consumer_event_listener of %s failed", consumer.topic())
