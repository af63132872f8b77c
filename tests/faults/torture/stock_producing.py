"""Producers of Pulsar's own library, at the brokers' second door. They write down what the SDK's do (producing.py).

The library sends again by itself what has no receipt when it is connected anew, in its order, and tells each message's
fate once. A failure leaves it open whether the message is stored, but where the message never left the library.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
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
        producer.close()
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
