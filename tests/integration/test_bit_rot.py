"""Bit rot on the disk of one of three bookies, as processes of the operating system, is found and mended."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.read.record import extract_entry
from magnetar_bookie.read.striping import Striping
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_cli.local_java import NoJava, find_java
from magnetar_metadata.location import open_metadata
from magnetar_testing.local_zookeeper import LocalZooKeeper
from magnetar_wire.clock import SystemClock
from magnetar_wire.grpc_transport import GrpcTransport
from magnetar_wire.process.exit_status import ExitStatus
from magnetar_wire.randomness import SystemRandomness
from tests.bookie_server import BookieServer
from tests.running import run, until

pytestmark = pytest.mark.slow

_ENTRIES = 200


def payload(entry_id: int) -> bytes:
    return b"entry %06d " % entry_id + b"." * 1000


def rot(folder: Path, entry_ids: list[int]) -> int:
    """Flip a bit in the payload of each of the entries in the folder's files; return how many there were."""
    flipped = 0
    # In the file, while the bookie has the file open.
    for path in sorted(folder.rglob("*.log")):
        content = path.read_bytes()
        for entry_id in entry_ids:
            at = content.find(payload(entry_id))
            if at >= 0:
                with path.open("r+b") as file:
                    file.seek(at + 100)
                    file.write(bytes([content[at + 100] ^ 1]))
                flipped += 1
    return flipped


def rot_index(folder: Path) -> int:
    """Flips bits all over the files of the index; how many files there were."""
    files = sorted(folder.rglob("*.sst"))
    for path in files:
        content = bytearray(path.read_bytes())
        for at in range(20, len(content), 97):
            content[at] ^= 4
        path.write_bytes(content)
    return len(files)


def test_rotten_records_are_found_and_repaired_from_replica(tmp_path: Path) -> None:
    """CHK-28: a scrubber finds damage that no reader met, and it is repaired; STO-2: auto-recovery copies the entry
    again.

    CHK-22: if a rotten index hides what was lost, the bookie restarts in limbo, and leaves it again.
    """
    try:
        find_java()
    except NoJava as error:
        pytest.skip(str(error))
    settings: dict[str, Any] = {
        "scrub_interval_seconds": 1,
        "rw_rereplicate_backoff_seconds": 0.2,
        # Only the scrubber finds it.
        "auditor_scan_interval_seconds": 1e9,
    }
    with LocalZooKeeper(tmp_path / "zookeeper") as zookeeper:
        location = f"zookeeper://{zookeeper.hosts}/magnetar"
        servers = [BookieServer(tmp_path / name, location, name) for name in ("b1", "b2", "b3")]

        async def body() -> None:
            for server in servers:
                server.spawn(**settings)
            store = await open_metadata(location, SystemClock())
            patient = LedgerClientSettings(add_entry_timeout_seconds=60)
            client = LedgerClient(store, GrpcTransport(), SystemClock(), SystemRandomness(), patient)
            await client.start()
            try:
                await until(lambda: len(client.bookies.registered()) == 3, "all bookies are registered")
                made, writer = await client.create(Striping(3, 3, 3), "a test")
                await client.ledgers.claim_ledger(made, "/owner", lambda _: b"mine")
                await asyncio.gather(*(writer.add(payload(entry_id)) for entry_id in range(_ENTRIES)))
                await writer.close()
                rotten = servers[1]
                rotted = list(range(3, _ENTRIES, 17))
                assert rot(rotten.data, rotted) == len(rotted)

                await until(lambda: rotten.serves_at() != "", "it logs its address")

                async def mended() -> bool:
                    found = await rotten.read(made.ledger_id, _ENTRIES - 1)
                    return all(one in found and extract_entry(found[one]) == payload(one) for one in rotted)

                await until(mended, "the rotten records are whole again")
                assert "of ledger 1 are damaged" in rotten.output
                assert all("is damaged here" not in server.output for server in servers if server is not rotten)
                await rotten.http_up()
                status = await rotten.status()
                assert status["damaged_records_met"] >= 1
                assert status["limbo"]["below"] == 0
                assert await rotten.stop() == ExitStatus.ENDED
                assert rot_index(rotten.data) >= 1
                process = rotten.spawn(**settings)
                await until(lambda: process.poll() is not None or rotten.serves_at() != "", "it has met the damage")
                if process.poll() is not None:
                    assert process.returncode == ExitStatus.DISK_FAILED
                    rotten.spawn(**settings)
                    await until(lambda: rotten.serves_at() != "", "it serves")

                async def out_of_limbo() -> bool:
                    limbo = (await rotten.status())["limbo"]
                    assert limbo["below"] > made.ledger_id
                    return bool(limbo["ledgers_left"] == 0)

                await rotten.http_up()
                await until(out_of_limbo, "it is out of limbo")
                found = await rotten.read(made.ledger_id, _ENTRIES - 1)
                assert [extract_entry(found[one]) for one in range(_ENTRIES)] == [
                    payload(one) for one in range(_ENTRIES)
                ]
            finally:
                await client.close()
                await store.close()
                for server in servers:
                    server.close()

        run(body(), 110)
