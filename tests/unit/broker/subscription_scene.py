"""A topic's subscriptions on a log in memory, and consumers that write down what they get."""

from __future__ import annotations

import asyncio
from typing import Any

from magnetar_broker.position import Position
from magnetar_broker.settings.delivery import SubscriptionSettings
from magnetar_broker.topics.consumer import Consumer
from magnetar_broker.topics.subscription_stats import SubscriptionStats
from magnetar_broker.topics.subscriptions import Subscriptions
from magnetar_protos.broker_pb2 import (
    Acknowledge,
    BatchMessages,
    EntryRange,
    KeySharedOptions,
    OpenConsumer,
    StartAt,
    StartMessageId,
    SubscriptionType,
)
from magnetar_testing.clock import ManualClock
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.topic_name import TopicName
from tests.unit.broker.fake_cursors import FakeCursorTable
from tests.unit.broker.fake_log import FakeLog
from tests.unit.broker.recording_sink import RecordingSink

__all__ = ["EARLIEST", "LATEST", "Scene", "ack", "at_position", "at_time", "settle"]

EARLIEST = StartAt(earliest=True)
LATEST = StartAt(latest=True)


def at_position(position: Position, batch_index: int = -1, *, inclusive: bool = True) -> StartAt:
    return StartAt(
        message_id=StartMessageId(
            ledger_id=position.ledger_id, entry_id=position.entry_id, batch_index=batch_index, inclusive=inclusive
        )
    )


def at_time(time_ms: int) -> StartAt:
    return StartAt(time_ms=time_ms)


async def settle() -> None:
    """Lets everything run that can, without time passing."""
    for _ in range(50):
        await asyncio.sleep(0)


class Scene:
    def __init__(
        self,
        *,
        topic: str = "topic",
        per_ledger: int = 10,
        cursors: type[FakeCursorTable] = FakeCursorTable,
        clock: ManualClock | None = None,
        **options: Any,
    ) -> None:
        self.log = FakeLog(per_ledger)
        self.cursors = cursors(self.log)
        self.clock = clock or ManualClock()
        self.subscriptions = Subscriptions(
            TopicName.parse(topic),
            self.log,
            self.cursors,
            SubscriptionSettings(**options),
            self.clock,
            SeededRandomness(1),
        )
        self.log.on_appended = self.subscriptions.appended

    def add(self, count: int) -> list[Position]:
        return [self.log.add() for _ in range(count)]

    async def subscribe(
        self,
        name: str = "s",
        kind: SubscriptionType = SubscriptionType.EXCLUSIVE,
        *,
        consumer: str = "",
        priority: int = 0,
        durable: bool = True,
        start: StartAt = EARLIEST,
        permits: int = 1000,
        incarnation: str = "",
        key_shared: KeySharedOptions | None = None,
    ) -> tuple[Consumer, RecordingSink]:
        sink = RecordingSink()
        opened = OpenConsumer(
            topic="topic",
            subscription=name,
            type=kind,
            consumer_name=consumer,
            priority_level=priority,
            durable=durable,
            start=start,
            incarnation=incarnation,
            key_shared=key_shared,
        )
        joined = await self.subscriptions.subscribe(opened, sink)
        assert sink.consumer is joined
        if permits:
            joined.flow(joined.epoch, permits)
        return joined, sink

    def stats(self, name: str = "s", *, durable: bool = True) -> SubscriptionStats:
        [found] = [one for one in self.subscriptions.stats() if one.name == name and one.durable == durable]
        return found


def ack(consumer: Consumer, *positions: Position, epoch: int | None = None, cumulative: bool = False) -> None:
    consumer.acknowledge(
        Acknowledge(
            epoch=consumer.epoch if epoch is None else epoch,
            cumulative=cumulative,
            entries=[_range(position) for position in positions],
        )
    )


def ack_messages(consumer: Consumer, position: Position, batch_size: int, *indexes: int) -> None:
    bits = sum(1 << index for index in indexes)
    consumer.acknowledge(
        Acknowledge(
            epoch=consumer.epoch,
            messages=[
                BatchMessages(
                    ledger_id=position.ledger_id,
                    entry_id=position.entry_id,
                    messages=bits.to_bytes((bits.bit_length() + 7) // 8, "little"),
                    batch_size=batch_size,
                )
            ],
        )
    )


def redeliver(consumer: Consumer, *positions: Position) -> None:
    consumer.redeliver(consumer.epoch, [_range(position) for position in positions])


def _range(position: Position) -> EntryRange:
    return EntryRange(ledger_id=position.ledger_id, first_entry_id=position.entry_id, last_entry_id=position.entry_id)
