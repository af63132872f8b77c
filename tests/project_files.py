"""The files of this project that count: those that git knows, and those not yet added."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

__all__ = ["project_files"]


def project_files(root: Path) -> Iterator[Path]:
    """Yield the files that exist, relative to the root and in order, without what git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in sorted(set(filter(None, listed.stdout.split("\0")))):
        if (root / name).is_file():
            yield Path(name)
