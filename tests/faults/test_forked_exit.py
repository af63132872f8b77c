"""The exit of a process that was forked while its parent had a database open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from magnetar_cli.child_environment import source_roots
from tests.guide import PROJECT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a forked process must end by os._exit"),
]

# Each has been written to: RocksDB starts its threads when they have something to do.
_LEDGERS = """
from magnetar_bookie.storage.rocksdb import open_rocksdb
from tests.faults.forking_storage_child import write

async def open_written():
    storage = await open_rocksdb(Path(sys.argv[1]))
    await write(storage, 0)
    return storage
"""
_METADATA = """
from tests.faults.forking_child import open_with_a_node

async def open_written():
    return await open_with_a_node(sys.argv[1])
"""
_FORK = """
runner = asyncio.Runner()
database = runner.run(open_written())
child = os.fork()
if child == 0:
    print("the child ends", flush=True)
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("opening", [_LEDGERS, _METADATA], ids=["ledgers", "metadata"])
def test_a_forked_process_ends_with_its_own_status(tmp_path: Path, opening: str) -> None:
    """Python's end is followed by the destructors of libraries: RocksDB's would join threads that the child lacks."""
    program = f"import asyncio, os, sys\nfrom pathlib import Path\n{opening}{_FORK}"
    ended = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "data"],
        env={"PYTHONPATH": ":".join([*source_roots(), str(PROJECT)])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.split("\n")[:2] == ["the child ends", "3"]
