"""What a topic that is deleted leaves to those who have leased its ledgers, and how that goes in the end."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker import paths
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger import orphaned_ledgers
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_broker.managed_ledger.orphaned_ledgers import OrphanedLedgerDeleter
from magnetar_broker.topics.topic_deletion import delete_topic
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.store import ABSENT
from magnetar_protos.managed_ledger_pb2 import LeasedRemains
from magnetar_testing.metadata.server import Fault
from magnetar_testing.randomness import SeededRandomness
from tests.unit.broker.log_scene import TOPIC, Scene, numbered, running_log_scene

ONE, OTHER = bytes([1]) * 16, bytes([2]) * 16
_TEN_MIN_MS = 600_000


async def leased(scene: Scene) -> tuple[ManagedLedger, list[int]]:
    """A topic of four ledgers, of which the last two are leased for ten minutes."""
    log = await scene.open()
    await scene.append(log, *numbered(10))
    ledgers = [one.ledger_id for one in log.stats().ledgers]
    await scene.patiently(log.leases.take_lease(ONE, ledgers[2], _TEN_MIN_MS, "a query"))
    return log, ledgers


async def delete(scene: Scene, client: LedgerClient | None = None) -> None:
    await scene.patiently(delete_topic(TOPIC, client or scene.client, scene.clock, SeededRandomness(7)))


async def deleted(scene: Scene, ledgers: list[int]) -> list[bool]:
    return [(await scene.metadata(ledger_id)).state.name == "TOMBSTONE" for ledger_id in ledgers]


async def remains(scene: Scene) -> list[str]:
    await scene.store.sync()
    return await scene.store.children(paths.LEASED_LEDGERS)


def sweeper(scene: Scene, client: LedgerClient | None = None) -> OrphanedLedgerDeleter:
    return OrphanedLedgerDeleter(client or scene.client, scene.clock, SeededRandomness(3), 120.0)


@pytest.mark.parametrize("by_owner", [True, False])
async def test_deleted_topic_retains_leased_ledgers_until_leases_expire(by_owner: bool) -> None:
    """SPK-5: delete spares it, whoever deletes; it is swept when the leases' full time is over, and nothing is left."""

    async with running_log_scene() as scene:
        log, ledgers = await leased(scene)
        incarnation = log.incarnation
        client = scene.client if by_owner else await scene.another()
        sweeping = sweeper(scene, client)
        await sweeping.check_nodes()
        await delete(scene, client)
        assert await scene.node() is None
        assert await deleted(scene, ledgers) == [True, True, False, False]
        [name] = await remains(scene)
        assert name == f"{incarnation}-0"
        reader = await scene.patiently(scene.client.open(ledgers[3]))
        assert len(await scene.patiently(reader.read(0, 0))) == 1
        await sweeping.check_nodes()
        for _ in range(5):
            scene.clock.advance(119)
            await sweeping.check_nodes()
        assert await deleted(scene, ledgers[2:]) == [False, False]
        again = await scene.open()  # another topic of that name is none of theirs
        assert again.incarnation != incarnation
        assert again.leases.list_active() == []
        scene.clock.advance(6)
        await scene.patiently(sweeping.check_nodes())
        assert await deleted(scene, ledgers) == [True] * 4
        assert await remains(scene) == []
        await sweeping.check_nodes()


async def test_without_a_lease_nothing_is_left() -> None:
    """SPK-5: nor where one was taken from where nothing is stored yet, or has ended."""

    async with running_log_scene() as scene:
        log, ledgers = await leased(scene)
        await scene.patiently(log.leases.end_lease(ONE))
        await scene.patiently(log.leases.take_lease(OTHER, ledgers[-1] + 1, _TEN_MIN_MS, ""))
        await delete(scene)
        assert await remains(scene) == []
        await scene.every_ledger_is_deleted()


async def test_a_deletion_that_breaks_off_anywhere_is_finished_by_the_next() -> None:
    """SPK-5, TOP-7: at each request that fails; what is held is named by the topic's node or by the remains."""

    async def test(after: int, scene: Scene) -> bool:
        _, ledgers = await leased(scene)
        store = scene.store
        scene.server.queue_faults(store, *[None] * after, Fault.LOSE_REQUEST)
        broke_off = False
        try:
            task = asyncio.ensure_future(delete_topic(TOPIC, scene.client, scene.clock, SeededRandomness(7)))
            await scene.wait(task.done)
            task.result()
        except (BrokerError, MetadataError):
            broke_off = True
        scene.server.resume(store)
        another = await scene.another()
        assert (await deleted_or_gone(scene, another, ledgers[2:])) == [False, False]
        await delete(scene, another)
        assert (await deleted_or_gone(scene, another, ledgers)) == [True, True, False, False]
        assert len(await another.ledgers.store.children(paths.LEASED_LEDGERS)) == 1
        sweeping = sweeper(scene, another)
        await sweeping.check_nodes()
        scene.clock.advance(601)
        await scene.patiently(sweeping.check_nodes())
        assert (await deleted_or_gone(scene, another, ledgers)) == [True] * 4
        return broke_off

    after, broke_off = 0, True
    while broke_off:
        async with running_log_scene() as scene:
            broke_off = await test(after, scene)
        after += broke_off
    assert after > 8


async def deleted_or_gone(scene: Scene, client: LedgerClient, ledgers: list[int]) -> list[bool]:
    await client.ledgers.store.sync()
    return [(await client.ledgers.read_metadata(ledger_id)).state.name == "TOMBSTONE" for ledger_id in ledgers]


@pytest.mark.parametrize("turns", range(0, 60, 4))
async def test_several_delete_at_once_and_one_is_cancelled(turns: int) -> None:
    """SPK-5: what is held is left once, and nothing of it is deleted."""

    async with running_log_scene() as scene:
        _, ledgers = await leased(scene)
        another = await scene.another()
        one = asyncio.ensure_future(delete_topic(TOPIC, scene.client, scene.clock, SeededRandomness(7)))
        for _ in range(turns):
            await asyncio.sleep(0)
        two = asyncio.ensure_future(delete(scene, another))
        for _ in range(turns):
            await asyncio.sleep(0)
        one.cancel()
        with suppress(asyncio.CancelledError):
            await one
        await two
        assert await deleted(scene, ledgers) == [True, True, False, False]
        assert len(await remains(scene)) == 1


async def test_several_sweep_at_once_and_one_dies_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPK-5: whoever comes later gives the whole time anew, and finishes what is left."""
    monkeypatch.setattr(orphaned_ledgers, "_LEDGERS_PER_NODE", 1)

    async with running_log_scene() as scene:
        _, ledgers = await leased(scene)
        await delete(scene)
        assert len(await remains(scene)) == 2
        first, second = sweeper(scene), sweeper(scene, await scene.another())
        await first.check_nodes()
        scene.clock.advance(300)
        late = sweeper(scene, await scene.another())
        await late.check_nodes()
        await second.check_nodes()
        scene.clock.advance(301)
        await late.check_nodes()
        assert await deleted(scene, ledgers[2:]) == [False, False]
        dying = asyncio.ensure_future(first.check_nodes())
        for _ in range(12):
            await asyncio.sleep(0)
        dying.cancel()
        with suppress(asyncio.CancelledError):
            await dying
        scene.clock.advance(300)
        await scene.patiently(_all(second.check_nodes(), late.check_nodes()))
        assert await deleted(scene, ledgers) == [True] * 4
        assert await remains(scene) == []


async def test_sweeper_continues_despite_foreign_nodes_and_store_outages() -> None:
    """SPK-5: a node that nobody of ours has written is passed over, and an outage is waited for."""

    async with running_log_scene() as scene:
        _, ledgers = await leased(scene)
        await scene.store.put(f"{paths.LEASED_LEDGERS}/0-foreign", b"whatever", ABSENT)
        await delete(scene)
        sweeping = asyncio.ensure_future(
            OrphanedLedgerDeleter(scene.client, scene.clock, SeededRandomness(3), 1.0).run()
        )
        await scene.idle()
        scene.server.suspend(scene.store)
        scene.clock.advance(2)
        await scene.idle()
        scene.server.resume(scene.store)
        passed = 0
        while len(await remains(scene)) == 2:
            scene.clock.advance(2)
            await scene.idle()
            passed += 2
        assert 600 <= passed <= 620
        assert await deleted(scene, ledgers) == [True] * 4
        assert not sweeping.done()
        sweeping.cancel()
        await asyncio.wait([sweeping])


async def test_the_longest_of_several_leases_counts() -> None:
    """SPK-5"""

    async with running_log_scene() as scene:
        log, ledgers = await leased(scene)
        await scene.patiently(log.leases.take_lease(OTHER, ledgers[1], 2 * _TEN_MIN_MS, ""))
        await delete(scene)
        [name] = await remains(scene)
        stored = await compare_and_set.read(scene.store, f"{paths.LEASED_LEDGERS}/{name}")
        assert stored is not None
        left = LeasedRemains.FromString(stored.payload)
        assert (list(left.ledger_ids), left.lease_ms, left.topic) == (ledgers[1:], 2 * _TEN_MIN_MS, str(TOPIC))


async def _all(*work: object) -> None:
    await asyncio.gather(*work)  # type: ignore[call-overload]
