"""A producer with a fixed name and its own sequence ids, on a deduplicated topic without partitions. It resends what
has no receipt after each failure, as an application does that wants each message stored once.

The application's rule is Pulsar's: after a failure it sends nothing more, closes the producer, and reopens it by the
same name. `last_sequence_id` reports up to which id everything is stored: these messages have a receipt by it, without
an id in the log. What is above it is resent in order, and so are some that had receipts before: they must not be stored
again. The rule needs that nothing is sent after a message that failed, so each burst begins when the one before it has
its results. If a message failed and a later one has a receipt all the same, nobody knows whether the first is stored.

Ids have gaps. A process that was killed forgets its messages: its next run begins above the broker's last id. The stock
library's batches name their lowest id only, so what is resent in another batch may be stored again: it sends none here.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import pulsar

from magnetar import Result
from tests.faults.torture.clients import CLIENT_ERRORS, Clients
from tests.faults.torture.messages import Outgoing
from tests.faults.torture.producing import AGAIN_S, Load, ProducerLog

__all__ = ["ResendingLog", "resending_publisher"]

_SEND_TIMEOUT_MS: Final = 2500
_LONGEST_GAP: Final = 3
# Of one opening.
_MOST_BURSTS: Final = 40
# The last ones with a receipt, of which some are resent.
_REMEMBERED: Final = 30
_LOOK_S: Final = 0.01
# Longer than the send timeout.
_LONGEST_WAIT_S: Final = 10.0
_OK: Final = (Result.Ok, pulsar.Result.Ok)


@dataclass(frozen=True, slots=True)
class _Sent:
    sequence_id: int
    message: Outgoing


class ResendingLog(ProducerLog):
    """Records the openings of one name in one process as one producer: its messages are the same ones."""

    def __init__(self, clients: Clients, topic: str, name: str, load: Load, chance: Random) -> None:
        super().__init__(clients, topic, name, load, chance)
        self._last_id: int | None = None  # as it was given to a message, or reported by the broker
        # In the order of their ids: without a receipt.
        self._unresolved: dict[int, _Sent] = {}
        self._resolved: deque[_Sent] = deque(maxlen=_REMEMBERED)
        self._numbers_with_receipt: set[int] = set()
        # The highest id that has a receipt with an id in the log.
        self._highest_stored = -1
        # Of this opening: the sends without a result; and whether one has failed.
        self._waiting = 0
        self.has_failed = False

    @property
    def has_unresolved(self) -> bool:
        return bool(self._unresolved)

    def reopened(self, last_sequence_id: int) -> tuple[list[_Sent], list[_Sent]]:
        """Return messages to resend though they are stored, and then those that are to be resent, in order."""
        self._abandon_ambiguous()
        with self._lock:
            self._waiting, self.has_failed = 0, False
            first = self._last_id is None
            self._last_id = max(last_sequence_id, -1 if self._last_id is None else self._last_id)
            stored = [one for one in self._unresolved.values() if one.sequence_id <= last_sequence_id]
            again = [] if first else self._choose_resolved()
        for one in stored:
            self._resolve(one, [-1, -1, -1])
        with self._lock:
            # What was announced and not sent is here, too.
            return again, list(self._unresolved.values())

    def _abandon_ambiguous(self) -> None:
        with self._lock:
            left = [one for one in self._unresolved.values() if one.sequence_id < self._highest_stored]
            for one in left:
                del self._unresolved[one.sequence_id]
        for one in left:
            self.failed(one.message.number, None, "it failed, and a later message is stored")

    def _choose_resolved(self) -> list[_Sent]:
        return [] if self.chance.random() < 0.3 else [one for one in self._resolved if self.chance.random() < 0.3]

    def next_messages(self) -> list[_Sent]:
        """Announce and return new messages with their ids."""
        found = []
        assert self._last_id is not None
        for message in self.burst():
            # pulsar-client takes an id of 0 for none.
            self._last_id = max(self._last_id, 0) + 1 + self.chance.randrange(_LONGEST_GAP)
            found.append(_Sent(self._last_id, message))
        with self._lock:
            self._unresolved |= {one.sequence_id: one for one in found}
        return found

    def sending(self, one: _Sent) -> Callable[[Any, Any], None]:
        """Return the callback for the result of this send."""
        with self._lock:
            self._waiting += 1

        def called(result: Any, message_id: Any) -> None:
            if result not in _OK:
                self.has_failed = True
            else:
                found = [message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()]
                self._resolve(one, found)
            with self._lock:
                self._waiting -= 1

        return called

    def wait_for_results(self) -> None:
        """Return when all sends have a result, or producers are to end and have had their time."""
        deadline = time.monotonic() + _LONGEST_WAIT_S
        while self._waiting and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        self.has_failed |= bool(self._waiting)

    def _resolve(self, one: _Sent, found: list[int]) -> None:
        number = one.message.number
        with self._lock:
            self._unresolved.pop(one.sequence_id, None)
            if number in self._numbers_with_receipt:
                if found[0] < 0:
                    return
                # Stored again though it was stored before: the judge finds the second receipt.
            else:
                self._numbers_with_receipt.add(number)
                if found[0] >= 0:
                    self._highest_stored = max(self._highest_stored, one.sequence_id)
                self._resolved.append(one)
                self._open -= 1
            self._receipts[self.topic].append([number, *found])
        self._write_soon()

    def abandon(self) -> None:
        """Record what has no result at the end."""
        with self._lock:
            left, self._unresolved = list(self._unresolved.values()), {}
        for one in left:
            self.failed(one.message.number, None, "its producer came to its end")
        self.closed()


def resending_publisher(
    topic: str, worker: str, load: Load | None = None, *, stock: bool = False
) -> Callable[[Clients], None]:
    """What a `Worker` runs, in one process only: a name has one producer."""
    fixed_name = f"{topic}.{worker}"

    def publish(clients: Clients) -> None:
        log = ResendingLog(
            clients, topic, f"{fixed_name}~{clients.writer}.1", load or Load(), clients.chance(fixed_name)
        )
        # When producers are to end, it goes on until all has a result.
        while not clients.stopping.is_set() or (log.has_unresolved and not clients.quitting.is_set()):
            try:
                _run_once(log, fixed_name, stock=stock)
            except CLIENT_ERRORS as error:
                log.troubled(error)
                clients.quitting.wait(AGAIN_S)
        log.abandon()

    return publish


def _run_once(log: ResendingLog, fixed_name: str, *, stock: bool) -> None:
    """One opening, until it is renewed, or a send fails."""
    client: Any = log.clients.stock_client if stock else log.clients.client
    options = {**log.options, "producer_name": fixed_name, "send_timeout_millis": _SEND_TIMEOUT_MS}
    producer = client.create_producer(log.topic, **options)
    try:
        again, unresolved = log.reopened(producer.last_sequence_id())
        for burst in itertools.chain([again + unresolved], _bursts(log)):
            for one in burst:
                if not log.has_failed:
                    _send(log, producer, one)
            log.wait_for_results()
            log.clients.stopping.wait(log.pause_s)
    finally:
        producer.close()
        log.write()


def _bursts(log: ResendingLog) -> Iterator[list[_Sent]]:
    for _ in range(log.chance.randrange(1, _MOST_BURSTS)):
        if log.has_failed or log.clients.stopping.is_set():
            return
        yield log.next_messages()


def _send(log: ResendingLog, producer: Any, one: _Sent) -> None:
    message = one.message
    producer.send_async(
        message.content,
        log.sending(one),
        properties=dict(message.properties) if message.properties else None,
        partition_key=message.key,
        sequence_id=one.sequence_id,
        event_timestamp=message.event_ms or None,
    )
