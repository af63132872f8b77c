"""Producers of Pulsar's own library, at the brokers' second door. They write down what the SDK's do (producing.py).

The library sends again by itself what has no receipt when it is connected anew, in its order, and tells each message's
fate once. A failure leaves it open whether the message is stored, but where the message never left the library. A
producer that could not be closed in time keeps to itself what became of the rest: that is given up.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pulsar

from tests.faults.torture.clients import CLIENT_ERRORS, Clients
from tests.faults.torture.messages import Outgoing
from tests.faults.torture.producing import AGAIN_S, Load, ProducerLog

__all__ = ["StockProducerLog", "stock_publisher"]

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
    library: Mapping[str, str] = {"library": "pulsar-client"}

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._untold: set[int] = set()
        self._telling = threading.Lock()

    def burst(self) -> list[Outgoing]:
        burst = super().burst()
        with self._telling:
            self._untold.update(one.number for one in burst)
        return burst

    def callback(self, number: int) -> Callable[[Any, Any], None]:
        called = super().callback(number)

        def called_first(result: Any, message_id: Any) -> None:
            if self._is_first(number):
                called(result, message_id)

        return called_first

    def give_up(self) -> None:
        """What the library has told nothing of when closing is over it may never tell of."""
        self.wait_for_calls()
        with self._telling:
            untold = sorted(self._untold)
        for number in untold:
            if self._is_first(number):
                self.failed(number, None, "its producer was to be closed, and nothing was told of it")
        self.tell()

    def _is_first(self, number: int) -> bool:
        with self._telling:
            there = number in self._untold
            self._untold.discard(number)
        return there


def stock_publisher(topic: str, worker: str, load: Load | None = None) -> Callable[[Clients], None]:
    """What a `Worker` runs: one producer at a time, until it is told to stop."""

    def publish(clients: Clients) -> None:
        chance = clients.chance(f"{topic}.{worker}")
        for life in itertools.count(1):
            if clients.stopping.is_set():
                return
            name = f"{topic}.{worker}~{clients.writer}.{life}"
            log = StockProducerLog(clients, topic, name, load or Load(), chance)
            try:
                _one_life(log)
            except CLIENT_ERRORS as error:
                log.troubled(error)
                clients.stopping.wait(AGAIN_S)

    return publish


def _one_life(log: StockProducerLog) -> None:
    producer = log.clients.stock_client.create_producer(log.topic, **log.options)
    try:
        while log.goes_on:
            _send_all(log, producer, log.burst())
            if log.flushes:
                _flush(log, producer)
            log.clients.stopping.wait(log.pause_s)
        _flush(log, producer)
    finally:
        try:
            producer.close()
        finally:
            log.give_up()
        log.closed()


def _send_all(log: StockProducerLog, producer: Any, burst: Sequence[Outgoing]) -> None:
    """Whatever is wrong with one the callback is told."""
    for one in burst:
        producer.send_async(
            one.payload,
            log.callback(one.number),
            properties=dict(one.properties) if one.properties else None,
            partition_key=one.key,
            event_timestamp=one.event_ms or None,
        )


def _flush(log: StockProducerLog, producer: Any) -> None:
    try:
        producer.flush()
    except pulsar.Timeout as error:  # those of which it is are told of by themselves
        log.troubled(error)
