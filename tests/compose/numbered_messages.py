"""Messages that are numbers: published without a pause while something is done to the cluster, then accounted for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import magnetar

__all__ = ["Publishing", "publishing", "read_all"]

_SEND_TIMEOUT_MS: Final = 120_000
_READ_MS: Final = 60_000
_A_SECOND: Final = 500
_DEADLINE_S: Final = 120.0


class Publishing:
    """0, 1, 2 … to one topic, as long as it is not told to end."""

    def __init__(self, client: magnetar.Client, topic: str) -> None:
        self._producer = client.create_producer(
            topic, send_timeout_millis=_SEND_TIMEOUT_MS, block_if_queue_full=True, batching_max_publish_delay_ms=5
        )
        self._told_to_end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publishing")
        # Of which there is a receipt, in the order in which those came.
        self.receipts: list[int] = []
        self.failures: list[object] = []
        self.sent = 0

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Returns when everything has been answered."""
        self._told_to_end.set()
        self._thread.join()
        self._producer.close()

    def wait_more(self, messages: int) -> None:
        """Until so many more have a receipt than now."""
        wanted = len(self.receipts) + messages
        deadline = time.monotonic() + _DEADLINE_S
        while len(self.receipts) < wanted:
            assert time.monotonic() < deadline, f"{len(self.receipts)} of {wanted} have a receipt: {self.failures}"
            time.sleep(0.05)

    def _run(self) -> None:
        while not self._told_to_end.wait(1 / _A_SECOND):
            self._send(self.sent)
            self.sent += 1

    def _send(self, number: int) -> None:
        def answered(result: magnetar.Result, message_id: magnetar.MessageId | None) -> None:
            if result == magnetar.Result.Ok:
                self.receipts.append(number)
            else:
                self.failures.append((number, result))

        self._producer.send_async(b"%d" % number, answered)


@contextmanager
def publishing(client: magnetar.Client, topic: str) -> Iterator[Publishing]:
    """Under way inside; ended, and everything answered, behind it."""
    found = Publishing(client, topic)
    found.start()
    try:
        yield found
    finally:
        found.end()


def read_all(consumer: magnetar.Consumer, last: int) -> list[int]:
    """All that comes as far as the message `last`, in its order."""
    found: list[int] = []
    while not found or found[-1] != last:
        message = consumer.receive(_READ_MS)
        consumer.acknowledge(message)
        found.append(int(message.data()))
    return found
