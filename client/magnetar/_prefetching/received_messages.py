"""Which messages the application has received since the loop last looked, for acknowledgement timeouts.

A thread that receives a message only pops it from the receiver queue's `ready`. So what was received is found
afterwards: it is what the last segment had, and `ready` no longer has. Messages that a receive has put back count as
not received until they are taken again.

All is guarded by the receiver queue's lock, except that other threads may pop messages of `ready` at any time. So
messages are compared by identity if both ends of `ready` may change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from magnetar._message import Message

__all__ = ["ReceivedMessages"]


class ReceivedMessages:
    __slots__ = ("_ready", "_received", "_returned", "deferred", "waiting")

    def __init__(self, ready: deque[Message[Any]]) -> None:
        self._ready = ready
        # The messages that were in `ready` when this was last brought up to date, in order. The receiver queue replaces
        # it when it begins a segment.
        self.waiting: Sequence[Message[Any]] = ()
        self._received: list[Message[Any]] = []
        self._returned: list[Message[Any]] = []
        # How many messages were taken, and wait for their listener.
        self.deferred = 0

    def add(self, messages: Iterable[Message[Any]]) -> None:
        """These messages were taken without having been in `ready`."""
        self._received.extend(messages)

    def update(self, *, is_mixed: bool) -> None:
        """Find which messages were taken from `ready`. `is_mixed`: messages were put back into it."""
        if not self.waiting:
            return
        if is_mixed:
            self._keep_waiting(list(self._ready))
        else:
            count = len(self.waiting) - len(self._ready)
            self._received.extend(self.waiting[:count])
            self.waiting = self.waiting[count:]

    def drop(self, popped: Sequence[Message[Any]], retained: Sequence[Message[Any]]) -> None:
        """The receiver queue has popped these of `ready`, and puts some of them back into it."""
        if self.waiting:
            self._keep_waiting(popped)
            self.waiting = retained

    def _keep_waiting(self, messages: Collection[Message[Any]]) -> None:
        still = set(map(id, messages))
        self._received.extend(one for one in self.waiting if id(one) not in still)
        self.waiting = [one for one in self.waiting if id(one) in still]

    def put_back(self, messages: Sequence[Message[Any]]) -> None:
        """These messages were taken, and are the first of `ready` again. Call `update` before they are."""
        returned = set(map(id, messages))
        self._received = [one for one in self._received if id(one) not in returned]
        self._returned.extend(messages)
        self.waiting = [*messages, *self.waiting]

    def defer(self, message: Message[Any]) -> None:
        """This message was taken, and waits for its listener: it is not received yet. Call `update` before."""
        if self._received and self._received[-1] is message:
            self._received.pop()
        else:
            self._received = [one for one in self._received if one is not message]
        self.deferred += 1

    def end_deferral(self, message: Message[Any]) -> None:
        """The listener is called with a message that has waited for it."""
        self.deferred -= 1
        self._received.append(message)

    def fetch(self) -> tuple[list[Message[Any]], list[Message[Any]]]:
        """Return the messages that were put back and those that were received, in this order of events."""
        returned, received = self._returned, self._received
        self._returned, self._received = [], []
        return returned, received
