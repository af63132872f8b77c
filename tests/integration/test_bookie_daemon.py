"""`magnetar bookie` as a process of the operating system: its start, its signals, its failures, its HTTP."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar_protos.ledger_pb2 import Status
from magnetar_wire.process.exit_status import ExitStatus
from tests.bookie_server import BookieServer, Load
from tests.faults.shim import shim
from tests.http_client import ask_json
from tests.running import until

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BookieServer]:
    with BookieServer(tmp_path / "b1") as one:
        yield one


async def test_graceful_stop_and_kill_9_lose_no_synced_entry(server: BookieServer) -> None:
    """CHK-21: SIGTERM under load drains, with the exit status 0; kill -9 loses nothing either, and is no limbo."""
    await server.start()
    loads = [Load(server, ledger_id) for ledger_id in (1, 2, 3)]
    await until(lambda: all(len(load.acknowledged) > 300 for load in loads), "much was added")
    assert await server.stop() == ExitStatus.ENDED, server.output
    for load in loads:
        await load.ended()
        assert set(load.refusals) <= {Status.READ_ONLY}
    await server.start()
    for load in loads:
        await load.whole()
    assert (await server.status())["limbo"]["below"] == 0
    more = [Load(server, ledger_id) for ledger_id in (4, 5)]
    await until(lambda: all(len(load.acknowledged) > 300 for load in more), "much was added")
    await server.kill()
    for load in more:
        await load.ended()
    await server.start()
    for load in (*loads, *more):
        await load.whole()
    status = await server.status()
    assert status["limbo"]["below"] == 0
    assert status["pid"] == (server.process.pid if server.process else None)
    # These ledgers are not in the metadata store.
    await until(lambda: "unknown to the metadata store" in server.output, "they are reported")


async def test_a_wiped_disk_a_folder_in_use_and_a_bad_configuration_are_refused(server: BookieServer) -> None:
    """CHK-23: a wiped bookie does not start under its old name; the error says what to do."""
    await server.start()
    again = BookieServer(server.folder.parent / "again", bookie_id="b2")
    again.data = server.data
    again.spawn()
    with again:
        assert await again.ended() == ExitStatus.REFUSED
        assert "in use by another process" in again.output
    assert await server.stop() == ExitStatus.ENDED
    again.spawn(metadata=server.metadata)
    with again:
        assert await again.ended() == ExitStatus.REFUSED
        assert "start it with the bookie_id" in again.output.splitlines()[-1]
    shutil.rmtree(server.data)
    server.spawn()
    assert await server.ended() == ExitStatus.REFUSED
    assert "Decommission it" in server.output.splitlines()[-1]
    server.spawn(metadata="zookeeper://", listen_adress="x")
    assert await server.ended() == ExitStatus.REFUSED
    assert "did you mean 'listen_address'" in server.output
    assert "it has no server" in server.output


async def test_manual_read_only_mode_survives_restart(server: BookieServer) -> None:
    """STO-2: a bookie can be set read-only."""
    await server.start()
    assert await server.add(1, 0) == [(0, Status.OK)]
    code, _ = await ask_json(server.http, "/read-only", "POST", {"read_only": True})
    assert code == 200
    assert await server.add(1, 1) == [(1, Status.READ_ONLY)]
    await server.kill()
    await server.start()
    assert (await server.status())["read_only_because"] == ["an operator requested it"]
    assert await server.add(1, 0, 1) == [(0, Status.OK), (1, Status.READ_ONLY)]
    await ask_json(server.http, "/read-only", "POST", {"read_only": False})
    assert await server.add(1, 1) == [(1, Status.OK)]


async def test_a_failed_fsync_ends_the_process_and_nothing_unsynced_was_acknowledged(
    server: BookieServer, tmp_path: Path
) -> None:
    """CHK-21: a failed fsync ends the process, with a status of its own, and a restart goes on."""
    flag = tmp_path / "flag"

    await server.start({"LD_PRELOAD": shim("failing_disk", tmp_path), "FAILING_DISK": str(flag)})
    load = Load(server, 1)
    await until(lambda: len(load.acknowledged) > 100, "much was added")
    flag.write_text("sync")
    assert await server.ended() == ExitStatus.DISK_FAILED
    assert "the disk of bookie b1 failed" in server.output.splitlines()[-1]
    await load.ended()
    await server.start()
    await load.whole()


async def test_hung_fsync_fails_health_check_and_does_not_block_shutdown(server: BookieServer, tmp_path: Path) -> None:
    """The health is true: 503 while a sync hangs, 200 when it goes on; ending takes a bounded time all the same."""
    flag = tmp_path / "flag"
    environment = {"HANGING_DISK": str(flag)}

    async def healthy() -> bool:
        code, health = await ask_json(server.http, "/health")
        assert (code == 200) is health["healthy"]
        return bool(health["healthy"])

    async def sick() -> bool:
        return not await healthy()

    environment["LD_PRELOAD"] = shim("hanging_disk", tmp_path)
    await server.start(environment, health_max_sync_seconds=0.5, drain_timeout_seconds=0.5, close_timeout_seconds=0.5)
    load = Load(server, 1)
    await until(lambda: len(load.acknowledged) > 100, "much was added")
    assert await healthy()
    flag.touch()
    await until(sick, "the health reports that a sync hangs")
    flag.unlink()
    await until(healthy, "it has recovered")
    flag.touch()
    await until(sick, "the health reports that a sync hangs")
    server.signal(signal.SIGTERM)
    assert await server.ended() == ExitStatus.DISK_FAILED
    await load.ended()
    flag.unlink()
    await server.start()
    await load.whole()


async def test_a_second_signal_ends_it_at_once(server: BookieServer, tmp_path: Path) -> None:
    flag = tmp_path / "flag"

    await server.start({"HANGING_DISK": str(flag), "LD_PRELOAD": shim("hanging_disk", tmp_path)})
    flag.touch()
    adding = asyncio.create_task(server.add(1, 0))

    async def in_line() -> bool:
        return int((await server.status())["pending_entries"]) == 1

    await until(in_line, "the add is in flight")
    server.signal(signal.SIGINT)
    await until(lambda: "shutting down gracefully" in server.output, "it has heard the first one")

    async def ended() -> bool:
        # What comes in the same moment as the first counts as that one.
        server.signal(signal.SIGTERM)
        return server.process is not None and server.process.poll() is not None

    await until(ended, "it has ended")
    assert await server.ended() == 128 + signal.SIGTERM
    adding.cancel()
    await asyncio.wait([adding])
