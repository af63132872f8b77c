"""Exclusive producers that compete for a topic, in the SDK and in Pulsar's own library.

A candidate opens with an access mode that it draws, and publishes until its time is over, or another one has fenced it.
Then it ends, and the next candidate begins. One that is refused tries again a moment later, with another mode. One that
waits is opened when its turn comes; when producers are to end, all turns come.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random
from typing import Any, Final

import pulsar

from magnetar import ProducerAccessMode
from tests.faults.torture.clients import CLIENT_ERRORS, Clients
from tests.faults.torture.producing import AGAIN_S, Load, ProducerLog, send_all
from tests.faults.torture.stock_producing import StockProducerLog, send_all_stock

__all__ = ["candidate", "stock_candidate"]

# By how often each is drawn.
_MODES: Final = ("WaitForExclusive",) * 3 + ("ExclusiveWithFencing",) + ("Exclusive",) * 2
_PAUSE_S: Final = 1.0


class _CandidateLog(ProducerLog):
    renew_s = 6.0

    def __init__(self, clients: Clients, topic: str, name: str, load: Load, chance: Random) -> None:
        self.mode = chance.choice(_MODES)
        self.more_fields = {**self.more_fields, "access_mode": self.mode}
        super().__init__(clients, topic, name, load, chance)

    @property
    def open_options(self) -> dict[str, Any]:
        return {**self.options, "access_mode": self.access_mode}

    @property
    def access_mode(self) -> Any:
        return ProducerAccessMode[self.mode]

    def opened(self) -> None:
        self.begin_term()
        self._say("producer_opened")


class _StockCandidateLog(_CandidateLog, StockProducerLog):
    more_fields = StockProducerLog.more_fields

    @property
    def access_mode(self) -> Any:
        return getattr(pulsar.ProducerAccessMode, self.mode)


def candidate(topic: str, worker: str, load: Load) -> Callable[[Clients], None]:
    """What a `Worker` runs: one candidate at a time, until producers are stopped."""
    return _candidates(topic, worker, load, _CandidateLog, _lead)


def stock_candidate(topic: str, worker: str, load: Load) -> Callable[[Clients], None]:
    return _candidates(topic, worker, load, _StockCandidateLog, _lead_stock)


def _candidates(
    topic: str, worker: str, load: Load, make_log: type[_CandidateLog], lead: Callable[[Any], None]
) -> Callable[[Clients], None]:
    def publish(clients: Clients) -> None:
        chance = clients.chance(f"{topic}.{worker}")
        for opening in itertools.count(1):
            if clients.stopping.is_set():
                return
            log = make_log(clients, topic, f"{topic}.{worker}~{clients.writer}.{opening}", load, chance)
            try:
                lead(log)
            except CLIENT_ERRORS as error:
                log.troubled(error)
                log.closed()
                clients.stopping.wait(AGAIN_S + _PAUSE_S * chance.random())

    return publish


def _lead(log: _CandidateLog) -> None:
    producer = log.clients.client.create_producer(log.topic, **log.open_options)
    log.opened()
    try:
        while log.goes_on:
            send_all(log, producer, log.burst())
            log.clients.stopping.wait(log.pause_s)
        producer.flush()
    finally:
        producer.close()
        log.closed()


def _lead_stock(log: _StockCandidateLog) -> None:
    producer = log.clients.stock_client.create_producer(log.topic, **log.open_options)
    log.opened()
    try:
        while log.goes_on:
            send_all_stock(log, producer, log.burst())
            log.clients.stopping.wait(log.pause_s)
        producer.flush()
    finally:
        try:
            producer.close()
        finally:
            log.abandon_pending()
        log.closed()
