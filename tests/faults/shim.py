"""Shims in C that make a disk misbehave for the process that they are preloaded into."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["shim"]


def shim(name: str, folder: Path) -> str:
    """The path of the compiled one. Skips the test where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler for the shim that makes the disk fail")
    built = folder / f"{name}.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", built, Path(__file__).with_name(f"{name}.c"), "-ldl"], check=True
    )
    return str(built)
