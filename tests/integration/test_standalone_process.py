"""`StandaloneProcess` of magnetar_testing: what a test's author meets when something goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from magnetar_cli.child_environment import source_roots
from magnetar_testing.standalone_process import StandaloneProcess
from tests.running import until

_ENDS_AT_ONCE = """
import os, sys
from pathlib import Path
from magnetar_testing.standalone_process import StandaloneProcess

print(StandaloneProcess(Path(sys.argv[1]) / "data").start().pid, flush=True)
os._exit(3)
"""


def test_a_wrong_setting_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)exit status 78.*max_mesage_size"):
        StandaloneProcess(tmp_path / "data", max_mesage_size=1).start()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends it on Linux alone")
async def test_the_server_ends_when_the_test_s_process_has_ended(tmp_path: Path) -> None:
    paths = {"PYTHONPATH": os.pathsep.join(source_roots())}
    ended = subprocess.run(
        [sys.executable, "-c", _ENDS_AT_ONCE, tmp_path], env={**os.environ, **paths}, capture_output=True, text=True
    )
    assert ended.returncode == 3, ended.stderr
    pid = int(ended.stdout)
    await until(lambda: not _runs(pid), "the server has ended")


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
