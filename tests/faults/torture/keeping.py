"""Consumers for topics whose messages are retained, expire, or are evicted by policies."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

import magnetar
from tests.faults.torture.clients import Clients
from tests.faults.torture.consumers import Run, cumulatively, received
from tests.faults.torture.consuming import ConsumerLog

__all__ = ["late", "looking_reader", "slowly"]

_BETWEEN_LOOKS_S: Final = 6.0
_AT_A_TIME: Final = 200
_IDLE_MS: Final = 500
# Between two acknowledgements, at most.
_SLOW_S: Final = 3.0


def looking_reader(topic: str, worker: str) -> Run:
    """Read from the first message that is left to the last one, from time to time, on a topic without partitions."""

    def read(clients: Clients) -> None:
        chance = clients.chance(f"{topic}.{worker}")
        for opening in itertools.count(1):
            if clients.quitting.wait(_BETWEEN_LOOKS_S * chance.random()):
                return
            log = ConsumerLog(clients, topic, f"{worker}~{clients.writer}.{opening}", worker)
            clients.recorder.say(
                "subscription", subscription=log.subscription, topic=topic, type="Reader", durable=False
            )
            with log.opening():
                _look(log, clients)

    return read


def _look(log: ConsumerLog, clients: Clients) -> None:
    reader = clients.client.create_reader(log.topic, magnetar.MessageId.earliest)
    log.opened(reader)
    try:
        while reader.has_message_available():
            since = log.waiting()
            log.got(received(lambda: reader.read_next(_IDLE_MS), _AT_A_TIME), since)
            if clients.quitting.is_set():
                return
        clients.recorder.say("looked", consumer=log.name)
    finally:
        log.closing()
        reader.close()
        log.closed()


def late(run: Run) -> Run:
    """Run it when producers are to end: until then nobody reads its subscription."""

    def consume(clients: Clients) -> None:
        clients.stopping.wait()
        run(clients)

    return consume


def slowly(log: ConsumerLog, consumer: Any, found: Sequence[Any]) -> None:
    """Acknowledge after a pause, as long as producers run, so that a backlog grows."""
    log.clients.stopping.wait(_SLOW_S * log.chance.random())
    cumulatively(log, consumer, found)
