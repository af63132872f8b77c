"""The store on a real ZooKeeper keeps the contract: on one server, and on three while their leader is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any, ClassVar

import pytest

from magnetar_metadata.compare_and_set import read
from magnetar_metadata.errors import NoStore, Unavailable
from magnetar_metadata.location import open_metadata
from magnetar_metadata.store import ABSENT, MetadataStore, SessionState, Stat
from magnetar_testing.local_zookeeper import LocalZooKeeper
from magnetar_wire.clock import SystemClock
from tests.contract.metadata_store_contract import MetadataStoreContract, Space, count_with
from tests.contract.zookeeper_space import ZooKeeperSpace
from tests.running import run, until, within

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("zookeeper")]


class TestZooKeeperStore(MetadataStoreContract):
    @pytest.fixture
    async def space(self, zookeeper: LocalZooKeeper) -> AsyncIterator[Space]:
        async with ZooKeeperSpace(zookeeper.hosts) as space:
            yield space


async def test_concurrent_syncs_share_a_write(zookeeper: LocalZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """CHK-49: each is a write of a majority, and any client can make a broker sync"""
    space = ZooKeeperSpace(zookeeper.hosts)
    try:
        store = await space.connect()
        session = space.session_beneath(store)
        request, sent = session.request, 0

        async def count(*args: Any, **options: Any) -> Any:
            nonlocal sent
            sent += 1
            return await request(*args, **options)

        monkeypatch.setattr(session, "request", count)
        await asyncio.gather(*(store.sync() for _ in range(100)))
        assert sent == 1
    finally:
        await space.close()


def test_a_chroot_that_does_not_exist_is_created_only_on_request(zookeeper: LocalZooKeeper) -> None:
    async def open_it(create: bool) -> None:
        location = f"zookeeper://{zookeeper.hosts}/mistyped/chroot"
        await (await open_metadata(location, SystemClock(), create=create)).close()

    for _ in range(2):
        with pytest.raises(NoStore, match="/mistyped/chroot"):
            run(open_it(create=False))
    run(open_it(create=True))
    run(open_it(create=False))


@pytest.fixture(scope="class")
def half(request: pytest.FixtureRequest) -> Iterator[int]:
    """How many of the tests begin before the leader is killed."""
    cls = request.cls
    cls._begun, cls._killed = 0, False
    chosen = [each for each in request.session.items if isinstance(each, pytest.Function) and each.cls is cls]
    yield sum("space" in each.fixturenames for each in chosen) // 2
    stopped_early = request.session.shouldstop or request.session.shouldfail
    assert cls._killed or stopped_early, "the leader was never killed"


class TestQuorum(MetadataStoreContract):
    """Half way through, the leader is killed while sessions are open; the rest runs on the two servers left.

    Half way through the tests that are run, in any selection and order.
    """

    _begun: ClassVar[int] = 0
    _killed: ClassVar[bool] = False

    @pytest.fixture
    async def space(self, quorum: LocalZooKeeper, half: int) -> AsyncIterator[Space]:
        cls = type(self)
        kills = cls._begun == half
        cls._begun += 1

        async with ZooKeeperSpace(quorum.hosts) as space:
            if kills:
                await _leader_killed_under(space, quorum)
                cls._killed = True
            yield space

    def test_a_sync_is_answered_by_a_majority(self, quorum: LocalZooKeeper) -> None:
        """A leader alone may lack changes that others have answered: ZooKeeper's own sync is answered by it at once."""
        run(_sync_while_the_leader_is_alone(quorum))

    @pytest.mark.timeout(300)  # a loaded machine may take half a minute to elect another leader
    def test_zz_compare_and_set_counts_right_while_the_leader_is_killed(self, quorum: LocalZooKeeper) -> None:
        """Every success is in the count; with lost answers resolved, nothing else is."""
        run(_count_while_the_leader_is_killed(quorum), timeout_s=240)


async def _leader_killed_under(space: ZooKeeperSpace, quorum: LocalZooKeeper) -> None:
    """Kills the leader under three sessions, each with an ephemeral node; all of them go on."""
    await _all_running(quorum)
    stores = [await space.connect() for _ in range(3)]
    for store in stores:
        await store.put(f"/witness/{store.session.id}", b"", ABSENT, ephemeral=True)
    await _kill_leader(quorum)
    await asyncio.gather(*(_answered(store) for store in stores))
    for store in stores:
        assert store.session.state is SessionState.CONNECTED
        await store.sync()
        assert await store.exists(f"/witness/{store.session.id}") == Stat(0, store.session.id)
        await store.delete(f"/witness/{store.session.id}", 0)
    await stores[0].delete("/witness", 0)


async def _sync_while_the_leader_is_alone(quorum: LocalZooKeeper) -> None:
    """The leader serves reads for a while after its followers stop; no sync must be answered in that time."""
    await _all_running(quorum)
    leader = await asyncio.to_thread(quorum.leader)
    assert leader is not None
    followers = [server for server in quorum.servers if server is not leader]
    space = ZooKeeperSpace(leader.address)
    try:
        store, other = await space.connect(), await space.connect()
        for server in followers:
            server.pause()
        try:
            syncing = asyncio.create_task(store.sync())
            for _ in range(20):
                assert await other.get("/") is not None
            assert not syncing.done()
        finally:
            for server in followers:
                server.resume()
        await within(syncing, "the end of the sync")
    finally:
        await space.close()


async def _count_while_the_leader_is_killed(quorum: LocalZooKeeper) -> None:
    await _all_running(quorum)
    space = ZooKeeperSpace(quorum.hosts)
    try:
        stores = [await space.connect() for _ in range(4)]
        reader = await space.connect()
        counting = asyncio.create_task(_count_in_rounds(stores, rounds=60))

        async def counted_some() -> bool:
            stored = await read(reader, "/cas/count")
            return stored is not None and int(stored.payload) >= 20

        await until(counted_some, "some were counted")
        await _kill_leader(quorum)
        made, unknown = await counting
        await _answered(reader)
        await reader.sync()
        stored = await read(reader, "/cas/count")
        assert stored is not None
        assert (made, unknown) == (240, 0)
        assert stored.version == 239
    finally:
        await space.close()


async def _count_in_rounds(stores: list[MetadataStore], rounds: int) -> tuple[int, int]:
    """Each store counts once in each round: none gets so far ahead that another's token is dropped."""
    made = unknown = 0
    for each in range(rounds):
        seeds = (f"{each} of {n}" for n in range(len(stores)))
        counts = (count_with(store, seed, SystemClock(), 1) for store, seed in zip(stores, seeds, strict=True))
        for made_one, unknown_one in await asyncio.gather(*counts):
            made += made_one
            unknown += unknown_one
    return made, unknown


async def _all_running(quorum: LocalZooKeeper) -> None:
    """Two servers of three are needed after the leader's end."""
    for server in quorum.servers:
        if not server.running:
            server.start()
    await asyncio.to_thread(partial(quorum.wait_ready, all_of_them=True))


async def _kill_leader(quorum: LocalZooKeeper) -> None:
    leader = await asyncio.to_thread(quorum.leader)
    assert leader is not None
    await asyncio.to_thread(leader.kill)


async def _answered(store: MetadataStore) -> None:
    async def answered() -> bool:
        try:
            await store.ping()
        except Unavailable:
            return False
        return True

    await until(answered, "the store is answered again")
