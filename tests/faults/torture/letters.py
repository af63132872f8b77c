"""Consumers with retry and dead letter topics, and readers of the letters.

Each opening draws by the seed what the consumer is: the SDK's, synchronous or of asyncio, or that of Pulsar's own
library. The SDK's retries some messages, nacks others until they are dead letters, and acknowledges the rest. It gets
messages of its topic and of the retry topic, and records the latter by lines of their own. After producers were stopped
it acknowledges everything, in both topics. At the end a reader records all letters of each topic.

Pulsar's library acknowledges and nacks, without dead letters: what was delivered too often becomes one when it comes to
the SDK's next. It has no `dead_letter_policy` here: the C++ client of pulsar-client 3.13 sends a letter from memory
that is freed when its consumer reconnects or is closed, or when the first letter of a batch is stored, and then
acknowledges the message. And if a letter's result comes too late, it reads a freed message id, and its process may die.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal

import magnetar
from tests.faults.checker.reused_sequence_ids import LIBRARY
from tests.faults.torture.clients import Clients
from tests.faults.torture.connections import short_name
from tests.faults.torture.consumers import (
    consumer,
    cumulatively,
    received,
    reopened,
    run_consumer,
    run_consumer_async,
)
from tests.faults.torture.consuming import ConsumerLog, by_partition, id_of, options
from tests.faults.torture.messages import read_message
from tests.faults.torture.producing import error_text
from tests.faults.torture.stock_consumers import StockMessage, run_stock_consumer
from tests.faults.torture.workload import Letters

__all__ = ["LetterMessage", "letter_consumer", "letter_reader"]

# The properties that a letter has in addition.
_ADDED: Final = frozenset(
    {"REAL_TOPIC", "REAL_SUBSCRIPTION", "ORIGIN_MESSAGE_ID", "ORIGIN_MESSAGE_IDY_TIME", "RECONSUMETIMES", "DELAY_TIME"}
)
# So much is retried, and so much nacked.
_RETRIES: Final = 0.2
_NACKS: Final = 0.2
_LONGEST_DELAY_MS: Final = 400
_IDLE_MS: Final = 200
# The largest number of messages that are handled together.
_MOST: Final = 20
_Client = Literal["sync", "asyncio", "stock"]
_OURS: Final[tuple[_Client, ...]] = ("sync", "asyncio")

Run = Callable[[Clients], None]


class LetterMessage:
    """A letter with the methods of the message that it was made of."""

    def __init__(self, letter: Any) -> None:
        self._letter = letter
        self.data, self.has_null_value = letter.data, letter.has_null_value
        self.has_key, self.partition_key = letter.has_key, letter.partition_key
        self.event_timestamp = letter.event_timestamp

    def properties(self) -> dict[str, str]:
        return {name: value for name, value in self._letter.properties().items() if name not in _ADDED}

    @property
    def times(self) -> int:
        """How often it was retried."""
        return int(self._letter.properties().get("RECONSUMETIMES", "0"))

    @property
    def origin(self) -> str:
        return str(self._letter.properties()["ORIGIN_MESSAGE_ID"])

    @property
    def who(self) -> list[Any]:
        """The first fields of its items."""
        read = read_message(self)
        return [read.producer, read.number, read.digest, read.key]


class _LetterLog(ConsumerLog):
    # Of the present opening.
    client: _Client = "sync"

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        # Pulsar's library does not consume the retry topic, which is to be worked off at the end.
        self.client = self.chance.choice(_OURS if self.clients.stopping.is_set() else (*_OURS, "stock"))
        self.more_fields = {"library": LIBRARY} if self.client == "stock" else {}
        with super().opening():
            yield

    def got(self, messages: Sequence[Any], since: float) -> None:
        super().got([one for one in messages if short_name(one.topic_name()) == self.topic], since)
        letters = [one for one in messages if short_name(one.topic_name()) != self.topic]
        for where, found in by_partition(letters).items():
            items = []
            for one in found:
                letter = LetterMessage(one)
                items.append([*letter.who, *id_of(one), one.redelivery_count(), letter.times])
            self._say("got_letter", since=since, place=where, items=items)

    @contextlib.contextmanager
    def reconsuming(self, message: Any) -> Iterator[None]:
        """The message is retried within the context."""
        fields = {"place": short_name(message.topic_name()), "ids": [id_of(message)]}
        self._say("reconsuming", **fields)
        try:
            yield
        except magnetar.MagnetarException as error:
            self._say("ack_unknown", why=error_text(error))
            raise
        self._say("reconsumed", **fields)

    def share(self, messages: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Return the messages to acknowledge, to retry and to nack."""
        shares: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
        for one in messages:
            draw = 1.0 if self.last else self.chance.random()
            shares[1 if draw < _RETRIES else 2 if draw < _RETRIES + _NACKS else 0].append(one)
        return shares

    def delay_ms(self) -> int:
        return self.chance.randrange(_LONGEST_DELAY_MS)


def letter_consumer(letters: Letters, worker: str) -> Run:
    def live(log: ConsumerLog) -> None:
        assert isinstance(log, _LetterLog)
        if log.client == "sync":
            _live(log, letters)
        elif log.client == "asyncio":
            log.clients.on_the_loop(_live_async(log, letters))
        elif not log.last:
            # Others acknowledge part of a batch (workloads/stock.py).
            more: dict[str, Any] = {"batch_index_ack_enabled": True, "most": _MOST}
            run_stock_consumer(log, letters.topic, letters.subscription, letters.type, _work_off_stock, **more)

    return reopened(lambda clients: _LetterLog(clients, letters.topic, letters.subscription, worker), live)


def _options(letters: Letters) -> dict[str, Any]:
    policy = magnetar.ConsumerDeadLetterPolicy(letters.most)
    return options(letters.type, enable_retry=True, dead_letter_policy=policy)


def _live(log: _LetterLog, letters: Letters) -> None:
    consumer = log.clients.client.subscribe(letters.topic, letters.subscription, **_options(letters))

    def receive() -> list[Any]:
        return received(lambda: consumer.receive(_IDLE_MS), 1 + log.chance.randrange(_MOST))

    run_consumer(log, consumer, receive, _work_off)


def _work_off(log: ConsumerLog, consumer: magnetar.Consumer, found: Sequence[Any]) -> None:
    assert isinstance(log, _LetterLog)
    chosen, retried, nacked = log.share(found)
    if chosen:
        with log.acknowledging(chosen):
            consumer.acknowledge(chosen, receipt=True)
    for one in retried:
        with log.reconsuming(one):
            consumer.reconsume_later(one, log.delay_ms())
    log.nacking(nacked)
    for one in nacked:
        consumer.negative_acknowledge(one)


async def _live_async(log: _LetterLog, letters: Letters) -> None:
    client = log.clients.aio_client
    consumer = await client.subscribe(letters.topic, letters.subscription, **_options(letters))
    await run_consumer_async(log, consumer, _work_off_async, _MOST)


async def _work_off_async(log: ConsumerLog, consumer: Any, found: Sequence[Any]) -> None:
    assert isinstance(log, _LetterLog)
    chosen, retried, nacked = log.share(found)
    if chosen:
        with log.acknowledging(chosen):
            await consumer.acknowledge(chosen, receipt=True)
    for one in retried:
        with log.reconsuming(one):
            await consumer.reconsume_later(one, log.delay_ms())
    log.nacking(nacked)
    for one in nacked:
        await consumer.negative_acknowledge(one)


def _work_off_stock(log: ConsumerLog, consumer: Any, found: Sequence[StockMessage]) -> None:
    assert isinstance(log, _LetterLog)
    chosen, *others = log.share(found)
    nacked = [one for share in others for one in share]
    log.acknowledging_unheard(chosen)
    for one in chosen:
        consumer.acknowledge(one.message)
    log.nacking(nacked)
    for one in nacked:
        consumer.negative_acknowledge(one.message)


class _ReaderLog(ConsumerLog):
    def got(self, messages: Sequence[Any], since: float) -> None:
        for where, found in by_partition(messages).items():
            self._say("letter", place=where, items=[self._item(LetterMessage(one), one) for one in found])

    def _item(self, letter: LetterMessage, message: Any) -> list[Any]:
        stored_at = time.monotonic() - (time.time() - message.publish_timestamp() / 1000)
        return [*letter.who, letter.origin, letter.times, stored_at]


def letter_reader(topic: str, subscription: str, worker: str) -> Run:
    """Record all letters of the topic."""
    return consumer(topic, subscription, "Exclusive", worker, cumulatively, most=1000, make_log=_ReaderLog)
