"""The synchronous consumer.

The thread that receives takes messages from the receiver queue itself. Only calls that talk to the broker run on the
client's loop. Any number of threads may use one consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Self

from magnetar._acknowledging.ack_targets import AckTarget, to_sequence
from magnetar._consuming.multi_topic_consumer import MultiTopicConsumer
from magnetar._consuming.receiver import ThreadReceiver
from magnetar._enums import ConsumerType
from magnetar._listeners.listener_threads import ListenerThreads
from magnetar._listeners.thread_listener import BaseThreadListener, finish_listeners, listen_on_threads
from magnetar._message import Message
from magnetar._public_object import Unpicklable, repr_of
from magnetar.exceptions import (
    AlreadyClosed,
    CumulativeAcknowledgementNotAllowedError,
    InvalidConfiguration,
    OperationNotSupported,
)
from magnetar.schema._schema import T
from magnetar_wire.message_id import MessageId

__all__ = [
    "Acknowledgeable",
    "Consumer",
    "ConsumerMethods",
    "Run",
    "close_listener",
    "get_single_id",
    "pop_nothing",
    "refuse_receive",
]

# Runs a coroutine on the client's loop, and waits for it.
Run = Callable[[Coroutine[Any, Any, Any]], Any]
# Pulsar's names of the types that deliver messages to several consumers.
_SHARED_NAMES: Final = {ConsumerType.Shared: "Shared", ConsumerType.KeyShared: "Key_Shared"}
# A message, its id, or several of either.
Acknowledgeable = Message[Any] | MessageId | Iterable[Message[Any] | MessageId]


class ConsumerMethods(Unpicklable):
    """The methods that don't wait, which the synchronous and the asyncio consumer share."""

    def __init__(self, core: MultiTopicConsumer) -> None:
        self._core = core
        # Whether an acknowledgement is collected with others, if its call does not name a receipt.
        self._groups_acks = not core.options.ack_receipt_enabled
        self._add_ack = core.acks.add_message

    def topic(self) -> str:
        """Return the topic's full name; for several topics, their names separated by commas; or the pattern."""
        return self._core.topic_text

    def subscription_name(self) -> str:
        """Return the name of the subscription."""
        return self._core.options.subscription_name

    def consumer_name(self) -> str:
        """Return the consumer's name, which is random if the application set none."""
        return self._core.context.name

    def is_connected(self) -> bool:
        """Return whether all topics or partitions are connected to their brokers now."""
        return self._core.is_connected

    def has_reached_end_of_topic(self) -> bool:
        """Return whether all topics are terminated and their messages acknowledged: none will be delivered, unless the
        subscription is moved back. It becomes true a moment after the last acknowledgement."""
        return self._core.has_reached_end()

    def redeliver_unacknowledged_messages(self) -> None:
        """Request the redelivery of everything that is not acknowledged. Return at once.

        Messages that were delivered before, and not received yet, are dropped, and delivered again in order. On a
        Shared or Key_Shared subscription this counts as a redelivery of them, too: with a dead letter policy, a message
        that was never received can become a dead letter.
        """
        self._core.check_open()
        self._core.redeliver_all()

    def pause(self) -> None:
        """Request no more messages from the broker until `resume`. Those that were requested before, at most
        `receiver_queue_size` of a topic or partition, are still received; then `receive` waits."""
        self._core.check_open()
        self._core.pause()

    def resume(self) -> None:
        """Request messages from the broker again."""
        self._core.check_open()
        self._core.resume()

    def __repr__(self) -> str:
        return repr_of(self, "topic", "subscription_name", "consumer_name", "is_connected")

    def _negative_acknowledge(self, message: Message[Any] | MessageId) -> None:
        self._core.check_open()
        self._core.nacks.add(self._core.targets.find(message))

    def _reconsume_later(
        self, message: Message[Any], delay_ms: int, properties: Mapping[str, str] | None
    ) -> Coroutine[Any, Any, None]:
        self._core.check_open()
        if not isinstance(message, Message):
            raise TypeError(f"reconsume_later takes a message, whose copy is stored, not {type(message).__name__}")
        if not isinstance(delay_ms, int) or isinstance(delay_ms, bool):
            raise TypeError(f"delay_ms is a number of ms, not {delay_ms!r}")
        if properties is not None and not isinstance(properties, Mapping):
            raise TypeError(f"properties are a dict, not {type(properties).__name__}")
        letters = self._core.letters
        if letters is None or letters.rules.retry_letter_topic is None:
            raise InvalidConfiguration("reconsume_later needs a consumer that was created with enable_retry=True")
        target = self._core.targets.find(message)
        return letters.reconsume_later(message, target, delay_ms, properties, with_receipt=self._wants_receipt(None))

    def _find_targets(self, what: Acknowledgeable) -> list[AckTarget]:
        self._core.check_open()
        return [self._core.targets.find(one) for one in to_sequence(what)]

    def _find_cumulative_targets(self, what: Message[Any] | MessageId) -> list[AckTarget]:
        self._core.check_open()
        if not self._core.delivers_in_order:
            shared = _SHARED_NAMES[self._core.options.consumer_type]
            raise CumulativeAcknowledgementNotAllowedError(
                f"the subscription {self.subscription_name()} is {shared}, and has no order in which all messages up "
                "to one could be acknowledged: acknowledge each, or use Exclusive or Failover"
            )
        return [self._core.targets.find(what, cumulative=True)]

    def _add_single_ack(self, what: object, receipt: bool | None) -> bool:
        """Add the acknowledgement of a message of this consumer, without a receipt. False: it is none of these.

        It is called for each message, so it repeats briefly what `_find_targets` checks.
        """
        core = self._core
        if type(what) is Message and receipt is None and self._groups_acks and core.error is None:
            origin = what._entry.epoch.origin
            if core.topic_partitions.by_topic.get(origin.topic) is origin:
                self._add_ack(what)
                return True
        return False

    def _acknowledge_soon(self, targets: list[AckTarget]) -> None:
        for target in targets:
            self._core.acks.add(target)

    def _wants_receipt(self, receipt: bool | None) -> bool:
        return self._core.options.ack_receipt_enabled if receipt is None else receipt


class Consumer(ConsumerMethods, Generic[T]):
    """A subscription's consumer: `Client.subscribe` creates it.

    `for` iterates over its messages until it is closed.
    """

    def __init__(
        self,
        core: MultiTopicConsumer,
        run: Run,
        listener: Callable[[Consumer[T], Message[T]], object] | None,
        threads: ListenerThreads,
    ) -> None:
        super().__init__(core)
        self._run = run
        self._receiver = ThreadReceiver(core)
        # With interceptors, each message passes the receiver.
        self._popping = core.queue.popping if core.interceptors is None else iter(pop_nothing, None)
        self._listener: BaseThreadListener | None = None
        if listener is not None:
            self._popping = iter(refuse_receive, None)
            self._listener = listen_on_threads(self, core, listener, threads)

    def receive(self, timeout_millis: int | None = None) -> Message[T]:
        """Return the next message; wait until there is one. Raise Timeout if there is none within `timeout_millis`."""
        try:
            # Ctrl-C can't come between the pop and the return: see _prefetching/receiver_queue.py.
            for message in self._popping:
                return message
        except IndexError:
            pass
        return self._receiver.receive(timeout_millis)

    def batch_receive(self) -> list[Message[T]]:
        """Return as many messages as `batch_receive_policy` allows; an empty list, if there are none in its time."""
        if self._listener is not None:
            refuse_receive()
        return self._receiver.receive_batch()

    def acknowledge(self, message: Acknowledgeable, *, receipt: bool | None = None) -> None:
        """Acknowledge a message, or several: it is processed and need not be redelivered.

        It is sent with others after `ack_grouping_time_ms`. With `receipt`, or `ack_receipt_enabled`, it is sent at
        once, and this returns when the acknowledgement is durable.
        """
        if self._add_single_ack(message, receipt):
            return
        targets = self._find_targets(message)
        if self._wants_receipt(receipt):
            self._run(self._core.acknowledge(targets))
        else:
            self._acknowledge_soon(targets)

    def acknowledge_cumulative(self, message: Message[Any] | MessageId, *, receipt: bool | None = None) -> None:
        """Acknowledge all messages up to and including this one. Not on a Shared or Key_Shared subscription.

        On a topic with partitions: all those of the message's own partition.
        """
        targets = self._find_cumulative_targets(message)
        if self._wants_receipt(receipt):
            self._run(self._core.acknowledge(targets))
        else:
            self._acknowledge_soon(targets)

    def negative_acknowledge(self, message: Message[Any] | MessageId) -> None:
        """Have a message that was not processed redelivered after `negative_ack_redelivery_delay_ms`, or its backoff.

        Returns at once. Exclusive and Failover redeliver everything from the first message that is not acknowledged,
        in order. Shared and Key_Shared redeliver that message, and those of its batch that are not acknowledged.
        """
        self._negative_acknowledge(message)

    def reconsume_later(
        self, message: Message[Any], delay_ms: int = 0, properties: Mapping[str, str] | None = None
    ) -> None:
        """Have a message that can't be processed now delivered again after `delay_ms`, and acknowledge it. A delay of
        more than 100 years counts as 100 years.

        It is stored in the retry letter topic, with `properties` added to its own. This returns when it is durable
        there. If it was retried too often, it goes to the dead letter topic. If it can't be stored, this raises the
        error, and the message is redelivered. Needs `enable_retry`.
        """
        self._run(self._reconsume_later(message, delay_ms, properties))

    def seek(self, messageid: MessageId | int) -> None:
        """Move the subscription behind a message (to it, with `start_message_id_inclusive`), to `MessageId.earliest`
        or `latest`, or to the first message that a broker received at or after a time, in ms since 1970.

        Messages that were received before, and are not acknowledged, can't be acknowledged any more.
        """
        self._run(self._core.seek(messageid))

    def get_last_message_id(self) -> MessageId:
        """Return the id of the last message that can be read; without messages, the position before the first one."""
        return get_single_id(self._run(self._core.last_message_ids()))

    def get_last_message_ids(self) -> list[MessageId]:
        """Return the id of the last message of each topic or partition, as `get_last_message_id` does."""
        ids: list[MessageId] = self._run(self._core.last_message_ids())
        return ids

    def pause_message_listener(self) -> None:
        """Stop calling the listener until `resume_message_listener`. A call that is running goes on. Messages are still
        prefetched, until the receiver queue is full."""
        if self._listener is not None:
            self._listener.pause()

    def resume_message_listener(self) -> None:
        """Call the listener again, with the messages that have arrived since `pause_message_listener`, too."""
        if self._listener is not None:
            self._listener.resume()

    def unsubscribe(self) -> None:
        """Delete the subscription, and close the consumer. It must be the only one of the subscription."""
        self._run(self._core.unsubscribe())
        if self._listener is not None:
            self._listener.close()

    def close(self) -> None:
        """Send all acknowledgements, and leave the subscription, which stays. Closing twice does nothing.

        The listener is not called any more. A call that is running may end before, and acknowledge its message;
        `close` waits for it, for `operation_timeout_seconds` at most. It does not wait if a listener calls it.
        """
        close_listener(self._listener, self._core)
        if self._core.error is None:
            self._run(self._core.close())

    def __iter__(self) -> Self:
        """Iterate over the messages, including those still to come, until the consumer is closed."""
        return self

    def __next__(self) -> Message[T]:
        try:
            return self.receive()
        except AlreadyClosed:
            raise StopIteration from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def close_listener(listener: BaseThreadListener | None, core: MultiTopicConsumer) -> None:
    """Begin no more calls of a listener, and wait for those that run. If this is interrupted, the consumer ends."""
    if listener is None:
        return
    try:
        finish_listeners([listener], core.clock.monotonic, core.operations.timeout_s)
    except BaseException:
        core.call_soon(partial(core.end, AlreadyClosed("the consumer is closed")))
        raise


def get_single_id(ids: list[MessageId]) -> MessageId:
    if len(ids) != 1:
        raise OperationNotSupported(f"this consumer reads {len(ids)} topics or partitions: use get_last_message_ids")
    return ids[0]


def pop_nothing() -> Any:
    raise IndexError


def refuse_receive(*_: Any) -> Any:
    raise InvalidConfiguration(
        "a consumer with a message_listener, or a reader with a reader_listener, passes all messages to it: "
        "don't receive them"
    )
