"""Real bookies, real gRPC, a real ZooKeeper: what is killed, paused, cut off or broken loses nothing acknowledged.

`python -m tests.faults.ledger_torture` does the like by seed, for as long as one likes.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from magnetar_bookie.errors import AddFailed, NotEnoughBookies
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata
from magnetar_bookie.ledger.ledger_writer import LedgerWriter
from magnetar_bookie.read.striping import Striping
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_cli.local_java import NoJava, find_java
from magnetar_metadata.location import open_metadata
from magnetar_wire.clock import SystemClock
from magnetar_wire.grpc_transport import GrpcTransport
from magnetar_wire.randomness import SystemRandomness
from tests.faults.ledger_history import payload
from tests.faults.ledger_torture import Torture
from tests.faults.ledger_workload import QUICK
from tests.faults.nemesis import ZOOKEEPER, Injection, Kind, Round
from tests.faults.torture_cluster import TortureCluster
from tests.running import until, within

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

STRIPING = Striping(3, 3, 2)


@pytest.fixture(autouse=True)
def _able() -> None:
    try:
        find_java()
    except NoJava as error:
        pytest.skip(str(error))
    if shutil.which("gcc") is None:
        pytest.skip("gcc is needed for failing disks")


async def test_no_persisted_entry_is_lost_under_faults(tmp_path: Path) -> None:
    """STO-4; CHK-1, CHK-10, CHK-21: writers and bookies are killed, paused, disconnected and get failing disks. At the
    end every acknowledged entry is there, once, in order and whole, on every bookie of its write quorum.
    """
    rounds = [
        # What any cluster must bear: every chain goes on.
        Round(
            True,
            (
                Injection(Kind.KILL, "b1", 0.0, 2.0),
                Injection(Kind.KILL_WRITER, "c1", 1.0, 0.0),
                Injection(Kind.PAUSE_WRITER, "c2", 0.5, 2.0),
            ),
            0.5,
        ),
        # What none can go on in.
        Round(
            False,
            (
                # First: restarted processes wait for it.
                Injection(Kind.RESTART_ZOOKEEPER, ZOOKEEPER, 0.0, 0.2),
                Injection(Kind.LOSE_ANSWERS, "b1", 0.0, 4.0),
                Injection(Kind.FAIL_SYNC, "b2", 0.5, 1.0),
                Injection(Kind.BREAK, "b3", 0.2, 2.0),
                Injection(Kind.CUT_METADATA, "b4", 0.0, 1.0),
                Injection(Kind.KILL_WRITER, "c2", 2.0, 0.0),
            ),
            0.5,
        ),
    ]

    plan = {"roll_entries": 150, "keep_ledgers": 4}
    # What was left behind is waited for in the end.
    quick: dict[str, Any] = {"intent_grace_period_seconds": 3.0, "lost_bookie_recovery_delay_seconds": 4.0}
    async with Torture(tmp_path, 1, 4, ["3/3/2", "4/3/2"], plan=plan, **quick) as torture:
        await torture.wait_running()
        for one in rounds:
            await torture.round(one)
        await torture.end()
    report = torture.report
    assert report.violations == []
    # One disk failed, and callers of that bookie noticed. Paused writers log that they stood still.
    mistakes = [line for line in report.mistakes if "StorageFailed" not in line and "stood still" not in line]
    assert mistakes == []
    assert report.verified == report.acknowledged > 500
    # Of each chain one that was ended in the middle, and one that went on.
    assert report.writer_runs >= 4


async def test_writes_continue_or_wait_with_reason_when_bookies_die(tmp_path: Path) -> None:
    """STO-1, with three bookies of which one dies, then two; STO-2 with a fourth, which replaces a dead one."""
    # A bookie that died is not tried again, however long it stays registered; one that reregisters is.
    options = QUICK.model_copy(update={"bookie_quarantine_time_seconds": 600.0})
    async with TortureCluster(tmp_path, 3) as cluster, _client(cluster, options) as client:
        whole = await _writer(client)
        await _add(whole, 20)
        victim, other, last = whole.metadata.last_fragment.bookies
        await _dies(cluster, client, victim)

        # One dead: the open ledger goes on, and lists it still; a new one is made with those that are there.
        await _add(whole, 20)
        assert whole.absent_bookies == [victim]
        assert victim in whole.metadata.last_fragment.bookies
        assert len(whole.metadata.fragments) == 1
        degraded = await _writer(client)
        assert sorted(degraded.metadata.last_fragment.bookies) == sorted([other, last])
        assert degraded.metadata.is_degraded
        await _add(degraded, 20)
        assert not degraded.should_roll

        # It is back: the ensemble is mended, and the degraded ledger is to be followed by a whole one.
        assert await cluster.start(victim, 30.0) == ""
        await until(lambda: whole.absent_bookies == [] and len(whole.metadata.fragments) == 2, "the ensemble is mended")
        assert whole.metadata.last_fragment.first_entry_id == 40
        await _add(whole, 20)
        await until(lambda: degraded.should_roll, "the degraded ledger wants to roll")
        await _closed(client, degraded, 20)

        # Two dead: adds fail, the ledger is closed at what was acknowledged; publishing waits, and logs for which
        # bookies.
        await _dies(cluster, client, victim)
        await _dies(cluster, client, other)
        with pytest.raises(NotEnoughBookies, match=f"{victim}|{other}"):
            await within(_add(whole, 20), "the end of adds that can't complete")
        assert set(whole.absent_bookies) == {victim, other}
        await _closed(client, whole, 60)
        with pytest.raises(NotEnoughBookies) as raised:
            await client.create(STRIPING, "a test")
        assert raised.value.reasons == {victim: "is not registered", other: "is not registered"}
        assert f"{victim} is not registered" in str(raised.value)
        waiting = asyncio.create_task(client.wait_for_bookies(STRIPING))
        await asyncio.sleep(0)
        assert not waiting.done()

        # One of them returns, and it goes on with two.
        assert await cluster.start(other, 30.0) == ""
        await within(waiting, "the end of waiting")
        two = await _writer(client)
        assert sorted(two.metadata.last_fragment.bookies) == sorted([other, last])
        await _add(two, 20)

        # All are there, and one more: who dies is replaced while writes go on.
        assert await cluster.start(victim, 30.0) == ""
        spare = await cluster.add()
        await until(lambda: two.should_roll and len(client.bookies.writable()) == 4, "all are there")
        await _closed(client, two, 20)
        mended = await _writer(client)
        dying = mended.metadata.last_fragment.bookies[0]
        (takes_over,) = {*cluster.names} - {*mended.metadata.last_fragment.bookies}
        adding = asyncio.create_task(_add(mended, 300))
        await until(lambda: mended.last_add_confirmed > 20, "it is being written to")
        await cluster.kill(dying)
        await within(adding, "all adds, none of which failed")
        await until(lambda: dying not in mended.metadata.last_fragment.bookies, "the dead one is replaced")
        assert takes_over in mended.metadata.last_fragment.bookies
        assert mended.absent_bookies == []
        assert spare in cluster.names
        await _closed(client, mended, 300)


@contextlib.asynccontextmanager
async def _client(cluster: TortureCluster, options: LedgerClientSettings) -> AsyncIterator[LedgerClient]:
    clock = SystemClock()
    store = await open_metadata(cluster.metadata(), clock)
    transport = GrpcTransport()
    client = LedgerClient(store, transport, clock, SystemRandomness(), options)
    try:
        await client.start()
        yield client
    finally:
        await client.close()
        await store.close()
        await transport.close()


async def _dies(cluster: TortureCluster, client: LedgerClient, name: str) -> None:
    """And everybody knows."""
    await cluster.kill(name)
    await until(lambda: name not in client.bookies.registered(), f"{name} is not registered any more")


async def _writer(client: LedgerClient) -> LedgerWriter:
    made, writer = await client.create(STRIPING, "a test")
    await client.ledgers.claim_ledger(made, f"/owners/{made.ledger_id}", lambda _: b"")
    return writer


def _entry(ledger_id: int, entry_id: int) -> bytes:
    return payload(f"ledger-{ledger_id}", entry_id, 500)


async def _add(writer: LedgerWriter, count: int) -> None:
    """One after the other, so that each knows what became of those before it. Raises `AddFailed`."""
    for _ in range(count):
        ids = writer.last_add_confirmed + 1
        try:
            assert await writer.add(_entry(writer.ledger_id, ids)) == ids
        except AddFailed:
            assert writer.last_add_confirmed == ids - 1
            raise


async def _closed(client: LedgerClient, writer: LedgerWriter, entries: int) -> None:
    """Close it; it has this many entries, which are read back."""
    metadata: LedgerMetadata = await writer.close()
    assert metadata.last_entry_id == entries - 1
    reader = await client.open(writer.ledger_id)
    read = [entry async for _, entry in reader.entries()]
    assert read == [_entry(writer.ledger_id, entry_id) for entry_id in range(entries)]
