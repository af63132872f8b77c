"""A disk that fails while a flag file names how: the shim failing_disk.c, preloaded into a process.

With it goes power_loss.c, which is idle until `power_loss.watch_folder`.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["FAILURES", "fail_disk", "preloaded"]

# The shim's environment, and its names for the logs' files.
FAILURES = {"failed_sync": "sync", "full_disk": "full", "slow_sync": "slow"}
# And of the index's files.
_MORE = {"unreadable_index": "rot"}


def fail_disk(flag: Path, how: str) -> None:
    """From now on, in processes whose environment names the flag."""
    flag.write_text((FAILURES | _MORE)[how])


def preloaded(folder: Path, flag: Path) -> dict[str, str]:
    """What the environment of a process needs so that its disk can fail. Skips the test where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler for the shim that makes the disk fail")
    shims = []
    # In this order: a failure is seen by what keeps book of what is on the disk.
    for name in ("power_loss", "failing_disk"):
        shim, source = folder / f"{name}.so", Path(__file__).with_name(f"{name}.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", shim, source, "-ldl", "-lpthread"], check=True)
        shims.append(str(shim))
    return {"LD_PRELOAD": ":".join(shims), "FAILING_DISK": str(flag)}
