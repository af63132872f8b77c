"""A load generator: publish messages of random bytes at a given rate, or as fast as possible.

`magnetar perf produce` measures with it, and so do the benchmarks (tests/bench).

**A message is due** at its time by the rate, whether it can be sent then or not. A generator that was blocked for a
second sends the messages of that second afterwards, with the due times at which they should have been sent. So a
latency that begins at the due time includes the delay (without it, the error is known as coordinated omission). Without
a rate, messages are due when the generator is about to send them, so a wait for capacity in the send queue is included.

**Messages are sent in groups.** Those that are due within `group_s` share the due time of the first one and a callback.
A latency from that time is too high by `group_s` at most, and never too low.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    import magnetar
    from magnetar import MessageId, Result

__all__ = ["Load", "SendCallback", "publish_load"]

# Maximum messages of a group, and the number if there is no rate.
_MAX_GROUP: Final = 100

SendCallback: TypeAlias = "Callable[[Result, MessageId | None], None] | None"


@dataclass(frozen=True, slots=True)
class Load:
    # Bytes of each message.
    size: int
    # Messages per second of all producers together. 0: as fast as possible.
    rate: float = 0
    # Number of messages, and duration. 0: no limit.
    messages: int = 0
    seconds: float = 0
    group_s: float = 0.0002


def publish_load(
    producers: Sequence[magnetar.Producer],
    load: Load,
    make_callback: Callable[[float, int], SendCallback],
    is_stopped: Callable[[], bool] = lambda: False,
    began: float | None = None,
) -> None:
    """Send all messages, in turns by all producers. Return before they are persisted.

    `make_callback(due, count)` returns the callback of a group. `is_stopped` is called before each group. Times are
    those of `time.perf_counter`, and `began` is when the first message is due.
    """
    payload = os.urandom(load.size)
    sends = [producer.send_async for producer in producers]
    turn = 0
    for due, count in _due_groups(load, time.perf_counter() if began is None else began):
        if is_stopped():
            return
        send, turn = sends[turn], (turn + 1) % len(sends)
        callback = make_callback(due, count)
        for _ in range(count):
            send(payload, callback)


def _due_groups(load: Load, began: float) -> Iterator[tuple[float, int]]:
    """Wait until a group is due, and yield its due time and its number of messages."""
    clock = time.perf_counter
    size = min(max(int(load.rate * load.group_s), 1), _MAX_GROUP) if load.rate else _MAX_GROUP
    end = began + load.seconds if load.seconds else float("inf")
    left = load.messages or float("inf")
    sent = 0
    while left > 0:
        count = int(min(size, left))
        now = clock()
        due = began + sent / load.rate if load.rate else now
        if due >= end or (now >= end and not load.rate):
            return
        # Wait for the last message of the group.
        ready = due + (count - 1) / load.rate if load.rate else now
        while (early := ready - clock()) > 0:
            time.sleep(early)
        yield due, count
        sent += count
        left -= count
