"""Positions and plans of whole brokers, by the SDK's `admin.reading`."""

from __future__ import annotations

import datetime
from dataclasses import replace
from functools import partial

import pytest

from magnetar import exceptions
from magnetar.admin import MessagePosition, NamespacePolicies, Plan, Retention, TopicPolicies
from magnetar_bookie import paths as bookie_paths
from magnetar_bookie.read.record import extract_entry
from magnetar_broker.topics import policy_refresh
from magnetar_protos.ledger_pb2 import BookieListener, BookieRegistration
from magnetar_wire.batch import decode_messages
from magnetar_wire.entry import decode_entry
from magnetar_wire.message_id import MessageId
from tests.running import until
from tests.unit.broker.admin.many_brokers import admins, serving, spread, topic_at
from tests.unit.broker.admin.read_logs import LOGS, SMALL, create_topic, numbers, publish
from tests.unit.broker.broker_scene import BrokerScene, running_broker
from tests.unit.broker.cluster_scene import running_brokers


def rows(scene: BrokerScene, plan: Plan) -> list[bytes]:
    """What a reader makes of the plan who asks the bookies that it names, and no other."""
    bookies = {bookie.bookie_id: bookie for bookie in scene.bookies}
    found: list[bytes] = []
    for piece in plan.pieces:
        taken: list[bytes] = []
        size = 0
        for entry_id in range(piece.first_entry_id, piece.last_entry_id + 1):
            fragment = [one for one in piece.fragments if one.first_entry_id <= entry_id][-1]
            held = bookies[fragment.bookies[entry_id % piece.ensemble_size]].ledgers[piece.ledger_id]
            stored = extract_entry(held.records[entry_id])
            size += len(stored)
            payloads = [one or b"" for one in decode_messages(decode_entry(stored)).payloads]
            if piece.stop_after_messages and entry_id == piece.last_entry_id:
                payloads = payloads[: piece.stop_after_messages]
            taken += payloads[piece.skip_messages :] if entry_id == piece.first_entry_id else payloads
        assert (len(taken), size) == (piece.messages, piece.bytes)
        found += taken
    assert (len(found), sum(piece.bytes for piece in plan.pieces)) == (plan.messages, plan.bytes)
    return found


async def test_plan_lists_entry_ranges_and_their_bookies() -> None:
    """SPK-5: pieces with ledger, first and last entry, bytes, messages and bookies; an end at what is confirmed."""

    async with running_broker(**SMALL) as scene:
        await create_topic(scene)
        async with scene.client() as client:
            await publish(client, 12)
        reading = scene.admin.reading
        begin = await reading.find_position(LOGS, MessageId.earliest)
        plan = await reading.plan(LOGS, incarnation=begin.incarnation, start=begin.position)
        assert [(one.first_entry_id, one.last_entry_id) for one in plan.pieces] == [(0, 4), (0, 4), (0, 1)]
        assert rows(scene, plan) == numbers(0, 12)
        assert plan.bookies == {"b0": "b0:1", "b1": "b1:1"}
        assert plan.stop == plan.end == (await reading.find_position(LOGS, MessageId.latest)).position
        assert plan.stop == MessagePosition(plan.pieces[-1].ledger_id, 2)
        assert plan.messages_behind == 0
        assert not plan.lease_until_ms
        again = await reading.plan(LOGS, incarnation=begin.incarnation, start=plan.stop)
        assert not again.pieces
        assert again.start == again.stop == plan.stop
        # The same range has the same plan after later messages were published.
        async with scene.client() as client:
            await publish(client, 7, first=12)
        second = await reading.plan(LOGS, start=plan.start, stop=plan.stop)
        assert [piece.open for piece in plan.pieces] == [False, False, True]
        assert [piece.open for piece in second.pieces] == [False] * 3  # the last one was closed in the meantime
        assert second.pieces == [replace(piece, open=False) for piece in plan.pieces]
        assert second.stop == plan.stop
        assert second.messages_behind == 7
        assert (plan.end_index, second.end_index) == (12, 19)


@pytest.mark.parametrize("batch", [0, 7])
async def test_limits_cut_exactly_and_chained_plans_give_each_message_once(batch: int) -> None:
    """SPK-2: limits of messages, exact within a batch, and of bytes, by whole entries; and how far behind the plan
    is."""

    async with running_broker(**SMALL) as scene:
        await create_topic(scene)
        async with scene.client() as client:
            await publish(client, 100, batch=batch)
        reading = scene.admin.reading
        for messages, size in ((9, 0), (0, 700), (30, 400)):
            position, found = MessagePosition(0, 0, 0), list[bytes]()
            while True:
                plan = await reading.plan(LOGS, start=position, max_messages=messages, max_bytes=size)
                if not plan.pieces:
                    break
                found += rows(scene, plan)
                position = plan.stop
                assert plan.messages_behind == 100 - len(found)
                assert not messages or plan.messages <= messages
                if not size:
                    assert plan.messages == messages or len(found) == 100
                else:
                    one_entry = len(plan.pieces) == 1 and plan.pieces[0].first_entry_id == plan.pieces[0].last_entry_id
                    assert plan.bytes <= size or one_entry
            assert found == numbers(0, 100)


async def test_a_plan_at_the_end_of_the_log_sends_no_requests() -> None:
    """Neither to the metadata store nor to a bookie. A plan from there on, without limits, sends none to a bookie."""

    # The broker's reports of its own load are requests, too: none is due during the test.
    settings = {
        "load_balancer_report_update_min_interval_millis": 10**9,
        "load_balancer_report_update_max_interval_minutes": 10**6,
    }
    async with running_broker(**SMALL, **settings) as scene:
        await create_topic(scene)
        async with scene.client() as client:
            await publish(client, 8)
            reading = scene.admin.reading
            leased = partial(reading.plan, LOGS, lease_ms=600_000, lease_id=b"l" * 16, holder="test")
            plan = await leased(start=MessagePosition(0, 0, 0), before_ledgers=8)
            calls = [len(bookie.calls) for bookie in scene.bookies]
            requests = _count_requests(scene)
            for _ in range(5):
                plan = await leased(start=plan.stop, before_ledgers=8, before_bytes=1 << 30)
            assert not plan.pieces
            assert not requests
            assert [len(bookie.calls) for bookie in scene.bookies] == calls
            await publish(client, 3, first=8)
            reads = [len(bookie.reads()) for bookie in scene.bookies]
            plan = await leased(start=plan.stop)
            assert rows(scene, plan) == numbers(8, 11)
            assert [len(bookie.reads()) for bookie in scene.bookies] == reads


def _count_requests(scene: BrokerScene) -> list[str]:
    """Return a list that gets the later requests of the broker's session."""
    assert scene.store is not None
    requests: list[str] = []
    send_request = scene.store.send_request

    async def count(*arguments: object, **named: object) -> object:
        requests.append(repr((arguments, named)))
        return await send_request(*arguments, **named)  # type: ignore[arg-type]

    scene.store.send_request = count  # type: ignore[method-assign]
    return requests


async def test_readers_learn_whether_a_retention_policy_holds_for_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPK-1, RET-1, RET-2: of the topic or its namespace, for any time or size. The default without a subscription is
    none."""
    monkeypatch.setattr(policy_refresh, "MIN_INTERVAL_S", 0.02)
    async with running_broker(metadata_cache_ttl_seconds=0.05) as scene:
        reading, namespaces, topics = scene.admin.reading, scene.admin.namespaces, scene.admin.topics
        await topics.create(LOGS)

        async def both() -> tuple[bool, bool]:
            """The policy may take effect between the two requests."""
            position = await reading.find_position(LOGS, MessageId.earliest)
            return position.retained, (await reading.plan(LOGS, start=position.position)).retained

        async def is_retained() -> bool:
            return await both() == (True, True)

        async def is_not_retained() -> bool:
            return await both() == (False, False)

        await until(is_not_retained, "no policy holds")
        await namespaces.change_policies("public/default", NamespacePolicies(retention=Retention(10, -1)))
        await until(is_retained, "the namespace's policy holds")
        await topics.change_policies(LOGS, TopicPolicies(retention=Retention(0, 0)))
        await until(is_not_retained, "the topic's policy retains nothing")
        await topics.change_policies(LOGS, TopicPolicies(retention=Retention(-1, 1)))
        await until(is_retained, "it retains by size")


async def test_read_position_is_resolved_from_id_or_time() -> None:
    """SPK-1: earliest, latest, by id, by time."""

    async with running_broker() as scene:
        reading = scene.admin.reading
        async with scene.client() as client:
            await scene.admin.topics.create(LOGS)
            nothing = await reading.find_position(LOGS, MessageId.earliest)
            assert nothing.position == (await reading.find_position(LOGS, MessageId.latest)).position
            await publish(client, 14, batch=7)
            first = await reading.find_position(LOGS, MessageId.earliest)
            ledger = first.position.ledger_id
            assert first.position == (ledger, 0, 0) >= nothing.position
            assert first.incarnation == nothing.incarnation
            assert not first.retained
            plan = await reading.plan(LOGS, start=nothing.position)
            assert rows(scene, plan) == numbers(0, 14)
            for batch_index, position in (
                (0, (ledger, 1, 0)),
                (3, (ledger, 1, 3)),
                (7, (ledger, 2, 0)),
                (-1, (ledger, 1, 0)),
            ):
                at = MessageId(-1, ledger, 1, batch_index)
                assert (await reading.find_position(LOGS, at)).position == position
            behind = await reading.find_position(LOGS, MessageId(-1, ledger + 100, 1, 3))
            assert behind.position == (await reading.find_position(LOGS, MessageId.latest)).position == (ledger, 2, 0)
            now = datetime.datetime.now(tz=datetime.UTC)
            assert (await reading.find_position(LOGS, now - datetime.timedelta(days=1))).position == first.position
            assert (await reading.find_position(LOGS, now + datetime.timedelta(days=1))).position == behind.position


async def test_plan_flags_only_starts_within_deleted_messages() -> None:
    async with running_broker(**SMALL) as scene:
        await create_topic(scene)
        reading = scene.admin.reading
        async with scene.client() as client:
            await publish(client, 12)
            plan = await reading.plan(LOGS, start=MessagePosition(0, 0, 0))
            ledgers = [piece.ledger_id for piece in plan.pieces]
            await scene.admin.topics.truncate(LOGS)
            empty = await reading.plan(LOGS, start=plan.start)
            assert empty.begins_in_deleted
            assert not empty.pieces
            assert empty.start == empty.stop == empty.first == empty.end == plan.stop
            # Right behind what was deleted nothing is lost, nor for who has read nothing yet.
            for start in (plan.stop, MessagePosition(0, 0, 0), MessagePosition(ledgers[-1] + 1, 0)):
                assert not (await reading.plan(LOGS, start=start)).begins_in_deleted
            await publish(client, 3, first=12)
            lost = await reading.plan(LOGS, start=MessagePosition(ledgers[1], 3))
            assert lost.begins_in_deleted
            assert lost.start == lost.first
            assert rows(scene, lost) == numbers(12, 15)
            assert (await reading.find_position(LOGS, 1)).position == lost.first
            # All of a range that was: nothing of what came since is in it.
            whole = await reading.plan(LOGS, start=plan.start, stop=plan.stop)
            assert whole.begins_in_deleted
            assert not whole.pieces
            assert whole.start == whole.stop == plan.stop
            on = await reading.plan(LOGS, start=plan.stop)
            assert not on.begins_in_deleted
            assert rows(scene, on) == numbers(12, 15)


async def test_another_incarnation_is_not_planned() -> None:
    """TOP-7: what a checkpoint knows of a topic is not applied to another one of its name; nor is a lease made."""

    async with running_broker() as scene:
        reading = scene.admin.reading
        async with scene.client() as client:
            await publish(client, 3)
            old = await reading.plan(LOGS, start=MessagePosition(0, 0, 0))
            await scene.admin.topics.delete(LOGS)
            with pytest.raises(exceptions.TopicNotFound):
                await reading.plan(LOGS, incarnation=old.incarnation, start=old.start)
            await publish(client, 3)
            leased = partial(reading.plan, LOGS, lease_ms=600_000, lease_id=b"l" * 16, holder="test")
            for incarnation, start in ((old.incarnation, MessagePosition(0, 0, 0)), ("", old.start), ("", old.stop)):
                plan = await leased(incarnation=incarnation, start=start)
                assert plan.other_incarnation
                assert not plan.pieces
                assert plan.incarnation != old.incarnation
            assert not (await scene.admin.topics.internal_stats(LOGS)).leases
            with pytest.raises(exceptions.IncarnationChanged):
                await reading.advance_progress(LOGS, old.incarnation, "p", old.stop)
            with pytest.raises(exceptions.IncarnationChanged):
                await reading.advance_progress(LOGS, "", "p", old.stop)
            with pytest.raises(exceptions.IncarnationChanged):
                await reading.renew_lease(LOGS, old.incarnation, b"l" * 16, 1000)
            with pytest.raises(exceptions.IncarnationChanged):
                await reading.find_position(LOGS, MessageId(-1, old.start.ledger_id, 0, -1))
            assert await scene.admin.subscriptions.list(LOGS) == []


async def test_plan_lease_retains_planned_and_preceding_ledgers() -> None:
    """SPK-5: the ledgers of a plan, and those `before`, are retained though all subscriptions have acknowledged
    them."""

    async with running_broker(**SMALL) as scene:
        await create_topic(scene)
        reading = scene.admin.reading
        async with scene.client() as client:
            await publish(client, 30)
            whole = await reading.plan(LOGS, start=MessagePosition(0, 0, 0))
            ledgers = [piece.ledger_id for piece in whole.pieces]
            start = MessagePosition(ledgers[3], 2)
            leased = partial(reading.plan, LOGS, lease_ms=600_000, lease_id=b"l" * 16, holder="test")
            plan = await leased(start=start, before_ledgers=2, before_bytes=1 << 20)
            assert plan.lease_until_ms > 0
            assert [(one.ledger_id, one.first_entry_id, one.last_entry_id) for one in plan.before] == [
                (ledgers[2], 0, 4),
                (ledgers[3], 0, 1),
            ]
            assert plan.before[0].bytes == whole.pieces[2].bytes
            assert not plan.deleted_before
            assert not (await reading.plan(LOGS, start=start, before_ledgers=9, before_bytes=1 << 20)).deleted_before
            assert (await reading.plan(LOGS, start=start, before_ledgers=9, before_bytes=1)).before == plan.before[1:]
            await scene.admin.topics.truncate(LOGS)
            left = await reading.plan(LOGS, start=MessagePosition(0, 0, 0))
            assert left.first == MessagePosition(ledgers[2], 0)
            for ledgers_before, deleted in ((1, False), (2, True), (9, True)):
                plan_before = partial(reading.plan, LOGS, start=start, before_bytes=1 << 20)
                assert (await plan_before(before_ledgers=ledgers_before)).deleted_before == deleted
            assert rows(scene, plan) == numbers(17, 30)
            await reading.renew_lease(LOGS, plan.incarnation, b"l" * 16, 0)
            with pytest.raises(exceptions.NotFound):
                await reading.renew_lease(LOGS, plan.incarnation, b"l" * 16, 1000)
            await scene.admin.topics.truncate(LOGS)
            assert not (await reading.plan(LOGS, start=MessagePosition(0, 0, 0))).pieces


async def test_invalid_plan_requests_are_refused() -> None:
    async with running_broker() as scene:
        reading = scene.admin.reading
        await scene.admin.topics.create_partitioned(LOGS, 2)
        with pytest.raises(exceptions.NotAllowedError, match="logs-partition-0"):
            await reading.plan(LOGS, start=MessagePosition(0, 0, 0))
        # A partition that nobody has used yet is there.
        assert not (await reading.plan(f"{LOGS}-partition-1", start=MessagePosition(0, 0, 0))).pieces
        with pytest.raises(exceptions.TopicNotFound):
            await reading.plan(f"{LOGS}-partition-2", start=MessagePosition(0, 0, 0))
        with pytest.raises(exceptions.TopicNotFound):
            await reading.find_position("public/default/nothing", MessageId.earliest)
        with pytest.raises(exceptions.InvalidArgument):
            await reading.plan(LOGS, start=MessagePosition(-1, 0, 0))
        with pytest.raises(exceptions.InvalidArgument):
            await reading.plan(f"{LOGS}-partition-0", start=MessagePosition(0, 0, 0), lease_ms=1, lease_id=b"short")
        assert await scene.admin.topics.list("public/default") == [
            f"persistent://{LOGS}-partition-{index}" for index in range(2)
        ]


async def test_numbers_that_no_message_has_are_refused_at_once() -> None:
    """They are the caller's mistake at either end, and the call is not repeated."""

    async with running_broker() as scene:
        reading = scene.admin.reading
        async with scene.client() as client:
            await publish(client, 1)
        # Numbers of requests may be larger than those of a cursor's positions.
        for ledger_id, entry_id, batch_index in ((2**63, 0, 0), (1, 2**64 - 1, 0), (1, 0, 2**31)):
            with pytest.raises(exceptions.InvalidArgument, match=f"{ledger_id}:{entry_id}:{batch_index}"):
                await reading.advance_progress(LOGS, "", "p", MessagePosition(ledger_id, entry_id, batch_index))
        for position in (MessagePosition(2**64, 0), MessagePosition(1, -1), MessagePosition(1, 0, 2**32)):
            with pytest.raises(exceptions.InvalidArgument):
                await reading.advance_progress(LOGS, "", "p", position)
        for lease_ms in (-1, 2**64):
            with pytest.raises(exceptions.InvalidArgument):
                await reading.renew_lease(LOGS, "", b"l" * 16, lease_ms)
        assert await scene.admin.subscriptions.list(LOGS) == []
        await reading.advance_progress(LOGS, "", "p", MessagePosition(2**63 - 1, 2**63 - 1, 2**31 - 1))
        assert await scene.admin.subscriptions.list(LOGS) == ["p"]


async def test_plan_uses_bookie_addresses_of_requested_listener() -> None:
    async with running_broker() as scene:
        async with scene.client() as client:
            await publish(client, 3)
        registry = scene.metadata.connect()
        for bookie in scene.bookies:
            path = bookie_paths.available(bookie.bookie_id)
            registration = BookieRegistration(
                address=f"{bookie.bookie_id}:1",
                instance_id=b"i",
                listeners=[
                    BookieListener(name="internal", address=f"{bookie.bookie_id}:1"),
                    BookieListener(name="external", address=f"out:{bookie.bookie_id[1:]}"),
                ],
            )
            node = await registry.get(path)
            assert node is not None
            await registry.put(path, registration.SerializeToString(), node.version)
        reading = scene.admin.reading

        async def bookies(listener_name: str) -> dict[str, str]:
            return dict((await reading.plan(LOGS, start=MessagePosition(0, 0), listener_name=listener_name)).bookies)

        async def known() -> bool:
            return (await bookies("")) != (await bookies("external"))

        await until(known, "the bookies' listeners are known")
        assert await bookies("external") == {"b0": "out:0", "b1": "out:1"}
        assert await bookies("") == {"b0": "b0:1", "b1": "b1:1"}
        with pytest.raises(exceptions.InvalidArgument, match="internal, external"):
            await bookies("elsewhere")


async def test_any_broker_plans_and_the_topics_own_answers() -> None:
    """SPK-5: only the partition's owner answers a plan, whichever broker is called."""

    async with running_brokers() as scene, admins(scene) as each, scene.client() as client:
        await spread(scene, each[0])
        topic = topic_at(scene, scene.brokers[1])
        await publish(client, 5, topic=topic)
        answers = [await one.reading.plan(topic, start=MessagePosition(0, 0, 0)) for one in each]
        assert [plan.messages for plan in answers] == [5, 5]
        assert answers[0] == answers[1]
        assert serving(scene, topic) == [scene.brokers[1].broker_id]
