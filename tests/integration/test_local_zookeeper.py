"""Local ZooKeeper servers end with what started them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar_cli.local_java import NoJava, find_java
from magnetar_metadata.errors import Unavailable
from magnetar_metadata.store import ABSENT
from magnetar_metadata.zookeeper import open_zookeeper
from magnetar_testing.local_zookeeper import LocalZooKeeper
from magnetar_wire.clock import SystemClock
from tests.child_process import ChildProcess
from tests.running import run, until

pytestmark = pytest.mark.slow

_REPOSITORY = Path(__file__).parents[2]
_STARTER = """
import sys, time
from pathlib import Path
from magnetar_testing.local_zookeeper import LocalZooKeeper
with LocalZooKeeper(Path(sys.argv[1])) as zookeeper:
    print(zookeeper.servers[0]._process.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _java() -> None:
    try:
        find_java()
    except NoJava as error:
        pytest.skip(str(error))


def test_servers_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    path = os.pathsep.join(str(_REPOSITORY / root) for root in ("protos", "metadata", "deploy"))
    command = [sys.executable, "-c", _STARTER, str(tmp_path)]
    with ChildProcess(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        assert _runs(server)
        parent.kill()
    run(until(lambda: not _runs(server), "the server has ended"))


def test_data_survives_a_kill(tmp_path: Path) -> None:
    async def put_and_kill(zookeeper: LocalZooKeeper) -> None:
        async with await open_zookeeper(zookeeper.hosts, SystemClock()) as store:
            await store.put("/stored", b"x", ABSENT)
            await asyncio.to_thread(zookeeper.servers[0].kill)
            zookeeper.servers[0].start()
            await asyncio.to_thread(zookeeper.wait_ready)

            async def back() -> bool:
                with contextlib.suppress(Unavailable):
                    return await store.get("/stored") is not None
                return False

            await until(back, "the node is read again")

    with LocalZooKeeper(tmp_path) as zookeeper:
        assert zookeeper.leader() is zookeeper.servers[0]
        run(put_and_kill(zookeeper))
    assert not any(server.running for server in zookeeper.servers)


def _runs(process: int) -> bool:
    """Whether it runs, and is no zombie that was not reaped."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
