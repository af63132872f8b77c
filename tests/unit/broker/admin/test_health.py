"""A broker's health: true only when a message can really go through."""

from __future__ import annotations

import asyncio

from magnetar_broker import paths
from magnetar_broker.system_topics import SYSTEM_NAMESPACE, heartbeat_topic
from magnetar_protos import ledger_pb2 as pb
from tests.running import until, within
from tests.unit.broker.broker_scene import BrokerScene, running_broker

_QUICK = {"health_check_timeout_seconds": 0.2, "health_check_max_age_seconds": 0.0}


async def healthy_again(scene: BrokerScene) -> None:
    async def healthy() -> bool:
        return (await scene.broker.health.check())[0]

    await until(healthy, "the broker is healthy again")


async def test_a_healthy_broker_has_stored_a_message_and_read_it_back_from_its_bookies() -> None:
    """ADM-2."""

    async with running_broker(health_check_timeout_seconds=30.0) as scene:
        assert await scene.broker.health.check() == (True, [])
        topic = scene.broker_session.topics.get_loaded(heartbeat_topic("b/1"))
        assert topic is not None
        assert topic.counters.received.messages == 1
        assert [len(bookie.reads()) for bookie in scene.bookies].count(0) == 1
        # It is the system's, and nobody is connected to it any more.
        assert topic.producers.connected() == []
        assert await scene.broker_session.catalog.list_topics(SYSTEM_NAMESPACE) == []
        health = await scene.admin.brokers.health()
        assert (health.healthy, health.reasons) == (True, [])


async def test_bookies_that_give_no_answer_are_no_health() -> None:
    """ADM-2."""

    async with running_broker(**_QUICK, topic_close_timeout_seconds=0.1) as scene:
        await healthy_again(scene)
        for bookie in scene.bookies:
            bookie.hanging.add("add")
        for _ in range(3):
            healthy, reasons = await scene.broker.health.check()
            assert not healthy
            assert "has not answered for" in reasons[0]
        topic = scene.broker_session.topics.get_loaded(heartbeat_topic("b/1"))
        assert topic is not None
        # However often one asks, one message hangs.
        assert topic.log.stats().pending_appends <= 1


async def test_bookies_that_cannot_be_read_are_no_health() -> None:
    """ADM-2: what was stored has to come back, and as it was."""

    async with running_broker(**_QUICK) as scene:
        await healthy_again(scene)
        for bookie in scene.bookies:
            bookie.failing.add("read")
        healthy, reasons = await scene.broker.health.check()
        assert not healthy
        assert reasons[0].startswith("a message that was sent through the broker ")
        for bookie in scene.bookies:
            bookie.failing.clear()
        await healthy_again(scene)

        def damaged(request: pb.ReadRequest, answer: pb.ReadAnswer) -> pb.ReadAnswer:
            return pb.ReadAnswer(
                status=pb.OK,
                last_add_confirmed=answer.last_add_confirmed,
                next_entry_id=answer.next_entry_id,
                damaged=range(request.first_entry_id, answer.next_entry_id),
            )

        for bookie in scene.bookies:
            bookie.lie = damaged
        assert not (await scene.broker.health.check())[0]
        for bookie in scene.bookies:
            bookie.lie = lambda _, answer: answer
        await healthy_again(scene)


async def test_without_metadata_a_broker_is_not_healthy() -> None:
    """ADM-2: while it is suspended, and after it was lost, until there is another session."""

    async with running_broker(**_QUICK) as scene:
        await healthy_again(scene)
        assert scene.store is not None
        scene.metadata.suspend(scene.store)
        healthy, reasons = await scene.broker.health.check()
        assert not healthy
        assert "the session with the metadata store is suspended" in reasons
        scene.metadata.resume(scene.store)
        await healthy_again(scene)
        before = scene.broker_session
        scene.metadata.expire(scene.store)
        await until(lambda: scene.broker.session is None or scene.broker.session is not before, "the session is over")
        await healthy_again(scene)
        assert scene.broker_session is not before


async def test_broker_without_session_is_unhealthy() -> None:
    async with running_broker() as scene:
        session, scene.broker.session = scene.broker.session, None
        healthy, reasons = await scene.broker.health.check()
        assert not healthy
        assert "no session" in reasons[0]
        scene.broker.session = session


async def test_concurrent_health_checks_share_one_message() -> None:
    async with running_broker(health_check_timeout_seconds=30.0, health_check_max_age_seconds=1000.0) as scene:
        answers = await within(asyncio.gather(*(scene.broker.health.check() for _ in range(50))), "50 answers")
        assert all(healthy for healthy, _ in answers)
        assert (await scene.broker.health.check())[0]
        topic = scene.broker_session.topics.get_loaded(heartbeat_topic("b/1"))
        assert topic is not None
        assert topic.counters.received.messages == 1


async def test_a_heartbeat_topic_that_is_deleted_is_made_again() -> None:
    async with running_broker(**_QUICK) as scene:
        await healthy_again(scene)
        name = heartbeat_topic("b/1")
        await scene.broker_session.topics.delete(name, force=True)
        await healthy_again(scene)
        assert scene.store is not None
        assert await scene.store.get(paths.topic(name)) is not None
