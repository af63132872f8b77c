"""Changes of subscriptions: each acts on the subscription that is in use when it begins.

In most tests a change is requested, the last consumer leaves and another one joins, in one turn of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.topics.consumer import Consumer
from magnetar_broker.topics.subscription_changes import SubscriptionChanges
from magnetar_broker.topics.subscriptions import Subscriptions
from magnetar_broker.topics.topic_tasks import TopicTasks
from magnetar_protos.broker_pb2 import ErrorCode, SubscriptionType
from tests.unit.broker.subscription_scene import EARLIEST, LATEST, Scene, ack, at_position, settle

EXCLUSIVE, SHARED = SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED
Change = Callable[[Subscriptions], Awaitable[object]]
ChangeOf = Callable[[Subscriptions, Consumer], Awaitable[object]]


class Replaced:
    """A subscription of 6 entries, 2 of them acknowledged, whose consumer is replaced while it is changed."""

    def __init__(self, kind: SubscriptionType = EXCLUSIVE) -> None:
        self.scene = Scene()
        self.entries = self.scene.add(6)
        self.kind = kind
        self.problem: BrokerError | None = None

    async def run(self, change: ChangeOf, *, first_replaced: bool = False) -> None:
        """`first_replaced`: the change is requested by a consumer that has left."""
        self.before, _ = await self.scene.subscribe(kind=self.kind)
        ack(self.before, *self.entries[:2])
        changing, replacing = self._change(change), self._replace()
        calls = (replacing, changing) if first_replaced else (changing, replacing)
        await asyncio.wait_for(asyncio.gather(*calls), 30)
        await settle()

    async def _change(self, change: ChangeOf) -> None:
        try:
            await change(self.scene.subscriptions, self.before)
        except BrokerError as error:
            self.problem = error

    async def _replace(self) -> None:
        self.before.leave()
        self.consumer, self.sink = await self.scene.subscribe(kind=self.kind)

    @property
    def backlog(self) -> int:
        return self.scene.stats().backlog_entries


async def test_a_consumer_that_joins_after_a_reset_begins_where_it_leads() -> None:
    """CHK-69"""
    replaced = Replaced()
    await replaced.run(lambda subscriptions, _: subscriptions.reset("s", EARLIEST))
    assert replaced.problem is None
    # All comes again, and only what is acknowledged from now on counts.
    assert replaced.sink.positions == replaced.entries
    ack(replaced.consumer, replaced.entries[0], cumulative=True)
    assert replaced.backlog == 5


@pytest.mark.parametrize("force", [False, True])
async def test_a_consumer_that_joins_after_a_deletion_reads_no_deleted_subscription(force: bool) -> None:
    """CHK-69"""
    replaced = Replaced()
    await replaced.run(lambda subscriptions, _: subscriptions.delete("s", force=force))
    assert replaced.problem is None
    assert replaced.consumer.subscription.cursor is replaced.scene.cursors.cursors["s"]
    assert replaced.sink.positions == replaced.entries
    ack(replaced.consumer, replaced.entries[3], cumulative=True)
    assert replaced.backlog == 2


@pytest.mark.parametrize(
    ("change", "entries"),
    [
        (lambda subscriptions: subscriptions.skip("s", 3), 3),
        (lambda subscriptions: subscriptions.skip_all("s"), 4),
        (lambda subscriptions: subscriptions.expire("s", 0), 4),
    ],
    ids=["skip", "skip_all", "expire"],
)
async def test_new_consumer_receives_no_skipped_or_expired_entries(change: Change, entries: int) -> None:
    """CHK-69"""
    replaced = Replaced(SHARED)
    await replaced.run(lambda subscriptions, _: change(subscriptions))
    assert replaced.problem is None
    assert replaced.sink.positions == replaced.entries[2 + entries :]
    stats = replaced.scene.stats()
    assert stats.backlog_entries == stats.unacked_messages == 4 - entries


async def test_skip_count_excludes_entries_published_during_the_skip() -> None:
    scene = Scene()
    scene.add(5)
    await scene.subscriptions.create("s", EARLIEST)
    cursor = scene.cursors.cursors["s"]
    cursor.gate = asyncio.Event()
    skip = asyncio.create_task(scene.subscriptions.skip("s", 50))
    while not cursor.saves:
        await asyncio.sleep(0)
    scene.add(4)
    cursor.gate.set()
    assert await skip == 5


async def test_progress_of_a_subscription_that_changes_its_consumers_is_refused() -> None:
    """CHK-69, SPK-1: the consumer that joins gets all that was not acknowledged."""
    replaced = Replaced(SHARED)
    await replaced.run(lambda subscriptions, _: subscriptions.advance("s", at_position(replaced.entries[4])))
    assert replaced.problem is not None
    assert replaced.problem.code == ErrorCode.NOT_ALLOWED
    assert replaced.sink.positions == replaced.entries[2:]


@pytest.mark.parametrize("progress_first", [False, True])
async def test_of_a_consumer_and_a_reader_one_creates_the_subscription(progress_first: bool) -> None:
    """CHK-69, SPK-1: the first one; the other one is refused."""
    scene = Scene()
    scene.add(6)
    calls = [scene.subscribe(kind=SHARED), scene.subscriptions.advance("s", EARLIEST)]
    results = await asyncio.gather(*(reversed(calls) if progress_first else calls), return_exceptions=True)
    assert not isinstance(results[0], BaseException)
    assert isinstance(results[1], BrokerError)
    assert results[1].code == ErrorCode.NOT_ALLOWED


@pytest.mark.parametrize(
    "change",
    [
        lambda _, consumer: consumer.seek(LATEST),
        lambda _, consumer: consumer.unsubscribe(),
        lambda _, consumer: consumer.unsubscribe(force=True),
    ],
    ids=["seek", "unsubscribe", "unsubscribe by force"],
)
@pytest.mark.parametrize("first_replaced", [False, True])
async def test_a_consumer_that_has_left_changes_nothing_for_the_next_one(
    change: ChangeOf, first_replaced: bool
) -> None:
    """CHK-69"""
    replaced = Replaced()
    await replaced.run(change, first_replaced=first_replaced)
    assert replaced.problem is not None
    assert replaced.problem.code == ErrorCode.NOT_FOUND
    assert replaced.sink.problems == []
    assert replaced.sink.epochs == []
    assert replaced.backlog == 4
    ack(replaced.consumer, replaced.entries[5], cumulative=True)
    assert replaced.backlog == 0


async def test_concurrent_changes_apply_in_request_order() -> None:
    """CHK-69: of changes that are requested in one turn, the last ones change a subscription that did not exist
    before."""
    scene = Scene()
    entries = scene.add(4)
    consumer, sink = await scene.subscribe()
    ack(consumer, entries[1], cumulative=True)
    subscriptions = scene.subscriptions
    deleted, made, skipped, joined, moved, missing = await asyncio.wait_for(
        asyncio.gather(
            subscriptions.delete("s", force=True),
            subscriptions.create("s", EARLIEST),
            subscriptions.skip("s", 1),
            scene.subscribe(),
            subscriptions.reset("s", at_position(entries[3])),
            subscriptions.delete("other"),
            return_exceptions=True,
        ),
        30,
    )
    assert (deleted, made, skipped, moved) == (None, None, 1, None)
    assert [problem.code for problem in sink.problems if problem] == [ErrorCode.SUBSCRIPTION_NOT_FOUND]
    assert isinstance(missing, BrokerError)
    assert missing.code == ErrorCode.SUBSCRIPTION_NOT_FOUND
    assert isinstance(joined, tuple)
    consumer, gets = joined
    assert consumer.subscription.cursor is scene.cursors.cursors["s"]
    assert gets.positions == entries[3:]
    assert scene.stats().backlog_entries == 1


async def test_a_subscription_stays_loaded_while_it_is_changed() -> None:
    """CHK-69"""
    scene = Scene()
    entries = scene.add(3)
    consumer, _ = await scene.subscribe()
    gate = scene.cursors.cursors["s"].gate = asyncio.Event()
    resetting = asyncio.create_task(scene.subscriptions.reset("s", LATEST))
    deleting = asyncio.create_task(scene.subscriptions.delete("s"))
    await settle()
    consumer.leave()
    joining = asyncio.create_task(scene.subscribe())
    await settle()
    assert not joining.done()
    assert list(scene.subscriptions._loaded.values()) == [consumer.subscription]
    gate.set()
    await resetting
    await deleting
    joined, gets = await joining
    assert joined.subscription is not consumer.subscription
    assert gets.positions == entries
    joined.leave()
    assert not scene.subscriptions._loaded
    assert not scene.subscriptions._changes.is_changing(("s", True))


async def _readers_names() -> None:
    """A reader with the name of a durable subscription is no part of its changes."""
    scene = Scene()
    entries = scene.add(3)
    await scene.subscriptions.create("s", EARLIEST)
    gate = scene.cursors.cursors["s"].gate = asyncio.Event()
    resetting = asyncio.create_task(scene.subscriptions.reset("s", LATEST))
    await settle()
    reader, gets = await scene.subscribe(durable=False)
    assert gets.take() == entries
    await reader.seek(at_position(entries[2]))
    reader.flow(reader.epoch, 10)
    assert gets.take() == entries[2:]
    assert not resetting.done()
    gate.set()
    await resetting


async def test_a_reader_does_not_wait_for_changes_of_a_durable_subscription() -> None:
    await _readers_names()


class PausedSubscription:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")


@pytest.mark.parametrize("queued", [2, 3])
async def test_a_topic_that_closes_resumes_a_subscription_when_its_last_change_has_ended(queued: int) -> None:
    """CHK-69: those that wait end before the one that runs has unwound, and no error is left to the event loop."""
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    tasks, subscription = TopicTasks(), PausedSubscription()
    changes = SubscriptionChanges(tasks, lambda _: subscription)
    key = ("s", True)
    unwinding, unwound = asyncio.Event(), asyncio.Event()

    async def change() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            unwinding.set()
            await unwound.wait()

    callers = [asyncio.create_task(changes.run_change(key, "a change", change)) for _ in range(queued)]
    await settle()
    closing = asyncio.create_task(tasks.cancel())
    await unwinding.wait()
    await settle()
    assert all(caller.done() for caller in callers[1:])
    assert subscription.calls == ["pause"]
    assert changes.is_changing(key)
    unwound.set()
    await closing
    await asyncio.wait(callers)
    assert all(isinstance(caller.exception(), TopicUnloaded) for caller in callers)
    assert subscription.calls == ["pause", "resume"]
    assert not changes.is_changing(key)
    assert problems == []
