"""A client in a process of its own, for the benchmarks: `python -m tests.bench.client_child ROLE …`.

    tail URL TOPIC              receives and acknowledges messages; for each line of input, prints their number so far
    publish URL TOPIC MB_PER_S  publishes 1 KiB messages at that rate until its standard input ends
    burst URL TOPIC             for each number on standard input, publishes as many messages as fast as it can, and
                                prints the seconds until all are persisted

It prints `ready` when it has connected. Load is generated as by `magnetar perf produce`.
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
from magnetar_cli.perf.load import Load, publish_load

__all__ = ["MESSAGE_BYTES", "ClientChild", "batching_producer", "client_child", "published"]

MESSAGE_BYTES: Final = 1024
# A group of messages at a fixed rate is sent at this interval.
_GROUP_S: Final = 0.01


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
    """Publish messages as fast as possible. Return the seconds until all are persisted."""
    began = time.perf_counter()
    publish_load([producer], Load(MESSAGE_BYTES, messages=count), _no_callback)
    producer.flush()
    return time.perf_counter() - began


def _no_callback(due: float, count: int) -> None:
    return None


@dataclass(frozen=True)
class ClientChild:
    process: subprocess.Popen[str]

    def received(self) -> int:
        """Return the number of messages received so far."""
        return int(self._request(""))

    def burst(self, messages: int) -> float:
        """Publish messages. Return the seconds until all are persisted."""
        return float(self._request(str(messages)))

    def _request(self, line: str) -> str:
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

    _print("ready")
    threading.Thread(target=receive, daemon=True).start()
    for _ in sys.stdin:
        _print(str(received))


def _publish(url: str, topic: str, mb_per_s: str) -> None:
    client = magnetar.Client(url)
    producer = batching_producer(client, topic)
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    _print("ready")
    load = Load(MESSAGE_BYTES, rate=float(mb_per_s) * 1e6 / MESSAGE_BYTES, group_s=_GROUP_S)
    publish_load([producer], load, _no_callback, ended.is_set)
    client.close()


def _burst(url: str, topic: str) -> None:
    producer = batching_producer(magnetar.Client(url), topic)
    _print("ready")
    for line in sys.stdin:
        _print(str(published(producer, int(line))))


def _print(line: str) -> None:
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
