"""What a type checker says about an application that uses the SDK."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3]
SAMPLE = Path(__file__).with_name("typed_sample.txt").read_text()


@pytest.mark.slow
def test_mypy_finds_the_planted_mistakes_and_nothing_else(tmp_path: Path) -> None:
    """Every name of the package has a type: a module-level `__getattr__` would give it any name, and the type Any."""
    (tmp_path / "sample.py").write_text(SAMPLE)
    command = ["-m", "mypy", "--config-file=", "--strict", "--follow-imports=silent", "--no-error-summary"]
    done = subprocess.run(
        [sys.executable, *command, "--cache-dir", str(tmp_path / "cache"), "sample.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": os.pathsep.join(str(PROJECT / root) for root in ("client", "protos"))},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert not done.stderr
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    found = [int(line.split(":")[1]) for line in errors]
    planted = [number for number, line in enumerate(SAMPLE.splitlines(), 1) if line.endswith("  # wrong")]
    assert found == planted, done.stdout
