"""Consumers and readers of Pulsar's own library, at the brokers' Pulsar listener; consumers.py has the SDK's.

The library has no receipts for acknowledgements, nor does it show over which connection a message came. It groups
acknowledgements, and loses them with a connection: then their messages are redelivered. So each acknowledgement is
announced, and none has a receipt; and rules that need connections skip these consumers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pulsar

from tests.faults.torture.clients import Clients
from tests.faults.torture.consumers import patiently, received, reopened, run_consumer
from tests.faults.torture.consuming import ConsumerLog, Kind

__all__ = [
    "StockMessage",
    "run_stock_consumer",
    "stock_consumer",
    "stock_cumulatively",
    "stock_reader",
    "stock_some_each",
]

_IDLE_MS: Final = 200
_REFUSES: Final = 0.15
_KINDS: Final = {
    "Exclusive": pulsar.ConsumerType.Exclusive,
    "Failover": pulsar.ConsumerType.Failover,
    "Shared": pulsar.ConsumerType.Shared,
    "Key_Shared": pulsar.ConsumerType.KeyShared,
}

Act = Callable[[ConsumerLog, Any, Sequence["StockMessage"]], None]
Run = Callable[[Clients], None]


class StockMessage:
    """A message of Pulsar's library with the methods of the SDK's messages."""

    def __init__(self, message: Any) -> None:
        self.message = message
        self.data, self.properties = message.data, message.properties
        self.has_null_value, self.partition_key = message.has_null_value, message.partition_key
        self.event_timestamp, self.redelivery_count = message.event_timestamp, message.redelivery_count
        self.topic_name, self.message_id = message.topic_name, message.message_id

    def has_key(self) -> bool:
        """Whether it has a key; no producer sends an empty one."""
        return bool(self.message.partition_key())


def stock_cumulatively(log: ConsumerLog, consumer: Any, found: Sequence[StockMessage]) -> None:
    """Acknowledge all up to the last one of each partition."""
    for last in {one.topic_name(): one for one in found}.values():
        log.acknowledging_up_to_unheard(last)
        consumer.acknowledge_cumulative(last.message)


def stock_some_each(log: ConsumerLog, consumer: Any, found: Sequence[StockMessage]) -> None:
    """Acknowledge one by one; nack some now and then. A nack redelivers a whole batch, with those acknowledged before:
    so if some were nacked each time, no batch would ever be finished.
    """
    chosen = log.chosen(found) if log.chance.random() < _REFUSES else found
    taken = {id(one) for one in chosen}
    refused = [one for one in found if id(one) not in taken]
    if chosen:
        log.acknowledging_unheard(chosen)
    for one in chosen:
        consumer.acknowledge(one.message)
    log.nacking(refused)
    for one in refused:
        consumer.negative_acknowledge(one.message)


def stock_consumer(
    topic: str, subscription: str, kind: Kind, worker: str, act: Act, *, stays: bool = False, **more: Any
) -> Run:
    """One message at a time, of which some are handled together."""
    return reopened(
        lambda clients: ConsumerLog(clients, topic, subscription, worker, stays=stays),
        lambda log: run_stock_consumer(log, topic, subscription, kind, act, **more),
    )


def run_stock_consumer(
    log: ConsumerLog, topic: str, subscription: str, kind: Kind, act: Act, *, most: int = 40, **more: Any
) -> None:
    """One opening, to its end."""
    options = {
        "consumer_type": _KINDS[kind],
        "initial_position": pulsar.InitialPosition.Earliest,
        "negative_ack_redelivery_delay_ms": 300,
        "receiver_queue_size": 200,
        **more,
    }
    consumer = log.clients.stock_client.subscribe(topic, subscription, **options)

    def receive() -> list[StockMessage]:
        return _received(consumer.receive, 1 + log.chance.randrange(most))

    run_consumer(log, consumer, receive, act, is_watched=False)


def stock_reader(topic: str, worker: str, **more: Any) -> Run:
    """From the first message on, through all faults."""

    def read(clients: Clients) -> None:
        log = ConsumerLog(clients, topic, f"{worker}~{clients.writer}", worker)
        clients.recorder.say("subscription", subscription=log.subscription, topic=topic, type="Reader", durable=False)
        with log.opening():
            client = clients.stock_client
            opened = patiently(log, lambda: client.create_reader(topic, pulsar.MessageId.earliest, **more))
            if opened is None:
                return
            log.opened(None)
            try:
                while not clients.quitting.is_set():
                    since = log.waiting()
                    log.got(_received(opened.read_next, 40), since)
            finally:
                log.closing()
                opened.close()
                log.closed()

    return read


def _received(receive: Callable[[int], Any], most: int) -> list[StockMessage]:
    return [StockMessage(one) for one in received(lambda: receive(_IDLE_MS), most)]
