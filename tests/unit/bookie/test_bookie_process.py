"""A bookie's process: who it is, its registration, limbo and garbage, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from magnetar_bookie import paths
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.client.ledger_store import LedgerStore
from magnetar_bookie.core import ledger_metadata
from magnetar_bookie.core.bookie_identity import Step, next_step
from magnetar_bookie.core.ledger_metadata import LedgerState
from magnetar_bookie.errors import BookieRefused, DecommissionedBookie, ForeignDisk, NoSuchLedger, WipedBookie
from magnetar_bookie.read.striping import Striping
from magnetar_bookie.server.bookie import Bookie
from magnetar_bookie.server.bookie_process import BookieProcess, WithSession
from magnetar_bookie.server.collector import GarbageCollector
from magnetar_bookie.settings.server import BookieServerSettings
from magnetar_bookie.storage.interface import Changes, LedgerRecord, StorageFailed
from magnetar_metadata import compare_and_set
from magnetar_metadata.store import ABSENT
from magnetar_protos.ledger_pb2 import (
    BookieRecord,
    BookieRegistration,
    Cookie,
    ReadAnswer,
    ReadRequest,
    Status,
)
from magnetar_testing.clock import ManualClock
from magnetar_testing.metadata import Fault, MemoryServer
from magnetar_testing.metadata.store import MemoryStore
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.clock import SystemClock
from magnetar_wire.in_process_transport import InProcessTransport
from tests.running import until, within
from tests.sim.disk import SimulatedDisk
from tests.unit.bookie.bookie_client import KEY, NO_LATENCY, add_request, record
from tests.unit.bookie.slow_disk import slow_disk, written

COOKIE = Cookie(bookie_id="b1", instance_id=b"one")
OPTIONS = BookieServerSettings(garbage_interval_seconds=0.01, metadata_retry_seconds=0.01)


class Machine:
    """A metadata server, and a disk on which bookie b1 is started again and again."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.server = MemoryServer(self.clock)
        self.transport = InProcessTransport(self.clock)
        self.disk = self.new_disk()
        self.store = self.server.connect()
        self.ledgers = LedgerStore(self.store, self.clock, SeededRandomness(1))
        # The sessions of bookies, oldest first.
        self.sessions: list[MemoryStore] = []

    def new_disk(self) -> SimulatedDisk:
        return SimulatedDisk(self.clock, SeededRandomness(1), NO_LATENCY)

    async def open_metadata(self) -> MemoryStore:
        self.sessions.append(self.server.connect())
        return self.sessions[-1]

    def process(
        self,
        bookie_id: str = "b1",
        with_session: list[WithSession] | None = None,
        settings: BookieServerSettings = OPTIONS,
    ) -> BookieProcess:
        return BookieProcess(
            bookie_id,
            self.disk.open(),
            self.open_metadata,
            self.transport,
            "here:0",
            self.clock,
            SeededRandomness(len(self.sessions)),
            settings,
            with_session=with_session or [],
        )

    @asynccontextmanager
    async def running(
        self,
        bookie_id: str = "b1",
        with_session: list[WithSession] | None = None,
        settings: BookieServerSettings = OPTIONS,
    ) -> AsyncIterator[BookieProcess]:
        process = self.process(bookie_id, with_session, settings)
        task = asyncio.create_task(process.run())
        started = asyncio.create_task(process.started.wait())
        try:
            await within(asyncio.wait([task, started], return_when=asyncio.FIRST_COMPLETED), "the bookie's start")
            if task.done():
                await task
            yield process
        finally:
            started.cancel()
            task.cancel()
            await asyncio.wait([task])

    async def refused(self, bookie_id: str = "b1") -> BookieRefused:
        with pytest.raises(BookieRefused) as refusal:
            async with self.running(bookie_id):
                pass
        return refusal.value

    async def registration(self, bookie_id: str = "b1") -> BookieRegistration | None:
        node = await self.store.get(paths.available(bookie_id))
        return BookieRegistration.FromString(node.value) if node else None

    async def ledger(self, *bookies: str) -> int:
        striping = Striping(len(bookies), len(bookies), 1)
        made = await self.ledgers.make(
            bookies, striping, wanted_ensemble_size=len(bookies), purpose="test", cookie_checks=[]
        )
        return made.ledger_id


def test_identity_table() -> None:
    """CHK-23: a disk that is empty, another's or of a decommissioned bookie never comes back under the name."""
    other = Cookie(bookie_id="b1", instance_id=b"two")
    nothing, begun, member = BookieRecord(), BookieRecord(cookie=COOKIE), BookieRecord(cookie=COOKIE, member=True)
    assert next_step("b1", nothing, None, leaving=False) is Step.MAKE
    assert next_step("b1", begun, None, leaving=False) is Step.PUBLISH
    assert next_step("b1", begun, COOKIE, leaving=False) is Step.JOIN
    assert next_step("b1", member, COOKIE, leaving=False) is Step.START
    with pytest.raises(WipedBookie):
        next_step("b1", nothing, COOKIE, leaving=False)
    with pytest.raises(WipedBookie):
        next_step("b1", BookieRecord(limbo_below=9, limbo_generation=1), COOKIE, leaving=False)
    with pytest.raises(DecommissionedBookie):
        next_step("b1", member, None, leaving=False)
    for disk in (nothing, begun, member):
        with pytest.raises(DecommissionedBookie):
            next_step("b1", disk, None, leaving=True)
    assert next_step("b1", member, COOKIE, leaving=True) is Step.START
    for disk in (begun, member):
        with pytest.raises(WipedBookie):
            next_step("b1", disk, other, leaving=False)
        with pytest.raises(ForeignDisk):
            next_step("b2", disk, None, leaving=False)


async def test_bookie_starts_registers_and_restarts() -> None:
    machine = Machine()
    async with machine.running() as process:
        registered = await machine.registration()
        assert registered is not None
        assert registered.address == process.address
        assert registered.instance_id == process.bookie.record.cookie.instance_id
        assert process.bookie.record.member
    await until(lambda: _gone(machine), "its node is gone")
    async with machine.running() as process:
        assert (await machine.registration() or BookieRegistration()).instance_id == registered.instance_id


async def _gone(machine: Machine) -> bool:
    return await machine.registration() is None


async def test_wiped_bookie_is_refused_at_start() -> None:
    """CHK-23"""
    machine = Machine()
    async with machine.running():
        pass
    machine.disk.wipe()
    assert isinstance(await machine.refused(), WipedBookie)
    assert isinstance(await machine.refused(), WipedBookie), "it did not write itself a new cookie meanwhile"
    assert await machine.registration() is None


async def test_decommissioned_bookie_and_another_bookies_disk_do_not_start() -> None:
    """CHK-23"""
    machine = Machine()
    async with machine.running():
        pass
    assert isinstance(await machine.refused("b2"), ForeignDisk)
    await machine.store.delete(paths.cookie("b1"), 0)
    assert isinstance(await machine.refused(), DecommissionedBookie)
    assert await machine.store.get(paths.cookie("b1")) is None


@pytest.mark.parametrize("written", [1, 2, 3])
async def test_interrupted_first_start_is_resumed(written: int) -> None:
    """CHK-23: after the cookie on the disk, that in the store, and "member"; it is one instance throughout."""
    machine = Machine()
    storage = machine.disk.open()
    record_now = BookieRecord(cookie=COOKIE, member=written == 3)
    storage.write(Changes(bookie=record_now.SerializeToString()))
    await storage.sync()
    if written > 1:
        value = compare_and_set.encode_first_value(COOKIE.SerializeToString(deterministic=True), SeededRandomness(1))
        await machine.store.put(paths.cookie("b1"), value, ABSENT)
    async with machine.running() as process:
        assert process.bookie.record.cookie == COOKIE
        assert process.bookie.record.member
        assert BookieRecord.FromString(process.bookie.storage.bookie() or b"").member


async def test_start_waits_for_a_metadata_store_that_gives_no_answer() -> None:
    machine = Machine()
    opened = machine.open_metadata
    faults = [Fault.LOSE_ANSWER, Fault.LOSE_REQUEST, Fault.LOSE_ANSWER]

    async def open_metadata() -> MemoryStore:
        store = await opened()
        for _ in range(len(machine.sessions)):
            machine.server.queue_faults(store, None)
        if faults:
            machine.server.queue_faults(store, faults.pop())
            asyncio.get_running_loop().call_later(0.02, machine.server.resume, store)
        return store

    machine.open_metadata = open_metadata  # type: ignore[method-assign]
    async with machine.running() as process:
        cookie = await machine.store.get(paths.cookie("b1"))
        assert cookie is not None
        assert process.bookie.record.cookie.instance_id in cookie.value


async def test_bookie_registers_again_after_losing_its_node_or_session() -> None:
    machine = Machine()
    async with machine.running() as process:

        async def registered() -> bool:
            there = await machine.registration()
            return there is not None and there.address == process.address

        await machine.store.delete(paths.available("b1"), 0)
        await until(registered, "it is registered again")
        for _ in range(2):
            machine.server.expire(machine.sessions[-1])
            count = len(machine.sessions)
            await until(lambda c=count: len(machine.sessions) > c, "it opens another session")  # type: ignore[misc]
            await until(registered, "it is registered again")


async def test_registration_of_our_own_former_session_is_replaced() -> None:
    """The former node stands still, as the server has not given that session up yet."""
    machine = Machine()
    async with machine.running() as process:
        instance_id = process.bookie.record.cookie.instance_id
    former = machine.server.connect()
    stale = BookieRegistration(address="nowhere", instance_id=instance_id).SerializeToString()
    await until(lambda: _gone(machine), "the first node is gone")
    await former.put(paths.available("b1"), stale, ABSENT, ephemeral=True)
    async with machine.running() as process:
        assert (await machine.registration() or BookieRegistration()).address == process.address


async def test_registration_of_another_instance_is_waited_out() -> None:
    machine = Machine()
    other = machine.server.connect()
    theirs = BookieRegistration(address="there", instance_id=b"another").SerializeToString()
    await other.put(paths.available("b1"), theirs, ABSENT, ephemeral=True)
    process = machine.process()
    task = asyncio.create_task(process.run())
    await until(lambda: len(machine.transport._listeners) == 1, "it listens")
    for _ in range(100):
        await asyncio.sleep(0)
    assert not process.started.is_set()
    assert (await machine.registration() or BookieRegistration()).address == "there"
    await other.close()
    await within(process.started.wait(), "it registers")
    task.cancel()
    await asyncio.wait([task])


async def test_registration_reports_whether_the_bookie_is_read_only() -> None:
    machine = Machine()
    async with machine.running() as process:

        async def read_only() -> bool:
            return (await machine.registration() or BookieRegistration()).read_only

        assert not await read_only()
        process.bookie.read_only = True
        await until(read_only, "the node says so")
        await machine.store.put(paths.leaving("b1"), b"", ABSENT)
        await until(lambda: len(process.bookie.read_only_because) == 2, "it leaves")
        process.bookie.read_only = False
        assert process.bookie.read_only
        await machine.store.delete(paths.leaving("b1"), 0)
        await until(lambda: not process.bookie.read_only, "it stays")

        async def writable() -> bool:
            return not await read_only()

        await until(writable, "the node says so")


async def test_bookie_serves_while_it_has_no_session() -> None:
    machine = Machine()
    async with machine.running() as process:
        machine.server.suspend(machine.sessions[-1])
        connection = machine.transport.connect(process.address)
        request = ReadRequest(ledger_id=1).SerializeToString()
        answer = ReadAnswer.FromString(await connection.call("read", request, timeout_s=60))
        assert answer.status == Status.OK
        await connection.close()


async def test_failed_sync_ends_the_process() -> None:
    """CHK-21"""
    machine = Machine()
    process = machine.process()
    task = asyncio.create_task(process.run())
    await within(process.started.wait(), "the start")
    machine.disk.fail_next_sync()
    with pytest.raises(StorageFailed):
        await process.bookie.tombstone(1)
    with pytest.raises(StorageFailed):
        await within(task, "the process' end")
    assert machine.transport._listeners == {}, "nobody is answered any more"


async def test_session_tasks_restart_after_errors_and_session_loss() -> None:
    machine = Machine()
    begun: list[object] = []

    async def part(client: object, bookie: object) -> None:
        begun.append(client)
        if len(begun) == 1:
            raise RuntimeError("a bug that must not take the service down")
        await asyncio.get_running_loop().create_future()

    async with machine.running(with_session=[part]):
        await until(lambda: len(begun) == 2, "the part begins anew")
        assert begun[0] is begun[1]
        machine.server.expire(machine.sessions[-1])
        await until(lambda: len(begun) == 3, "it lives with another session")
        assert begun[2] is not begun[1]


async def test_client_that_can_not_start_costs_a_session_and_not_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    begun: list[object] = []
    started = LedgerClient.start

    async def start(client: LedgerClient) -> None:
        if len(machine.sessions) == 1:
            raise RuntimeError("a bug")
        await started(client)

    async def part(client: object, bookie: object) -> None:
        begun.append(client)

    monkeypatch.setattr(LedgerClient, "start", start)
    async with machine.running(with_session=[part]) as process:
        await until(lambda: bool(begun), "the part begins with the second session")
        assert process.bookie.failed is None
        assert len(machine.sessions) == 2


async def test_data_loss_puts_existing_ledgers_into_limbo() -> None:
    """CHK-22: before anybody is served, and though the process crashes after it was noted."""
    machine = Machine()
    async with machine.running():
        pass
    for _ in range(3):
        await machine.ledger("b1")
    storage = machine.disk.open()
    storage.write(Changes(ledgers={2: LedgerRecord(master_key=KEY, limbo_cleared=7)}))
    await storage.sync()
    storage.write(Changes(records={(2, 0): record(2, 0)}))
    await storage.sync()
    machine.disk.lose_synced(1)
    # The metadata store is away: the loss is noted, and nobody is served.
    opened, machine.open_metadata = machine.open_metadata, _never  # type: ignore[method-assign]
    process = machine.process()
    task = asyncio.create_task(process.run())
    await until(lambda: bool(process.bookie.record.limbo_below), "the loss is noted")
    await until(lambda: BookieRecord.FromString(machine.disk.bookie_record or b"").limbo_below > 0, "durably")
    assert not machine.transport._listeners
    assert process.bookie.in_limbo(10**9)
    task.cancel()
    await asyncio.wait([task])
    machine.open_metadata = opened  # type: ignore[method-assign]
    async with machine.running() as process:
        assert process.bookie.storage.intact
        assert process.bookie.in_limbo(2), "what was cleared in an earlier limbo does not count"
        assert process.bookie.in_limbo(3)
        assert not process.bookie.in_limbo(4), "made later"
        later = await machine.ledger("b1")
        assert later == 4


async def _never() -> MemoryStore:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


async def test_only_a_tombstone_has_a_ledger_dropped() -> None:
    """CHK-26, the bookie's half: what the metadata store does not know is kept, counted and reported."""
    machine = Machine()
    async with machine.running() as process:
        ledger_id = await machine.ledger("b1", "b2")
        deleted = await machine.ledger("b1", "b2")
        lonely = await machine.ledger("b1")
        unexplained = 77
        await hold(machine, process, ledger_id, deleted, lonely, unexplained)
        await machine.ledgers.change(deleted, ledger_metadata.tombstone)
        await machine.ledgers.change(lonely, ledger_metadata.tombstone)
        await until(lambda: list(process.collector.unexplained) == [unexplained], "the ledger is counted")
        await until(lambda: process.bookie.is_deleted(deleted), "the tombstone is seen")

        async def off_the_list() -> bool:
            return (await machine.ledgers.read(deleted, fresh=True)).holders == ("b2",)

        await until(off_the_list, "it takes itself off")

        async def node_gone() -> bool:
            try:
                await machine.ledgers.read(lonely, fresh=True)
            except NoSuchLedger:
                return True
            return False

        await until(node_gone, "the last holder deletes the node")
        assert machine.disk.durable_entry_ids(deleted) == []
        assert (machine.disk.durable_ledger(deleted) or LedgerRecord()).deleted
        assert machine.disk.durable_entry_ids(ledger_id) == [0]
        assert machine.disk.durable_entry_ids(unexplained) == [0]


async def test_tombstone_is_durable_before_bookie_leaves_the_holders() -> None:
    """CHK-26, the bookie's half; and after a crash in between it goes on."""
    machine = Machine()
    async with machine.running() as process:
        ledger_id = await machine.ledger("b1", "b2")
        await hold(machine, process, ledger_id)
    storage = machine.disk.open()
    storage.write(Changes(dropped=[ledger_id], ledgers={ledger_id: LedgerRecord(KEY, deleted=True)}))
    await storage.sync()
    await machine.ledgers.change(ledger_id, ledger_metadata.tombstone)
    async with machine.running():

        async def off_the_list() -> bool:
            metadata = await machine.ledgers.read(ledger_id, fresh=True)
            assert metadata.state is LedgerState.TOMBSTONE
            return metadata.holders == ("b2",)

        await until(off_the_list, "it takes itself off")


async def test_tombstone_of_a_round_that_was_broken_off_is_waited_for() -> None:
    """CHK-26, the bookie's half: the next round finds the ledger deleted, but not on the disk yet."""
    clock = ManualClock()
    disk = slow_disk(clock)
    machine = Machine()
    ledger_id = await machine.ledger("b1", "b2")
    await machine.ledgers.change(ledger_id, ledger_metadata.tombstone)
    storage = disk.open()
    storage.write(Changes(records={(ledger_id, 0): record(ledger_id, 0)}, ledgers={ledger_id: LedgerRecord(KEY)}))
    bookie = Bookie("b1", storage, clock)
    collector = GarbageCollector(bookie, machine.clock, SeededRandomness(1))
    first = asyncio.create_task(collector.collect(machine.ledgers))
    await written(disk)
    first.cancel()
    await asyncio.wait([first])
    second = asyncio.create_task(collector.collect(machine.ledgers))
    for _ in range(200):
        await asyncio.sleep(0)
    assert (await machine.ledgers.read(ledger_id, fresh=True)).holders == ("b1", "b2")
    while not second.done():
        clock.advance(1)
        await asyncio.sleep(0)
    await second
    assert (await machine.ledgers.read(ledger_id, fresh=True)).holders == ("b2",)
    await bookie.close()


async def test_bookie_that_nobody_names_makes_itself_known() -> None:
    """CHK-26, the bookie's half: so a tombstone will wait for it."""
    machine = Machine()
    async with machine.running() as process:
        ledger_id = await machine.ledger("b2", "b3")
        await hold(machine, process, ledger_id)

        async def known() -> bool:
            return (await machine.ledgers.read(ledger_id, fresh=True)).former_bookies == ("b1",)

        await until(known, "it adds itself")
        await machine.ledgers.change(ledger_id, ledger_metadata.tombstone)
        await until(lambda: process.bookie.is_deleted(ledger_id), "it drops the ledger")


async def hold(machine: Machine, process: BookieProcess, *ledger_ids: int) -> None:
    """Entry 0 of each of these ledgers is on the bookie."""
    connection = machine.transport.connect(process.address)
    stream = connection.open_stream("add")
    for ledger_id in ledger_ids:
        await stream.send(add_request(ledger_id, [(0, record(ledger_id, 0))], KEY, recovery=False))
    await stream.finish()
    while await stream.receive() is not None:
        pass
    await connection.close()


def test_names_that_no_bookie_can_have() -> None:
    for name in ("", "..", "a/b", "a" * 101, "ä"):
        with pytest.raises(BookieRefused):
            Machine().process(name)
