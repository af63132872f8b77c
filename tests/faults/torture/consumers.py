"""Kinds of consumers: the functions that a workload's `Worker` runs until `quit`.

How a consumer acknowledges is a function of the messages that it got (`Act`). Those of asyncio have one of their own.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import pulsar

import magnetar
from magnetar.exceptions import Timeout
from tests.faults.torture.clients import CLIENT_ERRORS, Clients
from tests.faults.torture.consuming import ConsumerLog, Kind, options
from tests.faults.torture.producing import AGAIN_S, error_text

__all__ = [
    "AsyncAct",
    "async_consumer",
    "batch_consumer",
    "consumer",
    "cumulatively",
    "either",
    "listening_consumer",
    "patiently",
    "reader",
    "received",
    "reopened",
    "run_consumer",
    "run_consumer_async",
    "some_each",
    "some_each_and_all_again",
    "some_each_async",
    "stubbornly",
]

_IDLE_MS: Final = 200
_GATHER_S: Final = 0.5

Act = Callable[[ConsumerLog, magnetar.Consumer, Sequence[Any]], None]
AsyncAct = Callable[[ConsumerLog, Any, Sequence[Any]], Awaitable[None]]
MakeLog = Callable[[Clients, Any, str, str], ConsumerLog]
Run = Callable[[Clients], None]
R = TypeVar("R")


# How they acknowledge.


def cumulatively(log: ConsumerLog, consumer: magnetar.Consumer, found: Sequence[Any]) -> None:
    """Acknowledge all up to the last one of each partition."""
    for last in {one.topic_name(): one for one in found}.values():
        with log.acknowledging_up_to(last):
            consumer.acknowledge_cumulative(last, receipt=True)


def some_each(log: ConsumerLog, consumer: magnetar.Consumer, found: Sequence[Any]) -> None:
    """Acknowledge some by a list of ids; nack half of the others, and leave the rest."""
    chosen = _acknowledge_some(log, consumer, found)
    refused = _refused(log, found, chosen)
    log.nacking(refused)
    for one in refused:
        consumer.negative_acknowledge(one)


def some_each_and_all_again(log: ConsumerLog, consumer: magnetar.Consumer, found: Sequence[Any]) -> None:
    """And now and then have everything redelivered, also what was prefetched."""
    some_each(log, consumer, found)
    if log.chance.random() < 0.2:
        consumer.redeliver_unacknowledged_messages()


def stubbornly(log: ConsumerLog, consumer: magnetar.Consumer, found: Sequence[Any]) -> None:
    """Acknowledge some of them one by one; the others are left to the next consumer."""
    _acknowledge_some(log, consumer, found)


def either(log: ConsumerLog, consumer: magnetar.Consumer, found: Sequence[Any]) -> None:
    """Acknowledge cumulatively or one by one, at random. The next cumulative one covers what the latter left."""
    (cumulatively if log.chance.random() < 0.5 else stubbornly)(log, consumer, found)


async def some_each_async(log: ConsumerLog, consumer: Any, found: Sequence[Any]) -> None:
    chosen = log.chosen(found)
    if chosen:
        with log.acknowledging(chosen):
            await consumer.acknowledge(chosen, receipt=True)
    refused = _refused(log, found, chosen)
    log.nacking(refused)
    for one in refused:
        await consumer.negative_acknowledge(one)


def _acknowledge_some(log: ConsumerLog, consumer: magnetar.Consumer, found: Sequence[Any]) -> list[Any]:
    chosen = log.chosen(found)
    if chosen:
        with log.acknowledging(chosen):
            consumer.acknowledge(chosen, receipt=True)
    return chosen


def _refused(log: ConsumerLog, found: Sequence[Any], chosen: Sequence[Any]) -> list[Any]:
    taken = {id(one) for one in chosen}
    return [one for one in found if id(one) not in taken and log.chance.random() < 0.5]


# How they receive.


def consumer(
    topic: str,
    subscription: str,
    kind: Kind,
    worker: str,
    act: Act,
    *,
    most: int = 40,
    make_log: MakeLog = ConsumerLog,
    **more: Any,
) -> Run:
    """One message at a time, of which up to `most` are handled together."""

    def receive(log: ConsumerLog, consumer: magnetar.Consumer) -> list[Any]:
        return received(lambda: consumer.receive(_IDLE_MS), 1 + log.chance.randrange(most))

    return _synchronous(topic, subscription, kind, worker, act, receive, more, make_log)


def batch_consumer(topic: str, subscription: str, kind: Kind, worker: str, act: Act, **more: Any) -> Run:
    """A consumer that uses `batch_receive`."""
    policy = magnetar.ConsumerBatchReceivePolicy(20, 4 * 1024 * 1024, _IDLE_MS)

    def receive(_: ConsumerLog, consumer: magnetar.Consumer) -> list[Any]:
        return list(consumer.batch_receive())

    return _synchronous(topic, subscription, kind, worker, act, receive, {"batch_receive_policy": policy, **more})


def listening_consumer(topic: str, subscription: str, kind: Kind, worker: str, act: Act, **more: Any) -> Run:
    """A consumer with a message listener."""

    return reopened(
        lambda clients: ConsumerLog(clients, topic, subscription, worker),
        lambda log: _listen(log, act, options(kind, **more)),
    )


def async_consumer(
    topic: str | re.Pattern[str],
    subscription: str,
    kind: Kind,
    worker: str,
    act: AsyncAct,
    *,
    most: int = 20,
    make_log: MakeLog = ConsumerLog,
    **more: Any,
) -> Run:
    async def live(log: ConsumerLog) -> None:
        consumer = await log.clients.aio_client.subscribe(topic, subscription, **options(kind, **more))
        await run_consumer_async(log, consumer, act, most)

    return reopened(
        lambda clients: make_log(clients, topic, subscription, worker),
        lambda log: log.clients.on_the_loop(live(log)),
    )


def reader(topic: str, worker: str) -> Run:
    """From the first message on, through all faults. It has a subscription of its own."""

    def read(clients: Clients) -> None:
        log = ConsumerLog(clients, topic, f"{worker}~{clients.writer}", worker)
        clients.recorder.say("subscription", subscription=log.subscription, topic=topic, type="Reader", durable=False)
        with log.opening():
            opened = patiently(log, lambda: clients.client.create_reader(topic, magnetar.MessageId.earliest))
            if opened is None:
                return
            log.opened(opened)
            try:
                while not clients.quitting.is_set():
                    since = log.waiting()
                    log.got(received(lambda: opened.read_next(_IDLE_MS), 40), since)
            finally:
                log.closing()
                opened.close()
                log.closed()

    return read


def _synchronous(
    topic: str,
    subscription: str,
    kind: Kind,
    worker: str,
    act: Act,
    receive: Callable[[ConsumerLog, magnetar.Consumer], list[Any]],
    more: dict[str, Any],
    make_log: MakeLog = ConsumerLog,
) -> Run:
    def live(log: ConsumerLog) -> None:
        consumer = log.clients.client.subscribe(topic, subscription, **options(kind, **more))
        run_consumer(log, consumer, lambda: receive(log, consumer), act)

    return reopened(lambda clients: make_log(clients, topic, subscription, worker), live)


# One opening after the other.


def reopened(make_log: Callable[[Clients], ConsumerLog], live: Callable[[ConsumerLog], None]) -> Run:
    """`live` is one opening, to its end."""

    def consume(clients: Clients) -> None:
        log = make_log(clients)
        while not clients.quitting.is_set():
            with log.opening():
                live(log)

    return consume


def run_consumer(
    log: ConsumerLog,
    consumer: Any,
    receive: Callable[[], Sequence[Any]],
    act: Callable[[ConsumerLog, Any, Sequence[Any]], None],
    *,
    is_watched: bool = True,
) -> None:
    """From its opening to its end. `is_watched`: its connections are."""
    log.opened(consumer if is_watched else None)
    try:
        while log.goes_on:
            since = log.waiting()
            found = receive()
            log.got(found, since)
            if found:
                act(log, consumer, found)
    finally:
        log.closing()
        consumer.close()
        log.closed()


async def run_consumer_async(log: ConsumerLog, consumer: Any, act: AsyncAct, most: int) -> None:
    log.opened(consumer)
    try:
        while log.goes_on:
            since = log.waiting()
            found = await _received_async(consumer, 1 + log.chance.randrange(most))
            log.got(found, since)
            await act(log, consumer, found)
    finally:
        log.closing()
        await consumer.close()
        log.closed()


def _listen(log: ConsumerLog, act: Act, given: dict[str, Any]) -> None:
    # A call may be in flight, or begin, when the consumer is closed: from then on it gets nothing.
    calling = threading.Lock()
    # An error of a call ends this opening, as it does where there is no listener.
    met: list[magnetar.MagnetarException] = []
    closing = threading.Event()
    since = [time.monotonic()]

    def listener(consumer: magnetar.Consumer, message: Any) -> None:
        with calling:
            if closing.is_set():
                return
            log.got([message], since[0])
            since[0] = time.monotonic()
            try:
                act(log, consumer, [message])
            except magnetar.MagnetarException as error:
                met.append(error)
                closing.set()

    with calling:  # the first call waits until the line `opened`
        consumer = log.clients.client.subscribe(
            log.topic, log.subscription.removeprefix(f"{log.topic}."), message_listener=listener, **given
        )
        log.opened(consumer)
    try:
        while log.goes_on and not closing.wait(_IDLE_MS / 1000):
            pass
    finally:
        with calling:
            closing.set()
            log.closing()
        consumer.close()
        log.closed()
    if met:
        raise met[0]


def received(receive: Callable[[], Any], most: int) -> list[Any]:
    """At most this many; a slow trickle of messages is handled without a long wait."""
    found: list[Any] = []
    until = time.monotonic() + _GATHER_S
    with suppress(Timeout, pulsar.Timeout):
        while len(found) < most and (not found or time.monotonic() < until):
            found.append(receive())
    return found


async def _received_async(consumer: Any, most: int) -> list[Any]:
    found: list[Any] = []
    until = time.monotonic() + _GATHER_S
    with suppress(Timeout):
        while len(found) < most and (not found or time.monotonic() < until):
            found.append(await consumer.receive(_IDLE_MS))
    return found


def patiently(log: ConsumerLog, make: Callable[[], R]) -> R | None:
    """Return what `make` makes, after any number of failures. None: it is time to quit."""
    while not log.clients.quitting.is_set():
        try:
            return make()
        except CLIENT_ERRORS as error:
            log.clients.recorder.say("error", consumer=log.name, why=error_text(error))
            log.clients.quitting.wait(AGAIN_S)
    return None
