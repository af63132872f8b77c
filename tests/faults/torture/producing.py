"""Producers of the torture, and the lines that they record.

Messages are announced before they are sent, a burst at a time. Receipts come on any thread, and are recorded in lots:
at once if none came for a while, else with those that follow. A failure that leaves open whether the message is stored
is `unknown`; only what the SDK itself, or a broker, does not accept at all is `refused`.

A producer is closed now and then and another opened; also after any error.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Protocol

import magnetar
from magnetar import Result, aio
from tests.faults.torture.clients import Clients, partition_name
from tests.faults.torture.messages import Outgoing, make_message

__all__ = ["AGAIN_S", "AnyId", "Load", "ProducerLog", "error_text", "publisher", "send_all"]

_WRITE_S: Final = 0.05
AGAIN_S: Final = 0.25
LAST_CALLS_S: Final = 5.0
# One burst in this many is followed by a long pause, or by a wait for all receipts.
_LONG_EVERY: Final = 25
_LONG_PAUSE_S: Final = 1.0
_FLUSH_EVERY: Final = 8
# They exclude that it ever will be stored.
_REFUSED: Final[frozenset[object]] = frozenset(
    {Result.MessageTooBig, Result.InvalidMessage, Result.ProducerQueueIsFull, Result.OperationNotSupported}
)


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one producer: bursts of messages up to a maximum, with pauses up to a maximum."""

    burst: int = 60
    pause_s: float = 0.5
    # How large a body is; see make_message.
    size: Callable[[Random], int | None] = lambda chance: 1 + chance.randrange(300)
    # By how many keys; 0: without. `keyless`: so much of it has none all the same.
    keys: int = 0
    keyless: float = 0.0
    # Of the SDK's `create_producer`; and those of which each producer has one of several.
    options: Mapping[str, Any] = field(default_factory=dict)
    one_of: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def key(self, chance: Random) -> str | None:
        if not self.keys or chance.random() < self.keyless:
            return None
        return f"k{chance.randrange(self.keys)}"


class AnyId(Protocol):
    """The interface of a message id of either library."""

    def partition(self) -> int: ...
    def ledger_id(self) -> int: ...
    def entry_id(self) -> int: ...
    def batch_index(self) -> int: ...


class Sends(Protocol):
    """The interface of a producer with `send_async`."""

    @property
    def send_async(self) -> Callable[..., None]: ...


class ProducerLog:
    """Records one producer."""

    # The library's results for a stored message, and for one that never will be.
    ok: object = Result.Ok
    refused: frozenset[object] = _REFUSED
    # Roughly how long a producer is open.
    renew_s: float = 15.0
    # Optional fields of the line `producer`.
    more_fields: Mapping[str, str] = {}

    def __init__(self, clients: Clients, topic: str, name: str, load: Load, chance: Random) -> None:
        self.clients, self.topic, self.name, self.load, self.chance = clients, topic, name, load, chance
        self._next = 0
        self.begin_term()
        self._lock = threading.Lock()
        # What has come and was not written down: numbers and where they are, or why not.
        self._receipts: dict[str, list[list[int]]] = defaultdict(list)
        self._failures: dict[tuple[str, str], list[int]] = defaultdict(list)
        self._written_at = 0.0
        # The number of announced messages without a result.
        self._open = 0
        self._say("producer", topic=topic, **self.more_fields)

    def begin_term(self) -> None:
        """Draw how long it is open from now on."""
        self._until = time.monotonic() + self.renew_s * (0.5 + self.chance.random())

    @property
    def options(self) -> Mapping[str, Any]:
        """Options for the SDK's `create_producer`."""
        defaults = {"producer_name": self.name, "send_timeout_millis": 0, "block_if_queue_full": True}
        drawn = {name: self.chance.choice(values) for name, values in self.load.one_of.items()}
        return {**defaults, **self.load.options, **drawn}

    def closed(self) -> None:
        """It was closed; its last callbacks come before long."""
        self.wait_for_calls()
        self.write()
        if not self._open:
            self._say("producer_closed")

    def wait_for_calls(self) -> None:
        deadline = time.monotonic() + LAST_CALLS_S
        while self._open and time.monotonic() < deadline:
            time.sleep(_WRITE_S)

    @property
    def goes_on(self) -> bool:
        return not self.clients.stopping.is_set() and time.monotonic() < self._until

    def burst(self) -> list[Outgoing]:
        """Announce and return messages to send from now on."""
        self.write()
        first, self._next = self._next, self._next + 1 + self.chance.randrange(self.load.burst)
        messages = [self.make(number) for number in range(first, self._next)]
        with self._lock:
            self._open += len(messages)
        items = [[one.number, one.digest, one.key] for one in messages]
        self._say("sending", items=items, **self.fields_of(messages))
        return messages

    def make(self, number: int) -> Outgoing:
        chance = self.chance
        return make_message(self.name, number, chance, self.load.size(chance), self.load.key(chance))

    def fields_of(self, messages: Sequence[Outgoing]) -> dict[str, Any]:
        """Return optional fields of the line `sending`."""
        return {}

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """The producer is opened within the context."""
        yield

    @property
    def pause_s(self) -> float:
        if self.load.burst > 1 and not self.chance.randrange(_LONG_EVERY):
            return _LONG_PAUSE_S * (1 + self.chance.random())
        return self.chance.random() * self.load.pause_s

    @property
    def flushes(self) -> bool:
        return not self.chance.randrange(_FLUSH_EVERY)

    def receipt(self, number: int, message_id: AnyId) -> None:
        where = partition_name(self.topic, message_id.partition())
        with self._lock:
            self._open -= 1
            self._receipts[where].append(
                [number, message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()]
            )
        self._write_soon()

    def failed(self, number: int, result: object, why: str) -> None:
        with self._lock:
            self._open -= 1
            self._failures["refused" if result in self.refused else "unknown", why].append(number)
        self._write_soon()

    def callback(self, number: int) -> Callable[[Any, Any], None]:
        def called(result: Any, message_id: Any) -> None:
            if result == self.ok:
                self.receipt(number, message_id)
            else:
                self.failed(number, result, str(result))

        return called

    def troubled(self, error: Exception) -> None:
        self._say("error", why=error_text(error))

    def write(self) -> None:
        """Record the results that have come."""
        with self._lock:
            receipts, self._receipts = self._receipts, defaultdict(list)
            failures, self._failures = self._failures, defaultdict(list)
            self._written_at = time.monotonic()
        for where, items in receipts.items():
            self._say("receipt", place=where, items=items)
        for (what, why), numbers in failures.items():
            self._say(what, numbers=numbers, why=why)

    def _write_soon(self) -> None:
        if time.monotonic() > self._written_at + _WRITE_S:
            self.write()

    def _say(self, what: str, **fields: Any) -> None:
        self.clients.recorder.say(what, producer=self.name, **fields)


def error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def publisher(
    topic: str,
    worker: str,
    load: Load | None = None,
    *,
    asynchronous: bool = False,
    make_log: Callable[[Clients, str, str, Load, Random], ProducerLog] = ProducerLog,
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
                if asynchronous:
                    clients.on_the_loop(_run_producer_async(log))
                else:
                    _run_producer(log)
            except magnetar.MagnetarException as error:
                log.troubled(error)
                clients.stopping.wait(AGAIN_S)

    return publish


def _run_producer(log: ProducerLog) -> None:
    with log.opening():
        producer = log.clients.client.create_producer(log.topic, **log.options)
    try:
        while log.goes_on:
            send_all(log, producer, log.burst())
            if log.flushes:
                _flush(log, producer)
            log.clients.stopping.wait(log.pause_s)
        _flush(log, producer)
    finally:
        producer.close()
        log.closed()


def send_all(log: ProducerLog, producer: Sends, burst: Sequence[Outgoing]) -> None:
    for handed, one in enumerate(burst, 1):
        try:
            producer.send_async(
                one.content,
                log.callback(one.number),
                properties=one.properties,
                partition_key=one.key,
                event_timestamp=one.event_ms or None,
            )
        except magnetar.MagnetarException as error:
            log.failed(one.number, error.error(), error_text(error))
            if error.error() not in _REFUSED:  # the producer is over
                for other in burst[handed:]:
                    log.failed(other.number, error.error(), "it was not handed over any more")
                raise


def _flush(log: ProducerLog, producer: magnetar.Producer) -> None:
    try:
        producer.flush()
    except magnetar.exceptions.Timeout as error:  # their messages' callbacks report it
        log.troubled(error)


async def _run_producer_async(log: ProducerLog) -> None:
    with log.opening():
        producer = await log.clients.aio_client.create_producer(log.topic, **log.options)
    try:
        while log.goes_on:
            burst = log.burst()
            results = await asyncio.gather(*(_sent(producer, one) for one in burst), return_exceptions=True)
            for one, result in zip(burst, results, strict=True):
                if isinstance(result, magnetar.MessageId):
                    log.receipt(one.number, result)
                elif isinstance(result, magnetar.MagnetarException):
                    log.failed(one.number, result.error(), error_text(result))
                else:
                    raise result
            log.write()
            await asyncio.sleep(log.pause_s)
    finally:
        await producer.close()
        log.closed()


async def _sent(producer: aio.Producer, one: Outgoing) -> magnetar.MessageId:
    return await producer.send(
        one.content,
        properties=one.properties,
        partition_key=one.key,
        event_timestamp=one.event_ms or None,
    )
