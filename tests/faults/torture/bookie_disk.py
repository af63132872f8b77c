"""The faults of a bookie's disk: the shim that makes it fail (failing_disk.c), and a flipped bit."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from magnetar_cli.cluster import ClusterError
from magnetar_wire.randomness import Randomness

__all__ = ["failing_disk", "flip_bit"]

_SOURCE = Path(__file__).parents[1] / "failing_disk.c"


def failing_disk(folder: Path) -> Path:
    """Return the library to preload; the first call builds it."""
    built = folder / "failing_disk.so"
    if not built.exists():
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            raise ClusterError("failing disks need a C compiler: gcc or cc")
        folder.mkdir(parents=True, exist_ok=True)
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", os.fspath(built), os.fspath(_SOURCE), "-ldl"]
        subprocess.run(command, check=True)
    return built


def flip_bit(data_folder: Path, chance: Randomness) -> str:
    """Flip a bit of the data of a stopped bookie. Return which; empty: it has stored nothing."""
    files = [path for path in sorted((data_folder / "records").glob("*.log")) if path.stat().st_size]
    if not files:
        return ""
    chosen, bit = chance.choice(files), chance.below(8)
    with chosen.open("r+b") as file:
        at = chance.below(file.seek(0, os.SEEK_END))
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ (1 << bit)]))
    return f"bit {bit} of byte {at} of {chosen.name}"
