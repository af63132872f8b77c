"""A disk that fails while a flag file names how: the shim failing_disk.c, preloaded into a process."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["FAILURES", "fail_disk", "preloaded"]

# What the shim is told, and what it makes of the logs' files.
FAILURES = {"failed_sync": "sync", "full_disk": "full", "slow_sync": "slow"}


def fail_disk(flag: Path, how: str) -> None:
    """From now on, in processes whose environment names the flag."""
    flag.write_text(FAILURES[how])


def preloaded(folder: Path, flag: Path) -> dict[str, str]:
    """What the environment of a process needs so that its disk can fail. Skips the test where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler for the shim that makes the disk fail")
    shim, source = folder / "failing_disk.so", Path(__file__).with_name("failing_disk.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
    return {"LD_PRELOAD": str(shim), "FAILING_DISK": str(flag)}
