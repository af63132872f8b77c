"""Producers of Pulsar's own library, at the brokers' Pulsar listener. They record the same lines as producing.py.

After a reconnection the library resends messages without a receipt by itself, in order, and reports each message's
result once. A failure leaves open whether the message is stored, unless the message never left the library. A producer
that could not be closed in time doesn't report the results of the rest: they are abandoned.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

import pulsar

from tests.faults.torture.clients import CLIENT_ERRORS, Clients
from tests.faults.torture.messages import Outgoing
from tests.faults.torture.producing import AGAIN_S, Load, ProducerLog

__all__ = ["StockProducerLog", "send_all_stock", "stock_publisher"]

# Held against limits before they are sent.
_REFUSED: Final[frozenset[object]] = frozenset(
    {
        pulsar.Result.MessageTooBig,
        pulsar.Result.InvalidMessage,
        pulsar.Result.ProducerQueueIsFull,
        pulsar.Result.MemoryBufferIsFull,
    }
)


class StockProducerLog(ProducerLog):
    ok = pulsar.Result.Ok
    refused = _REFUSED
    more_fields: Mapping[str, str] = {"library": "pulsar-client"}

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._pending: set[int] = set()
        self._pending_lock = threading.Lock()

    def burst(self) -> list[Outgoing]:
        burst = super().burst()
        with self._pending_lock:
            self._pending.update(one.number for one in burst)
        return burst

    def callback(self, number: int) -> Callable[[Any, Any], None]:
        called = super().callback(number)

        def called_first(result: Any, message_id: Any) -> None:
            if self._is_first(number):
                called(result, message_id)

        return called_first

    def abandon_pending(self) -> None:
        """After closing, record the results that the library did not report, and may never report, as unknown."""
        self.wait_for_calls()
        with self._pending_lock:
            pending = sorted(self._pending)
        for number in pending:
            if self._is_first(number):
                self.failed(number, None, "its producer was to be closed, without a result")
        self.write()

    def _is_first(self, number: int) -> bool:
        with self._pending_lock:
            there = number in self._pending
            self._pending.discard(number)
        return there


def stock_publisher(
    topic: str,
    worker: str,
    load: Load | None = None,
    *,
    make_log: Callable[[Clients, str, str, Load, Random], StockProducerLog] = StockProducerLog,
) -> Callable[[Clients], None]:
    """What a `Worker` runs: one producer at a time, until producers are stopped."""

    def publish(clients: Clients) -> None:
        chance = clients.chance(f"{topic}.{worker}")
        for opening in itertools.count(1):
            if clients.stopping.is_set():
                return
            name = f"{topic}.{worker}~{clients.writer}.{opening}"
            log = make_log(clients, topic, name, load or Load(), chance)
            try:
                _run_producer(log)
            except CLIENT_ERRORS as error:
                log.troubled(error)
                clients.stopping.wait(AGAIN_S)

    return publish


def _run_producer(log: StockProducerLog) -> None:
    with log.opening():
        producer = log.clients.stock_client.create_producer(log.topic, **log.options)
    try:
        while log.goes_on:
            send_all_stock(log, producer, log.burst())
            if log.flushes:
                _flush(log, producer)
            log.clients.stopping.wait(log.pause_s)
        _flush(log, producer)
    finally:
        try:
            producer.close()
        finally:
            log.abandon_pending()
        log.closed()


def send_all_stock(log: StockProducerLog, producer: Any, burst: Sequence[Outgoing]) -> None:
    """Errors of a message go to its callback."""
    for one in burst:
        producer.send_async(
            one.content,
            log.callback(one.number),
            properties=dict(one.properties) if one.properties else None,
            partition_key=one.key,
            event_timestamp=one.event_ms or None,
        )


def _flush(log: StockProducerLog, producer: Any) -> None:
    try:
        producer.flush()
    except pulsar.Timeout as error:  # their messages' callbacks report it
        log.troubled(error)
