"""What type checkers say about an application that uses the SDK."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3]
ROOTS = [str(PROJECT / root) for root in ("client", "protos")]
SAMPLE = Path(__file__).with_name("typed_sample.txt").read_text()
PLANTED = [number for number, line in enumerate(SAMPLE.splitlines(), 1) if line.endswith("  # wrong")]

pytestmark = pytest.mark.slow


def test_mypy_finds_the_planted_mistakes_and_nothing_else(tmp_path: Path) -> None:
    """Every name of the package has a type: a module-level `__getattr__` would give it any name, and the type Any."""
    (tmp_path / "sample.py").write_text(SAMPLE)
    command = ["-m", "mypy", "--config-file=", "--strict", "--follow-imports=silent", "--no-error-summary"]
    done = subprocess.run(
        [sys.executable, *command, "--cache-dir", str(tmp_path / "cache"), "sample.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": os.pathsep.join(ROOTS)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert not done.stderr
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    found = [int(line.split(":")[1]) for line in errors]
    assert found == PLANTED, done.stdout


def test_pyright_finds_the_planted_mistakes_and_nothing_else(tmp_path: Path) -> None:
    """By the build of pyright that needs nothing but pip, with pyright's own settings."""
    (tmp_path / "sample.py").write_text(SAMPLE)
    settings = {"typeCheckingMode": "standard", "extraPaths": ROOTS, "include": ["sample.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    found = [one for one in json.loads(done.stdout)["generalDiagnostics"] if one["severity"] == "error"]
    assert sorted({one["range"]["start"]["line"] + 1 for one in found}) == PLANTED, found
