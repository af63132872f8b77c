"""What the broker that a client called does with calls on partitioned topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.message import Message

from magnetar_broker.admin.subscription_calls import SubscriptionCalls
from magnetar_broker.admin.topic_calls import TopicCalls
from magnetar_broker.admin.topic_router import TopicRoute, TopicRouter, routed
from magnetar_broker.errors import BrokerError, RequestNotStarted
from magnetar_broker.settings.administration import CatalogSettings
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode, StartAt, StartMessageId
from magnetar_wire.admin.calls import ADMIN_CALLS
from magnetar_wire.clock import SystemClock
from magnetar_wire.topic_name import TopicName

EVENTS = TopicName.parse("events")
Answer = Message | BrokerError


class Scene:
    """A partitioned topic of 2 partitions, and 2 more that are announced. Owners answer by their partition's index."""

    def __init__(self, answer: Callable[[int], Answer], partitions: int = 2, announced: int = 4) -> None:
        self.called: list[tuple[str, str]] = []
        self._answer = answer
        self._partitions = [EVENTS.partition(index) for index in range(partitions)]
        self._announced = [EVENTS.partition(index) for index in range(announced)]
        catalog: Any = SimpleNamespace(
            expand_partitions=self._parts,
            resolve_partitions=self._count,
            partitioned=SimpleNamespace(list_announced=self._all),
        )
        self._router = TopicRouter(catalog, self, lambda name: False)  # type: ignore[arg-type]

    async def _count(self, name: TopicName, create: bool) -> int:
        return len(self._partitions)

    async def _parts(self, name: TopicName) -> list[TopicName]:
        return self._partitions or [name]

    async def _all(self, name: TopicName) -> list[TopicName]:
        return self._announced

    async def call_topic_owner(self, topic: TopicName, name: str, request: Any) -> Message:
        self.called.append((name, request.topic))
        answer = self._answer(topic.partition_index)
        if isinstance(answer, BrokerError):
            raise answer.again()
        return answer

    async def call(self, name: str, request: Message) -> Any:
        subscriptions = SubscriptionCalls(CatalogSettings(), SystemClock())
        topics = TopicCalls(None, None, None, pb.BrokerAnswer, None, None)  # type: ignore[arg-type]
        group: Any = subscriptions if hasattr(subscriptions, name) else topics
        return await self._router.forward(ADMIN_CALLS[name], getattr(group, name))(request)

    async def fail(self, name: str, request: Message) -> BrokerError:
        with pytest.raises(BrokerError) as failed:
            await self.call(name, request)
        return failed.value

    @property
    def partitions_called(self) -> list[int]:
        return [TopicName.parse(topic).partition_index for _, topic in self.called]


def fails_at(indexes: Sequence[int], error: BrokerError, answer: Message | None = None) -> Callable[[int], Answer]:
    return lambda index: error if index in indexes else (answer or pb.Done())


TRUNCATE = pb.TopicRequest(topic="events")
SKIP_ALL = pb.SkipRequest(topic="events", subscription="s", all=True)


async def test_a_change_begins_with_the_first_partition_and_includes_announced_ones() -> None:
    """CHK-56."""
    scene = Scene(lambda index: pb.SkippedAnswer(entries=10 + index))
    assert (await scene.call("skip", SKIP_ALL)).entries == 46
    assert scene.partitions_called == [0, 1, 2, 3]
    assert SKIP_ALL.topic == "events"
    scene = Scene(fails_at([0], BrokerError(ErrorCode.NOT_ALLOWED, "no")))
    await scene.fail("truncate_topic", TRUNCATE)
    assert scene.partitions_called == [0]


async def test_partitions_without_the_subscription_are_skipped() -> None:
    lacking = BrokerError(ErrorCode.SUBSCRIPTION_NOT_FOUND, "none")
    scene = Scene(fails_at([0, 2], lacking, pb.SkippedAnswer(entries=5)))
    assert (await scene.call("skip", SKIP_ALL)).entries == 10
    error = await Scene(fails_at(range(4), lacking)).fail("skip", SKIP_ALL)
    assert (error.code, str(error)) == (ErrorCode.SUBSCRIPTION_NOT_FOUND, "events has no subscription 's'")
    existing = BrokerError(ErrorCode.ALREADY_EXISTS, "is there")
    creation = pb.SubscriptionRequest(topic="events", subscription="s", start=StartAt(latest=True))
    await Scene(fails_at([1], existing)).call("create_subscription", creation)
    error = await Scene(fails_at(range(4), existing)).fail("create_subscription", creation)
    assert (error.code, str(error)) == (ErrorCode.ALREADY_EXISTS, "events has a subscription 's' already")


@pytest.mark.parametrize(
    ("code", "reported"),
    [(ErrorCode.SERVICE_NOT_READY, ErrorCode.UNKNOWN_ERROR), (ErrorCode.NOT_ALLOWED, ErrorCode.NOT_ALLOWED)],
)
async def test_a_change_that_fails_at_a_later_partition_is_unknown(code: ErrorCode, reported: ErrorCode) -> None:
    """That one partition can't be changed now does not say that nothing was done."""
    error = BrokerError(code, "not now")
    assert (await Scene(fails_at([2], error)).fail("truncate_topic", TRUNCATE)).code == reported
    assert (await Scene(fails_at([0], error)).fail("truncate_topic", TRUNCATE)).code == code
    assert (await Scene(fails_at([-1], error), 0).fail("truncate_topic", TRUNCATE)).code == code
    # An unload may be repeated by the client, so it need not know.
    assert (await Scene(fails_at([2], error)).fail("unload_topic", TRUNCATE)).code == code


async def test_statistics_are_those_of_the_topic_or_sums_over_the_partitions_that_clients_know() -> None:
    def stats(index: int) -> pb.TopicStatsAnswer:
        return pb.TopicStatsAnswer(
            stats=pb.TopicStats(topic=str(index), stored_entries=3, producers=[pb.ProducerStats()])
        )

    scene = Scene(stats)
    summed = (await scene.call("topic_stats", pb.TopicStatsRequest(topic=TRUNCATE.topic))).stats
    assert (summed.partitions, summed.stored_entries, len(summed.producers)) == (2, 6, 0)
    assert sorted(scene.partitions_called) == [0, 1]
    whole = (await Scene(stats, 0).call("topic_stats", pb.TopicStatsRequest(topic=TRUNCATE.topic))).stats
    assert (whole.partitions, whole.stored_entries, len(whole.producers)) == (0, 3, 1)


async def test_calls_on_one_message_take_one_partition() -> None:
    peek = pb.PeekRequest(topic="events", subscription="s", entries=1)
    at_message = pb.SubscriptionRequest(topic="events", subscription="s", start=StartAt(message_id=StartMessageId()))
    some = pb.SkipRequest(topic="events", subscription="s", entries=3)
    for name, request in (("peek", peek), ("reset_subscription", at_message), ("skip", some)):
        scene = Scene(lambda index: pb.Done())
        assert (await scene.fail(name, request)).code == ErrorCode.NOT_ALLOWED
        assert scene.called == []
        scene = Scene(lambda index: pb.SkippedAnswer(), 1, 1)
        await scene.call(name, request)
        assert scene.called == [(name, str(EVENTS.partition(0)))]


async def test_call_unsupported_for_partitioned_topics_is_refused() -> None:
    missing = BrokerError(ErrorCode.TOPIC_NOT_FOUND, "there is no topic events")
    error = await Scene(lambda index: missing).fail("internal_stats", TRUNCATE)
    assert error.code == ErrorCode.NOT_ALLOWED
    assert "events-partition-0" in str(error)
    assert (await Scene(lambda index: missing, 0).fail("internal_stats", TRUNCATE)).code == ErrorCode.TOPIC_NOT_FOUND
    moved = RequestNotStarted("moved")
    assert (await Scene(lambda index: moved).fail("internal_stats", TRUNCATE)).code == ErrorCode.SERVICE_NOT_READY


def test_a_handler_must_merge_the_answers_of_partitions() -> None:
    """A count of messages without a merge would silently be that of the first partition."""
    call = replace(ADMIN_CALLS["topic_stats"], name="count")

    async def count(topic: Any, request: Any) -> Message:
        raise NotImplementedError

    router = TopicRouter(None, None, lambda name: False)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="count would be lost"):
        router.forward(call, count)
    router.forward(call, routed(TopicRoute(merge=lambda name, answers: answers[0]))(count))
