"""pulsar-client, as the package index has it, on a server of the tests' own.

    with stock_server(tmp_path / "data") as server, server.client() as client:
        client.create_producer(topic("orders"))

Where MAGNETAR_TEST_PULSAR_URL names another server of Pulsar's protocol (and MAGNETAR_TEST_PULSAR_HTTP its admin
interface), the same tests run there: a real Pulsar shows whether a test is right.

No test calls `unsubscribe` of a pulsar-client consumer of several topics or partitions. In 3.13 that ends the process
with SIGSEGV (in two of 290 runs of a test, on a loaded machine): when the last answer comes before the client waits for
it, `MultiTopicsConsumerImpl::unsubscribeAsync` clears the map of consumers that it still iterates over.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pulsar
import pytest
from pulsar import ConsumerType, InitialPosition

from magnetar.admin import Admin
from magnetar_testing.standalone_process import StandaloneProcess
from tests.running import GENEROUS_S

__all__ = [
    "ALL_TYPES",
    "BATCHES",
    "BY_MESSAGE",
    "EARLIEST",
    "LONG_MS",
    "ONE_AT_A_TIME",
    "OURS_ALONE",
    "QUIET",
    "SHORT_MS",
    "SOON",
    "StockServer",
    "is_elsewhere",
    "nothing_more",
    "numbers",
    "payloads",
    "received",
    "received_or_none",
    "send_batch",
    "send_batches",
    "send_singles",
    "stock_server",
    "topic",
    "until",
]

# For what must come, and for what must not.
LONG_MS: Final = 60_000
SHORT_MS: Final = 50

_ELSEWHERE: Final = os.environ.get("MAGNETAR_TEST_PULSAR_URL", "")
_ELSEWHERE_HTTP: Final = os.environ.get("MAGNETAR_TEST_PULSAR_HTTP", "http://127.0.0.1:18080")
QUIET: Final = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
# Options.
EARLIEST: Final[Any] = {"initial_position": InitialPosition.Earliest}
BATCHES: Final[Any] = {"batching_enabled": True, "batching_max_publish_delay_ms": 60_000}
BY_MESSAGE: Final[Any] = {"batch_index_ack_enabled": True}
SOON: Final[Any] = {"negative_ack_redelivery_delay_ms": 100}
ONE_AT_A_TIME: Final = [ConsumerType.Exclusive, ConsumerType.Failover]
ALL_TYPES: Final = [*ONE_AT_A_TIME, ConsumerType.Shared]

_numbers: Final = itertools.count()
# Of what is refused here, or done in another way than on Pulsar.
OURS_ALONE: Final = pytest.mark.skipif(bool(_ELSEWHERE), reason="a Pulsar does it otherwise")


class StockServer:
    """Where the clients connect, and what an administrator does there."""

    def __init__(self, process: StandaloneProcess | None) -> None:
        self.process = process
        self.url = _ELSEWHERE if process is None else process.pulsar_url
        self.http_url = _ELSEWHERE_HTTP if process is None else process.http_url
        self.http_url = _ELSEWHERE_HTTP if process is None else process.http_url

    @contextlib.contextmanager
    def client(self, url: Any = None, logger: Any = QUIET, **options: Any) -> Iterator[pulsar.Client]:
        client = pulsar.Client(url or self.url, logger=logger, operation_timeout_seconds=60, **options)
        try:
            yield client
        finally:
            client.close()

    def make_partitioned(self, name: str, partitions: int) -> str:
        if self.process is None:
            _send_admin_request("PUT", f"{_path(name)}/partitions", str(partitions).encode())
        else:
            with Admin(self.process.service_url) as admin:
                admin.topics.create_partitioned(name, partitions)
        return name

    def unload(self, name: str) -> None:
        if self.process is None:
            _send_admin_request("PUT", f"{_path(name)}/unload")
        else:
            with Admin(self.process.service_url) as admin:
                admin.topics.unload(name)

    def deduplicate(self, name: str) -> None:
        """Switch deduplication on, for a topic that exists."""
        _send_admin_request("POST", f"{_path(name)}/deduplicationEnabled", b"true", self.http_url)
        deadline = time.monotonic() + GENEROUS_S
        while self._read_stats(name)["deduplicationStatus"] != "Enabled":
            assert time.monotonic() < deadline, "deduplication was not switched on"
            time.sleep(0.1)

    def _read_stats(self, name: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.http_url}/admin/v2/{_path(name)}/stats") as found:
            stats: dict[str, Any] = json.load(found)
        return stats

    def terminate(self, name: str) -> None:
        if self.process is None:
            _send_admin_request("POST", f"{_path(name)}/terminate")
        else:
            with Admin(self.process.service_url) as admin:
                admin.topics.terminate(name)


def _path(name: str) -> str:
    return f"persistent/public/default/{name.rpartition('/')[2]}"


def _send_admin_request(method: str, path: str, body: bytes = b"", http_url: str = _ELSEWHERE_HTTP) -> None:
    request = urllib.request.Request(
        f"{http_url}/admin/v2/{path}", body, {"Content-Type": "application/json"}, method=method
    )
    with urllib.request.urlopen(request, timeout=GENEROUS_S):
        pass


def is_elsewhere() -> bool:
    """Return whether the environment names a server for the tests of stock clients."""
    return bool(_ELSEWHERE)


@contextlib.contextmanager
def stock_server(folder: Path, **settings: Any) -> Iterator[StockServer]:
    """A standalone, with `settings`, unless the environment names another server."""
    if _ELSEWHERE:
        yield StockServer(None)
        return
    with StandaloneProcess(folder, **settings) as process:
        yield StockServer(process)


def topic(what: str) -> str:
    """A name that no other test has, and no run before this one."""
    return f"persistent://public/default/{what}-{os.getpid()}-{time.time_ns()}-{next(_numbers)}"


def send_batch(producer: pulsar.Producer, *contents: bytes, **options: Any) -> None:
    """As one batch, if the producer's delay and sizes let it."""
    for content in contents:
        producer.send_async(content, lambda result, message_id: None, **options)
    producer.flush()


def payloads(receiver: pulsar.Consumer, count: int, *, acknowledge: bool = False) -> list[bytes]:
    """Of the next messages."""
    found = []
    for _ in range(count):
        message = receiver.receive(LONG_MS)
        found.append(message.data())
        if acknowledge:
            receiver.acknowledge(message)
    return found


def until(condition: Callable[[], bool], what: str) -> None:
    """Returns when the condition holds."""
    deadline = time.monotonic() + GENEROUS_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {GENEROUS_S} s in vain until {what}"
        time.sleep(0.01)


def numbers(*which: int) -> list[bytes]:
    return [b"%d" % number for number in which]


def send_singles(client: pulsar.Client, name: str, count: int) -> list[Any]:
    """One entry each."""
    producer = client.create_producer(name)
    sent = [producer.send(content) for content in numbers(*range(count))]
    producer.close()
    return sent


def send_batches(client: pulsar.Client, name: str, *sizes: int) -> None:
    producer, first = client.create_producer(name, **BATCHES), 0
    for size in sizes:
        send_batch(producer, *numbers(*range(first, first + size)))
        first += size
    producer.close()


def nothing_more(consumer: pulsar.Consumer) -> None:
    with pytest.raises(pulsar.Timeout):
        consumer.receive(SHORT_MS)


def received(consumer: pulsar.Consumer, count: int) -> list[pulsar.Message]:
    return [consumer.receive(LONG_MS) for _ in range(count)]


def received_or_none(consumer: pulsar.Consumer) -> bytes:
    """Acknowledged; empty: there was none in a moment."""
    try:
        message = consumer.receive(20)
    except pulsar.Timeout:
        return b""
    consumer.acknowledge(message)
    return bytes(message.data())
