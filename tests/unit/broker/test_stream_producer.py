"""A producer of a stream whose topic ends it while it is being closed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from magnetar_broker.errors import TopicUnloaded
from magnetar_broker.server.grpc.produce_session import ProduceSession
from magnetar_broker.server.grpc.stream_producer import StreamProducer
from magnetar_broker.settings.rates import NO_RATE
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_broker.topics.publish_budget import PublishBudget
from magnetar_broker.topics.publish_throttle import PublishThrottle
from magnetar_broker.topics.rate_limit import RateLimit
from magnetar_protos.broker_pb2 import OpenProducer
from magnetar_testing.clock import ManualClock
from magnetar_wire.entry_memory import count_entry_memory
from magnetar_wire.frame import DecodedRun
from magnetar_wire.tasks import OrderedTaskGroup


class _FullTopic:
    def __init__(self) -> None:
        self.budget = PublishBudget(1)
        self.budget.add(1)
        unlimited = RateLimit("none", lambda: NO_RATE, ManualClock())
        self.publish_throttle = PublishThrottle(self.budget, unlimited, unlimited)
        self.log = SimpleNamespace(incarnation="i")
        self.producers = self
        self.live_settings = SimpleNamespace(current=BrokerServiceSettings())
        self.topic_epoch = None
        self.producer = SimpleNamespace(
            producer_name="p", identity=SimpleNamespace(schema_version=b""), is_stopped=False, publish=None
        )

    async def open(self, *_: object) -> Any:
        return self.producer

    def last_sequence_id(self, _: object) -> int:
        return -1

    def leave(self, *_: object) -> None:
        self.producer.is_stopped = True


async def test_a_producer_that_ends_while_it_is_closed_reports_nothing_more() -> None:
    """Its client may open another producer with the same id, which must not be paused or resumed."""
    session = ProduceSession(PublishBudget(1 << 20), 1 << 20, 1)
    topic: Any = _FullTopic()
    producers: dict[int, StreamProducer] = {}
    producer = producers[1] = StreamProducer(1, session, producers)
    async with OrderedTaskGroup() as tasks:
        session.tasks = tasks
        await producer.open(OpenProducer(producer_id=1), topic, "client", 100)
        run = DecodedRun(1, 0, [b"entry"])
        session.add_pending(count_entry_memory(run.entries))
        producer.publish(run, count_entry_memory(run.entries))
        assert [one.paused for one in session.answers.compose().flow] == [True]
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        producer.ended(TopicUnloaded("it moves"))
        assert len(session.answers.compose().ended) == 1
        topic.budget.release(1)
        await closing
    assert len(session.answers) == 0
    assert session.budget.used_bytes == 0
