"""The state of a topic's deduplication: snapshots, the cursor that has them, policies, damage, and bounds."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import pytest

from magnetar import BatchingType
from magnetar.admin.models import NamespacePolicies, TopicPolicies
from magnetar.exceptions import MagnetarException
from magnetar_broker.cursors.ack_state import MAX_NODE_ATTACHMENT_BYTES
from magnetar_broker.cursors.subscription_limits import DEDUPLICATION_CURSOR
from magnetar_broker.errors import BrokerError, LostEntry
from magnetar_broker.position import Position
from magnetar_broker.settings.topics import TopicSettings
from magnetar_broker.topics.deduplication import deduplication, snapshot_schedule
from magnetar_broker.topics.deduplication.replay import replay
from magnetar_broker.topics.deduplication.snapshots import decode_stored_ids
from magnetar_broker.topics.producer_names import ProducerNames
from magnetar_protos.broker_pb2 import StartAt
from magnetar_wire.clock import SystemClock
from magnetar_wire.topic_name import TopicName
from tests.produce_client import entry
from tests.running import until
from tests.unit.broker.deduplication_scene import DUPLICATE, WIRES, PulsarProducer, Wire, running

NAME = TopicName.parse("t")
_UNUSED_MINUTES: Final = "broker_deduplication_producer_inactivity_timeout_minutes"


def single(*sequence_ids: int, producer: str = "p") -> list[bytes]:
    return [entry(number, b"%d" % number, producer) for number in sequence_ids]


def count_replayed(on: Wire) -> Callable[[], int]:
    """Return how many entries the next opening of the topic would replay."""
    return lambda: on.topic().log.entries_between(on.snapshot_position(), on.topic().log.last)


def pass_minutes(on: Wire, minutes: int) -> float:
    """Let the broker's clocks be so much ahead. Return the time of the monotonic one."""
    clock, real = on.scene.clock, SystemClock()
    clock.time_ms = lambda: real.time_ms() + minutes * 60_000  # type: ignore[method-assign]
    return real.monotonic() + minutes * 60


@pytest.mark.parametrize("wire", WIRES)
async def test_number_of_entries_to_replay_is_bounded_also_over_unloads(
    wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DUP-2, CHK-32: the entries since the last snapshot count on where the topic is opened again; and each opening
    replays them once."""
    replays: list[int] = []

    async def count_replays(*arguments: Any) -> tuple[int, int]:
        replayed = await replay(*arguments)
        replays.append(replayed[0])
        return replayed

    monkeypatch.setattr(deduplication, "replay", count_replays)
    async with running(wire, broker_deduplication_entries_interval=10) as on:
        for number in range(35):
            producer = await on.producer()
            await producer.send(*single(number))
            await asyncio.sleep(0)
            if (cursor := on.cursor()) is not None:
                await cursor.wait_until_saved()
            assert count_replayed(on)() <= 10
            await producer.leave()
            await on.crash()
        producer = await on.producer()
        assert producer.last_sequence_id == 34
        assert len(replays) == 35
        assert max(replays) <= 10


@pytest.mark.parametrize("wire", WIRES)
async def test_size_of_entries_to_replay_is_bounded(wire: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """DUP-2: a few large entries are enough for a snapshot, since they take long to read; the replayed ones count."""
    monkeypatch.setattr(snapshot_schedule, "SNAPSHOT_BYTES", 100_000)
    async with running(wire) as on:
        producer = await on.producer()
        for number in range(6):
            await producer.send(entry(number, bytes(40_000), "p"))
            if number == 1:
                await producer.leave()
                await on.crash()
                producer = await on.producer()
        await until(lambda: count_replayed(on)() == 0, "the second snapshot is stored")
        await producer.send(entry(6, bytes(40_000), "p"))
        assert count_replayed(on)() == 1


async def test_snapshots_have_all_connected_names_and_are_taken_after_as_many_entries() -> None:
    """DUP-1, DUP-2: more than the limit of names that are remembered without a producer."""
    async with running(broker_deduplication_max_number_of_producers=2, broker_deduplication_entries_interval=2) as on:
        names = [f"p{number}" for number in range(6)]
        producers = [await on.producer(name) for name in names]
        for name, producer in zip(names, producers, strict=True):
            await producer.send(*single(7, producer=name))
        on.topic().deduplication.take_snapshot()
        await until(lambda: count_replayed(on)() == 0, "a snapshot is stored")
        for number in range(8, 13):
            await producers[0].send(*single(number, producer=names[0]))
        assert count_replayed(on)() == 5
        await producers[0].send(*single(13, producer=names[0]))
        await until(lambda: count_replayed(on)() == 0, "a snapshot is stored")
        await on.crash()
        assert [(await on.producer(name)).last_sequence_id for name in names] == [13, 7, 7, 7, 7, 7]


async def test_replay_reads_all_that_is_readable_between_very_many_lost_entries() -> None:
    """DUP-2, CHK-67"""

    class Log:
        name, last = "t", Position(1, 2_499)

        def first_after(self, position: Position) -> Position:
            return Position(1, position.entry_id + 1)

        async def read(self, start: Position, *limits: int) -> list[Any]:
            if start.entry_id % 2:
                raise LostEntry(start, "lost")
            return [SimpleNamespace(position=start, stored=b"")]

    async def pause(error: BrokerError, pause_s: float) -> float:
        raise error

    log: Any = Log()
    assert (await replay(log, Position(1, -1), ProducerNames(), pause))[0] == 1_250


async def test_snapshots_are_stored_when_their_time_has_come() -> None:
    async with running(
        broker_deduplication_snapshot_frequency_in_seconds=1, broker_deduplication_snapshot_interval_seconds=30
    ) as on:
        producer = await on.producer()
        await producer.send(*single(0, 1))
        deduplication, now = on.topic().deduplication, SystemClock().monotonic()
        deduplication.tick(now + 29)
        assert count_replayed(on)() == 2
        deduplication.tick(now + 31)
        await until(lambda: count_replayed(on)() == 0, "a snapshot is stored")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("setting", "minutes", "expected"), [({}, 359, 5), ({}, 361, -1), ({_UNUSED_MINUTES: 0}, 10**6, 5)]
)
async def test_names_without_a_producer_are_forgotten_after_six_hours(
    wire: Any, setting: dict[str, Any], minutes: int, expected: int
) -> None:
    """DUP-1: by default; with 0 minutes never. Their ids may be used again, and are stored. One that is open stays."""
    async with running(wire, **setting) as on:
        idle, busy = await on.producer("idle"), await on.producer("busy")
        await idle.send(*single(5, producer="idle"))
        await busy.send(*single(5, producer="busy"))
        await idle.leave()
        await until(lambda: len(on.topic().producers) == 1, "it has left")
        await on.crash()
        busy = await on.producer("busy")
        on.topic().deduplication.tick(pass_minutes(on, minutes))
        idle = await on.producer("idle")
        assert (idle.last_sequence_id, busy.last_sequence_id) == (expected, 5)
        assert (await idle.send(*single(5, producer="idle")) == [DUPLICATE]) == (expected == 5)
        assert await busy.send(*single(5, producer="busy")) == [DUPLICATE]


async def test_ids_of_more_names_than_fit_are_those_used_last() -> None:
    """DUP-1, CHK-49: memory and snapshots are bounded, also with very many names."""
    async with running(broker_deduplication_max_number_of_producers=30, broker_deduplication_entries_interval=10) as on:
        stays = await on.producer("stays")
        await stays.send(*single(7, producer="stays"))
        long = chr(0x1F600) * 240
        for number in range(50):
            name = f"p{number}-{long}"
            producer = await on.producer(name)
            await producer.send(*single(number, producer=name))
            await producer.leave()
            await until(lambda: len(on.topic().producers) == 1, "it has left")
        cursor = on.cursor()
        assert cursor is not None
        assert len(cursor.attachment) > MAX_NODE_ATTACHMENT_BYTES
        # The names without a producer, and the two that had one when the snapshot was taken.
        assert len(list(decode_stored_ids(cursor.attachment))) == 30 + 2
        await on.unload()
        for number, expected in ((0, -1), (19, -1), (21, 21), (49, 49)):
            assert (await on.producer(f"p{number}-{long}")).last_sequence_id == expected
        assert (await on.producer("stays")).last_sequence_id == 7


@pytest.mark.parametrize("wire", WIRES)
async def test_policies_switch_deduplication_on_and_off_on_live_topics(wire: Any) -> None:
    """DUP-1: off by default. Ids are known from then on; a policy of the topic itself overrides its namespace's."""
    default = TopicSettings().broker_deduplication_enabled
    async with running(wire, broker_deduplication_enabled=default, metadata_cache_ttl_seconds=0.01) as on:
        admin, number = on.scene.admin, itertools.count()

        async def follow(is_on: bool) -> None:
            async def followed() -> bool:
                # This reads the policies, which is done every few seconds, too.
                await on.topic().subscriptions.make_on_first_use(f"s{next(number)}", StartAt(earliest=True))
                return on.topic().deduplication.is_on is is_on and (on.cursor() is not None) is is_on

            await until(followed, f"deduplication is {is_on}")

        producer = await on.producer()
        assert DUPLICATE not in await producer.send(*single(0, 0, 1))
        assert on.cursor() is None
        await admin.namespaces.change_policies("public/default", NamespacePolicies(deduplication=True))
        await follow(True)
        assert [one == DUPLICATE for one in await producer.send(*single(0, 0, 1))] == [False, True, False]
        await on.crash()
        producer = await on.producer()
        assert producer.last_sequence_id == 1
        assert await producer.send(*single(1)) == [DUPLICATE]
        await admin.topics.change_policies("t", TopicPolicies(deduplication=False))
        await follow(False)
        assert DUPLICATE not in await producer.send(*single(1, 1))
        await admin.topics.change_policies("t", TopicPolicies(deduplication=True, deduplication_snapshot_entries=3))
        await follow(True)
        results = await producer.send(*single(1, 1, 2, 3))
        assert [one == DUPLICATE for one in results] == [False, True, False, False]
        await until(lambda: count_replayed(on)() == 0, "a snapshot is stored")
        await admin.topics.change_policies("t", TopicPolicies(), remove=["deduplication"])
        await admin.namespaces.change_policies("public/default", NamespacePolicies(deduplication=False))
        await on.unload()
        await on.producer()
        await until(lambda: on.cursor() is None, "it was off when the topic was opened: the snapshot is deleted")


async def test_the_cursor_of_snapshots_is_no_subscription() -> None:
    """DUP-2: it is hidden, can't be subscribed, reset or deleted, and counts as no backlog."""
    async with running(PulsarProducer) as on:
        producer, admin = await on.producer(), on.scene.admin
        await producer.send(*single(0, 1, 2))
        assert on.cursor() is not None
        assert await admin.subscriptions.list("t") == []
        stats = await admin.topics.stats("t")
        assert not stats.subscriptions
        assert stats.deduplication_status == "Enabled"
        client = await on.scene.pulsar_client()
        answer = await client.try_subscribe(subscription=DEDUPLICATION_CURSOR)
        assert "not a subscription" in answer.error.message
        for change in (
            admin.subscriptions.delete("t", DEDUPLICATION_CURSOR),
            admin.subscriptions.delete("t", DEDUPLICATION_CURSOR, force=True),
            admin.subscriptions.skip_all("t", DEDUPLICATION_CURSOR),
            admin.subscriptions.create("t", DEDUPLICATION_CURSOR),
        ):
            with pytest.raises(MagnetarException):
                await change
        assert await producer.send(*single(2)) == [DUPLICATE]


async def test_the_log_is_trimmed_up_to_the_snapshot_only() -> None:
    """DUP-2, CHK-54: entries that a replay needs are retained, and no more; if they are deleted all the same, the
    cursor moves on."""
    async with running(
        broker_deduplication_entries_interval=100,
        managed_ledger_max_entries_per_ledger=5,
        managed_ledger_min_ledger_rollover_time_minutes=0,
        default_retention_without_subscription_minutes=0,
    ) as on:
        producer = await on.producer()
        await producer.send(*single(*range(12)))
        topic = on.topic()
        await topic.log.trim(topic.cursors.find_slowest_position)
        assert topic.log.stats().stored_entries == 12
        await topic.deduplication.save_snapshot()
        await topic.log.trim(topic.cursors.find_slowest_position)
        assert topic.log.stats().stored_entries == 2
        await producer.send(*single(*range(12, 18)))
        await on.scene.admin.topics.truncate("t")
        await on.crash()
        producer = await on.producer()
        assert producer.last_sequence_id == 17
        assert await producer.send(*single(3, 17)) == [DUPLICATE, DUPLICATE]


async def test_entries_that_are_stored_during_a_truncation_stay_with_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """DUP-2, CHK-54: what the snapshot lacks is not deleted."""
    async with running() as on:
        producer = await on.producer()
        await producer.send(*single(0, 1))
        deduplication = type(on.topic().deduplication)
        save_snapshot = deduplication.save_snapshot

        async def save_and_send(self: Any) -> None:
            await save_snapshot(self)
            await producer.send(*single(2, 3))

        monkeypatch.setattr(deduplication, "save_snapshot", save_and_send)
        await on.scene.admin.topics.truncate("t")
        assert await on.stored() == [b"2", b"3"]
        await on.crash()
        producer = await on.producer()
        assert await producer.send(*single(1, 2, 3)) == [DUPLICATE] * 3


async def test_lost_entries_do_not_keep_a_topic_closed() -> None:
    """DUP-2, CHK-67: an entry that no bookie has is skipped by the replay."""
    async with running(logs_errors=True) as on:
        producer = await on.producer()
        results = await producer.send(*single(0, 1, 2, 3))
        assert not isinstance(results[1], str)
        ledger_id, lost = results[1]
        await on.topic().managed_ledger.roll_ledger()
        await on.crash()
        for bookie in on.scene.bookies:
            del bookie.ledger(ledger_id).records[lost]
        producer = await on.producer()
        assert producer.last_sequence_id == 3
        assert await producer.send(*single(2, 3)) == [DUPLICATE, DUPLICATE]


async def test_a_damaged_snapshot_is_replaced_by_the_last_entries() -> None:
    """DUP-2, CHK-67: no bookie has a record of the cursor any more."""
    async with running(logs_errors=True, broker_deduplication_entries_interval=2) as on:
        producer = await on.producer()
        await producer.send(*single(0, 1, 2, 3))
        await until(lambda: count_replayed(on)() == 0, "a snapshot is stored")
        cursor = on.cursor()
        assert cursor is not None
        ledger_id = cursor.ledger_id
        assert ledger_id
        await on.crash()
        for bookie in on.scene.bookies:
            bookie.damage(ledger_id, 0)
        producer = await on.producer()
        assert producer.last_sequence_id == 3
        assert await producer.send(*single(2, 3)) == [DUPLICATE, DUPLICATE]
        assert on.cursor() is not None


@pytest.mark.parametrize("unreadable", ["entries", "snapshot"])
async def test_producers_wait_for_the_replay_and_consumers_do_not(
    unreadable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DUP-2: their clients are notified of the reason if the log, or the snapshot, can't be read at present. The
    topic counts as used."""
    async with running(PulsarProducer, broker_deduplication_entries_interval=2) as on:
        producer = await on.producer()
        await producer.send(*single(0, 1, 2, 3))
        await until(lambda: count_replayed(on)() == 0, "a snapshot is stored")
        cursor = on.cursor()
        assert cursor is not None
        if unreadable == "entries":
            await on.unload()
            producer = await on.producer()
            await producer.send(*single(4))
        else:
            assert cursor.ledger_id
        await on.topic().managed_ledger.roll_ledger()
        await on.crash()
        for bookie in on.scene.bookies:
            bookie.failing.add("read")
        clock, real = on.scene.clock, SystemClock()
        monkeypatch.setattr(clock, "call_later", lambda delay_s, call: real.call_later(delay_s / 30, call))
        opening = asyncio.create_task(on.producer())
        await until(lambda: on.scene.broker_session.topics.get_loaded(NAME) is not None, "it is opened")
        topic = on.topic()
        await until(lambda: topic.deduplication.waiting_for != "", "reading has failed once")
        assert topic.in_use
        client = await on.scene.pulsar_client()
        await client.subscribe(permits=0)
        assert not opening.done()
        for bookie in on.scene.bookies:
            bookie.failing.clear()
        assert (await opening).last_sequence_id == (4 if unreadable == "entries" else 3)


async def test_batches_by_key_of_the_sdk_are_stored_once() -> None:
    """DUP-1, DUP-2, PRD-5, PRD-9: results are lost with the topic at any step, and the batches are sent again."""
    async with running() as on, on.scene.client() as client:
        producer = await client.create_producer("t", batching_type=BatchingType.KeyBased, batching_max_messages=4)
        sends = []
        for number in range(400):
            send = producer.send(b"%d" % number, partition_key=f"key {number * 7 % 5}")
            sends.append(asyncio.create_task(send))
            if number % 9 == 0:
                await asyncio.sleep(0)
            if number % 130 == 129:
                await until(producer.is_connected, "it is connected")
                await on.crash()
        await asyncio.gather(*sends)
        stored = await on.stored()
        assert sorted(stored) == sorted(b"%d" % number for number in range(400))
        for key in range(5):
            of_key = [int(content) for content in stored if int(content) * 7 % 5 == key]
            assert of_key == sorted(of_key)
