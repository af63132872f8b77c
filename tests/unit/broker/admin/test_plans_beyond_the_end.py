"""Plans of what a broker does not know of, since another one has stored it."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from magnetar import exceptions
from magnetar.admin import MessagePosition
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_broker import paths
from magnetar_broker.managed_ledger.entry_cache import EntryCache
from magnetar_broker.managed_ledger.log_entry import NewEntry
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_broker.settings.managed_ledgers import ManagedLedgerSettings
from magnetar_broker.topics.topic_deletion import finish_deletion
from magnetar_metadata.store import ANY
from magnetar_wire.randomness import SystemRandomness
from magnetar_wire.topic_name import TopicName
from tests.unit.broker.broker_scene import BrokerScene, running_broker
from tests.unit.broker.log_scene import entry

_TOPIC = TopicName.parse("t")
_BEGIN = MessagePosition(0, 0, 0)
_STRIPING = {
    "managed_ledger_default_ensemble_size": 2,
    "managed_ledger_default_write_quorum": 2,
    "managed_ledger_default_ack_quorum": 2,
}


async def store_elsewhere(scene: BrokerScene, count: int) -> MessagePosition:
    """Another broker takes the topic over, stores as many entries, and lets it go; the topic's end."""
    store = scene.metadata.connect()
    client = LedgerClient(store, scene.transport, scene.clock, SystemRandomness(), LedgerClientSettings())
    await client.start()
    options = ManagedLedgerSettings(**_STRIPING)
    randomness = SystemRandomness()
    finish = partial(finish_deletion, _TOPIC, client=client, clock=scene.clock, randomness=randomness)
    log = await ManagedLedger.open(
        _TOPIC, client, EntryCache(0), options, scene.clock, randomness, finish_deletion=finish
    )
    stored: list[asyncio.Future[object]] = []
    for number in range(count):
        result: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        log.append([NewEntry(entry(b"%d" % number, 0), 1, 0, None)], partial(_set_result, result))
        stored.append(result)
    await asyncio.gather(*stored)
    end = MessagePosition(*log.last.next)
    await log.close()
    await client.close()
    await store.close()
    return end


def _set_result(future: asyncio.Future[object], result: object) -> None:
    future.set_result(result)


async def stale(scene: BrokerScene) -> tuple[MessagePosition, MessagePosition]:
    """A topic that its broker has lost and does not know it: the end that the broker knows, and the topic's."""
    async with scene.client() as client:
        producer = await client.create_producer("t", batching_enabled=False)
        for number in range(3):
            await producer.send(b"%d" % number)
        known = (await scene.admin.reading.plan("t", start=_BEGIN)).end
        end = await store_elsewhere(scene, 2)
        assert (await scene.admin.reading.plan("t", start=_BEGIN)).end == known < end
    return known, end


@pytest.mark.parametrize("named", ["start", "stop"])
async def test_a_broker_that_has_lost_the_topic_does_not_answer_beyond_the_end_that_it_knows(named: str) -> None:
    """SPK-1, OWN-2: a reader that comes from the owner must not get an error about lost messages. The owner answers."""

    async with running_broker() as scene:
        _, end = await stale(scene)
        positions = {"start": end} if named == "start" else {"start": _BEGIN, "stop": end}
        plan = await scene.admin.reading.plan("t", **positions)  # type: ignore[arg-type]
        assert plan.end == end
        assert plan.messages == (0 if named == "start" else 5)


async def test_a_position_that_a_topic_never_reached_is_answered_with_its_end() -> None:
    """SPK-1: after the broker made sure that the topic is its own. If it can't, the plan is refused."""

    async with running_broker() as scene:
        async with scene.client() as client:
            producer = await client.create_producer("t", batching_enabled=False)
            await producer.send(b"0")
            end = (await scene.admin.reading.plan("t", start=_BEGIN)).end
            beyond = MessagePosition(end.ledger_id + 100, 0, 0)
            plan = await scene.admin.reading.plan("t", start=beyond)
            assert (plan.end, plan.pieces) == (end, [])
            [topic] = scene.broker_session.topics.loaded()
            await producer.send(b"1")
            assert scene.broker_session.topics.loaded() == [topic]
        await scene.metadata.connect().delete(paths.incarnation(_TOPIC, topic.log.incarnation), ANY)
        await scene.metadata.connect().delete(paths.cursors(_TOPIC), ANY)
        await scene.metadata.connect().delete(paths.topic(_TOPIC), ANY)
        with pytest.raises(exceptions.TopicNotFound):
            await scene.admin.reading.plan("t", start=beyond)
