"""Readers that begin at a message, by its id: opened there, or moved there by a seek.

The id of a chunked message is that of its last chunk, and reading begins at its first one. So it may come after
messages that other producers have sent between its chunks (checker/rules/started.py).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Final

import pulsar

import magnetar
from magnetar_wire.limits import MAX_MESSAGE_BYTES
from tests.faults.torture.clients import CLIENT_ERRORS, Clients
from tests.faults.torture.consumers import Run, received
from tests.faults.torture.consuming import ConsumerLog
from tests.faults.torture.producing import AGAIN_S, error_text
from tests.faults.torture.stock_consumers import StockMessage

__all__ = ["positioned_reader"]

_IDLE_MS: Final = 300
_MESSAGES: Final = 12
# Ids to choose from.
_REMEMBERED: Final = 200
_PAUSE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Known:
    message_id: Any
    is_chunked: bool


def positioned_reader(topic: str, worker: str, *, stock: bool = False, seeks: bool = True) -> Run:
    """What a `Worker` runs: one reader after the other, on a topic without partitions. `seeks`: some are moved by a
    seek.
    """

    def read(clients: Clients) -> None:
        chance = clients.chance(f"{topic}.{worker}")
        # Ids of messages that were read before, and the last one.
        known: list[_Known] = []
        for opening in itertools.count(1):
            if clients.readers_ending.wait(_PAUSE_S * chance.random()):
                return
            log = ConsumerLog(clients, topic, f"{worker}~{clients.writer}.{opening}", worker)
            start: _Known | None = None
            if known:
                start = known[-1] if chance.random() < 0.5 else chance.choice(known)
            seek = seeks and start is not None and chance.random() < 0.5
            known += _read_some(log, start, stock=stock, seek=seek)
            del known[:-_REMEMBERED]

    return read


def _read_some(log: ConsumerLog, start: _Known | None, *, stock: bool, seek: bool) -> list[_Known]:
    """Read messages from the one at the id on, or from the first one; return their ids."""
    recorder = log.clients.recorder
    recorder.say("subscription", subscription=log.subscription, topic=log.topic, type="Reader", durable=False)
    if start is not None:
        id_ = start.message_id
        log.more_fields = {
            "start": [id_.ledger_id(), id_.entry_id(), id_.batch_index()],
            "start_is_chunked": start.is_chunked,
            **({"library": "pulsar-client"} if stock else {}),
        }
    earliest = pulsar.MessageId.earliest if stock else magnetar.MessageId.earliest
    client: Any = log.clients.stock_client if stock else log.clients.client
    found: list[_Known] = []
    with log.opening():
        first = earliest if seek or start is None else start.message_id
        reader = client.create_reader(log.topic, first, start_message_id_inclusive=True, receiver_queue_size=5)
        try:
            if seek and start is not None:
                reader.seek(start.message_id)
            log.opened(None if stock else reader)
            since = log.waiting()
            messages = received(lambda: _next(reader, stock=stock), _MESSAGES)
            log.got(messages, since)
            found = [_Known(one.message_id(), len(one.data()) > MAX_MESSAGE_BYTES) for one in messages]
        finally:
            log.closing()
            try:
                reader.close()
            except CLIENT_ERRORS as error:
                recorder.say("error", consumer=log.name, why=error_text(error))
                log.clients.quitting.wait(AGAIN_S)
            log.closed()
    return found


def _next(reader: Any, *, stock: bool) -> Any:
    message = reader.read_next(_IDLE_MS)
    return StockMessage(message) if stock else message
