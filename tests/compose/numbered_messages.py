"""Publish numbered messages while a test injects faults into the cluster, and read them back."""

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
_MESSAGES_PER_S: Final = 500
_DEADLINE_S: Final = 120.0


class Publishing:
    """Publishes 0, 1, 2, … to one topic until `end`."""

    def __init__(self, client: magnetar.Client, topic: str) -> None:
        self._producer = client.create_producer(
            topic, send_timeout_millis=_SEND_TIMEOUT_MS, block_if_queue_full=True, batching_max_publish_delay_ms=5
        )
        self._stop_requested = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publishing")
        # The numbers of persisted messages, in the order of their receipts.
        self.receipts: list[int] = []
        self.failures: list[object] = []
        self.sent = 0

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Stop publishing, and return when all messages have results."""
        self._stop_requested.set()
        self._thread.join()
        self._producer.close()

    def wait_more(self, messages: int) -> None:
        """Wait until this many more messages are persisted."""
        wanted = len(self.receipts) + messages
        deadline = time.monotonic() + _DEADLINE_S
        while len(self.receipts) < wanted:
            assert time.monotonic() < deadline, f"{len(self.receipts)} of {wanted} have a receipt: {self.failures}"
            time.sleep(0.05)

    def _run(self) -> None:
        while not self._stop_requested.wait(1 / _MESSAGES_PER_S):
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
    """Publish while the block runs. At its end all messages have results."""
    publishing = Publishing(client, topic)
    publishing.start()
    try:
        yield publishing
    finally:
        publishing.end()


def read_all(consumer: magnetar.Consumer, last: int) -> list[int]:
    """Receive and acknowledge messages up to `last`, and return all of them in order."""
    found: list[int] = []
    while not found or found[-1] != last:
        message = consumer.receive(_READ_MS)
        consumer.acknowledge(message)
        found.append(int(message.data()))
    return found
