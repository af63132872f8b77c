"""A disk that another program has filled, on a file system that the test made."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).parents[2]
_ALONE = ["unshare", "--user", "--map-root-user", "--mount"]


@pytest.mark.slow
def test_bookie_on_a_disk_that_somebody_else_filled_is_opened_and_read(tmp_path: Path) -> None:
    """CHK-21: it can be read and fenced, also if the index has to be rebuilt, and nothing is lost."""
    mounted = ["sh", "-c", 'mount -t tmpfs -o size=40m none "$1"; shift; exec "$@"', "sh", str(tmp_path)]
    if (
        shutil.which("unshare") is None
        or subprocess.run(
            [*_ALONE, *mounted[:-1], str(tmp_path), "mountpoint", "-q", str(tmp_path)], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("no file system of its own can be mounted here")
    path = os.pathsep.join(str(_REPOSITORY / root) for root in ("protos", "metadata", "bookie", "deploy", "."))
    done = subprocess.run(
        [*_ALONE, *mounted, sys.executable, "-m", "tests.faults.full_disk_child", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=_REPOSITORY,
        env={**os.environ, "PYTHONPATH": path},
        timeout=100,
        check=False,
    )
    assert done.stdout == "all of it\n", done.stderr
