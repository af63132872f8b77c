"""A client in a process of its own, for the benchmarks: `python -m tests.bench.client_child ROLE …`.

    tail URL TOPIC              receives and acknowledges what comes; asked on standard input, tells how much that was
    publish URL TOPIC MB_PER_S  publishes 1 KiB messages at that rate, until its standard input ends
    burst URL TOPIC             for each number on standard input publishes so many as fast as it can, and tells how
                                many seconds it took until all were durable

It says `ready` when it has begun.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import magnetar

__all__ = ["MESSAGE_BYTES", "ClientChild", "batching_producer", "client_child", "published"]

MESSAGE_BYTES: Final = 1024


def batching_producer(client: magnetar.Client, topic: str) -> magnetar.Producer:
    """Batches of 128 KiB."""
    return client.create_producer(
        topic,
        batching_max_allowed_size_in_bytes=131_072,
        max_pending_messages=20_000,
        block_if_queue_full=True,
        send_timeout_millis=0,
    )


def published(producer: magnetar.Producer, count: int) -> float:
    """Seconds until so many messages are durable."""
    payload = os.urandom(MESSAGE_BYTES)
    send = producer.send_async
    began = time.perf_counter()
    for _ in range(count):
        send(payload, None)
    producer.flush()
    return time.perf_counter() - began


@dataclass(frozen=True)
class ClientChild:
    process: subprocess.Popen[str]

    def received(self) -> int:
        """So many messages so far."""
        return int(self._asked(""))

    def burst(self, messages: int) -> float:
        """Publishes so many; the seconds that it took."""
        return float(self._asked(str(messages)))

    def _asked(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()


@contextlib.contextmanager
def client_child(role: str, *arguments: str) -> Iterator[ClientChild]:
    command = [sys.executable, "-m", "tests.bench.client_child", role, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                raise RuntimeError(f"the client that should {role} did not start")
            yield ClientChild(process)
            process.communicate("", timeout=60)
        finally:
            process.kill()


def _tail(url: str, topic: str) -> None:
    client = magnetar.Client(url)
    policy = magnetar.ConsumerBatchReceivePolicy(1000, 4 << 20, 20)
    consumer = client.subscribe(topic, "tail", receiver_queue_size=5000, batch_receive_policy=policy)
    received = 0

    def receive() -> None:
        nonlocal received
        while True:
            messages = consumer.batch_receive()
            if messages:
                received += len(messages)
                consumer.acknowledge_cumulative(messages[-1])

    _say("ready")
    threading.Thread(target=receive, daemon=True).start()
    for _ in sys.stdin:
        _say(str(received))


def _publish(url: str, topic: str, mb_per_s: str) -> None:
    client = magnetar.Client(url)
    producer = batching_producer(client, topic)
    payload, ended = os.urandom(MESSAGE_BYTES), threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    _say("ready")
    began, sent = time.perf_counter(), 0
    while not ended.wait(0.01):
        due = int((time.perf_counter() - began) * float(mb_per_s) * 1e6 / MESSAGE_BYTES)
        for _ in range(due - sent):
            producer.send_async(payload, None)
        sent = due
    client.close()


def _burst(url: str, topic: str) -> None:
    producer = batching_producer(magnetar.Client(url), topic)
    _say("ready")
    for line in sys.stdin:
        _say(str(published(producer, int(line))))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    role, *given = sys.argv[1:]
    if role == "tail":
        _tail(*given)
    elif role == "publish":
        _publish(*given)
    else:
        _burst(*given)
    os._exit(0)
