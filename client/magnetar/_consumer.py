"""The synchronous consumer.

Receiving is done by the thread that asks (_receiver_queue.py); only what talks to the broker is run on the client's
loop. Any number of threads may use one consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from magnetar._consumer_core import ConsumerCore
from magnetar._consumer_front import (
    Acknowledgeable,
    ConsumerFront,
    no_receive,
    one_last_id,
    seek_target,
)
from magnetar._listening import ThreadListening
from magnetar._message import Message
from magnetar._waiting import ThreadWaiting
from magnetar.exceptions import AlreadyClosed
from magnetar_wire.message_id import MessageId

__all__ = ["Consumer", "Run"]

T = TypeVar("T")
# Has a coroutine run on the client's loop, and waits for it.
Run = Callable[[Coroutine[Any, Any, Any]], Any]


class Consumer(ConsumerFront):
    """A subscription's consumer: `Client.subscribe` creates it. `for` iterates over its messages until it is closed."""

    def __init__(
        self, core: ConsumerCore, run: Run, listener: Callable[[Consumer, Message], object] | None = None
    ) -> None:
        super().__init__(core)
        self._run = run
        self._waiting = ThreadWaiting(core)
        self._popping = core.queue.popping
        self._listening: ThreadListening | None = None
        if listener is not None:
            self._popping = iter(no_receive, None)
            self._listening = ThreadListening(self, listener, self._waiting, self.topic())

    def receive(self, timeout_millis: int | None = None) -> Message:
        """The next message; waits until there is one. Raises Timeout if there was none within `timeout_millis`."""
        try:
            for message in self._popping:  # nothing can strike between: see _receiver_queue.py
                return message
        except IndexError:
            pass
        return self._waiting.receive(timeout_millis)

    def batch_receive(self) -> list[Message]:
        """Messages, as many as the consumer's `batch_receive_policy` says. None, if its time has passed without any."""
        if self._listening is not None:
            no_receive()
        return self._waiting.receive_batch()

    def acknowledge(self, message: Acknowledgeable, *, receipt: bool | None = None) -> None:
        """The message is processed, and need not come again; of a number of them, all are.

        Leaves with others before long (`ack_grouping_time_ms`). With `receipt`, or `ack_receipt_enabled`, it leaves at
        once, and this returns when the acknowledgement is durable.
        """
        targets = self._targets(message)
        if self._wants_receipt(receipt):
            self._run(self._core.acknowledge(targets))
        else:
            self._put(targets)

    def acknowledge_cumulative(self, message: Message | MessageId, *, receipt: bool | None = None) -> None:
        """All messages up to and with this one are processed. Not on a Shared subscription.

        Of a topic with partitions: those of the message's own partition.
        """
        targets = self._cumulative(message)
        if self._wants_receipt(receipt):
            self._run(self._core.acknowledge(targets))
        else:
            self._put(targets)

    def negative_acknowledge(self, message: Message | MessageId) -> None:
        """The message was not processed, and is to come again after `negative_ack_redelivery_delay_ms`, or as the
        back-off says. Returns at once.

        Exclusive and Failover: with it comes again, in order, everything from the first message that is not
        acknowledged. Shared: that message, and those of its batch that are not acknowledged.
        """
        self._refuse(message)

    def seek(self, messageid: MessageId | int) -> None:
        """Moves the subscription behind a message (to it, with `start_message_id_inclusive`), to `MessageId.earliest`
        or `latest`, or to the first message that a broker took at a time, in ms since 1970, or later.

        What was received before and is not acknowledged can't be acknowledged any more.
        """
        self._run(self._core.seek(seek_target(self._core, messageid)))

    def get_last_message_id(self) -> MessageId:
        """The last message that there is to be read; of none, the place before all messages."""
        return one_last_id(self._run(self._core.last_message_ids()))

    def get_last_message_ids(self) -> list[MessageId]:
        """The same for each topic or partition."""
        ids: list[MessageId] = self._run(self._core.last_message_ids())
        return ids

    def pause_message_listener(self) -> None:
        """The listener is not called until `resume_message_listener`."""
        if self._listening is not None:
            self._listening.pause()

    def resume_message_listener(self) -> None:
        if self._listening is not None:
            self._listening.resume()

    def unsubscribe(self) -> None:
        """Deletes the subscription, and closes the consumer. It must be the subscription's only one."""
        self._run(self._core.unsubscribe())
        self._end_listening()

    def close(self) -> None:
        """Sends what is acknowledged, and leaves the subscription, which stays. Closing twice does nothing."""
        self._end_listening()
        if self._core.over is None:
            self._run(self._core.close())

    def _end_listening(self) -> None:
        if self._listening is not None:
            self._listening.close()

    def __iter__(self) -> Self:
        """Iterate over the messages, including those still to come, until the consumer is closed."""
        return self

    def __next__(self) -> Message:
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
