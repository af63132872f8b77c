"""Calls the interceptors of a consumer or reader. One without interceptors has none of this.

**Arrival.** When entries have been added to the receiver queue, `on_arrival` is called for each of their messages, on
the callback thread. A message can be received before that thread has reached it: then the receiving thread makes the
call. What `on_arrival` returns is stored with the entry (`DeliveredEntry.arrivals`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from magnetar._consuming.multi_topic_consumer import MultiTopicConsumer
from magnetar._interceptors.interceptor import ConsumerInterceptor, ReaderInterceptor
from magnetar._message import DeliveredEntry, Message
from magnetar_wire.message_id import MessageId

__all__ = ["CallLater", "ConsumerInterceptors", "intercept_reader"]

log = logging.getLogger("magnetar")

CallLater = Callable[[Callable[[], object]], object]


class ConsumerInterceptors:
    def __init__(
        self,
        consumer: Any,
        core: MultiTopicConsumer,
        interceptors: Sequence[ConsumerInterceptor],
        call_later: CallLater,
    ) -> None:
        """Intercept the messages of a consumer from now on. `call_later` calls a function of the application, from the
        loop."""
        self._consumer = consumer
        self._interceptors = list(interceptors)
        self._call_later = call_later
        # Those that override `on_arrival`.
        self._arrival_interceptors = [
            one for one in self._interceptors if type(one).on_arrival is not ConsumerInterceptor.on_arrival
        ]
        # Held during calls of `on_arrival`.
        self._arriving = threading.RLock()
        if self._arrival_interceptors:
            core.queue.on_added = lambda entries: call_later(partial(self._arrive_all, entries))
        core.interceptors = self
        core.nacks.on_sent = partial(self._report_redelivery, "on_negative_acks_send")
        if core.timeouts is not None:
            core.timeouts.on_sent = partial(self._report_redelivery, "on_ack_timeout_send")
        if core.letters is not None:
            core.letters.on_dead = lambda message: call_later(
                partial(self._report_acknowledged, "on_acknowledge", [message], None)
            )
        core.context.on_partitions_changed = lambda topic, count: call_later(
            partial(self._call_each, "on_partitions_change", topic, count)
        )
        self._is_ended = False

    # Receiving.

    def before_consume(self, message: Message[Any]) -> Any:
        """Return the message as the application receives it."""
        changed: Any = self._arrive(message) if self._arrival_interceptors else message
        for interceptor in self._interceptors:
            changed = self._change(interceptor, "before_consume", changed)
        return changed

    def _arrive_all(self, entries: Iterable[DeliveredEntry]) -> None:
        for entry in entries:
            for row in list(entry.remaining):
                self._arrive(Message(entry, row))

    def _arrive(self, message: Message[Any]) -> Any:
        """Return the message as `on_arrival` has changed it. The first call for a message calls that."""
        entry, row = message._entry, message._row
        with self._arriving:
            arrivals: dict[int, Any] | None = getattr(entry, "arrivals", None)
            if arrivals is None:
                arrivals = entry.arrivals = {}
            if row not in arrivals:
                changed: Any = message
                arrivals[row] = changed  # for an `on_arrival` that receives the message itself
                for interceptor in self._arrival_interceptors:
                    changed = self._change(interceptor, "on_arrival", changed)
                arrivals[row] = changed
            return arrivals[row]

    def _change(self, interceptor: ConsumerInterceptor, method: str, message: Any) -> Any:
        returned = self._call(interceptor, method, self._consumer, message)
        if returned is None:
            return message
        if not callable(getattr(returned, "message_id", None)):
            name = _name_method(interceptor, method)
            log.error("%s of the interceptor %r returned %r, which is no message", name, interceptor, returned)
            return message
        return returned

    # Acknowledging.

    @contextmanager
    def acknowledging(self, what: Sequence[Any], *, cumulative: bool = False) -> Iterator[None]:
        """Report that messages or ids were acknowledged within this context, or the error with which that failed."""
        method = "on_acknowledge_cumulative" if cumulative else "on_acknowledge"
        try:
            yield
        except BaseException as error:
            self._report_acknowledged(method, what, error)
            raise
        self._report_acknowledged(method, what, None)

    def _report_acknowledged(self, method: str, what: Sequence[Any], error: BaseException | None) -> None:
        for one in what:
            message_id = one
            if not isinstance(one, MessageId):
                if not callable(getattr(one, "message_id", None)):
                    continue
                message_id = one.message_id()
            for interceptor in self._interceptors:
                self._call(interceptor, method, self._consumer, message_id, error)

    # On the loop.

    def _report_redelivery(self, method: str, partition: Any, positions: Iterable[tuple[int, int]]) -> None:
        ids = {MessageId(partition.partition, *position, topic_name=partition.topic) for position in positions}
        self._call_later(lambda: self._call_each(method, self._consumer, set(ids)))

    def end(self) -> None:
        """The consumer has ended. Only the first call counts."""
        if not self._is_ended:
            self._is_ended = True
            self._call_later(partial(self._call_each, "close"))

    def _call_each(self, method: str, *arguments: Any) -> None:
        for interceptor in self._interceptors:
            self._call(interceptor, method, *arguments)

    def _call(self, interceptor: ConsumerInterceptor, method: str, *arguments: Any) -> Any:
        """Call a method of an interceptor. If it raises, log that, and return None."""
        try:
            return getattr(interceptor, method)(*arguments)
        except Exception:
            owner, name = "reader" if _is_of_reader(interceptor) else "consumer", _name_method(interceptor, method)
            log.exception("the interceptor %r of the %s of %s failed in %s", interceptor, owner, self._topic, name)
            return None

    @property
    def _topic(self) -> str:
        topic: str = self._consumer.topic()
        return topic


class _OfReader(ConsumerInterceptor):
    """Calls an interceptor of a reader, which is a consumer inside."""

    def __init__(self, interceptor: ReaderInterceptor) -> None:
        self._interceptor = interceptor

    def before_consume(self, consumer: Any, message: Message[Any]) -> Any:
        return self._interceptor.before_read(consumer, message)

    def on_partitions_change(self, topic: str, partitions: int) -> object:
        return self._interceptor.on_partitions_change(topic, partitions)

    def close(self) -> object:
        return self._interceptor.close()

    def __repr__(self) -> str:
        return repr(self._interceptor)


def _is_of_reader(interceptor: ConsumerInterceptor) -> bool:
    return isinstance(interceptor, _OfReader)


def _name_method(interceptor: ConsumerInterceptor, method: str) -> str:
    """Return the method's name in the application's class."""
    return "before_read" if method == "before_consume" and _is_of_reader(interceptor) else method


def intercept_reader(
    reader: Any, core: MultiTopicConsumer, interceptors: Sequence[ReaderInterceptor], call_later: CallLater
) -> None:
    """Intercept the messages of a reader from now on."""
    ConsumerInterceptors(reader, core, [_OfReader(one) for one in interceptors], call_later)
