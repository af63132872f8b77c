"""A disk that loses what a sync failed to write, as Linux does: the pages are clean from then on, and read as written.

Written data stays readable. The durable state is held apart: it has the synced data, and a sync adds what was written
since the last sync, whether that one failed or not.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

__all__ = ["ForgetfulDisk"]


class ForgetfulDisk:
    """Of the log's files. Names and sizes count as durable at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails = False
        # File → its pieces that are not synced: offset, bytes.
        self._unsynced: dict[str, list[tuple[int, bytes]]] = {}
        self._synced: dict[str, bytearray] = {}
        self._writev, self._pwrite, self._fsync = os.writev, os.pwrite, os.fsync
        monkeypatch.setattr(os, "writev", self._write_at_the_end)
        monkeypatch.setattr(os, "pwrite", self._write_at)
        monkeypatch.setattr(os, "fsync", self._sync)
        monkeypatch.setattr(os, "fdatasync", self._sync)

    def moved(self, folder: Path, to: Path) -> None:
        """The disk's part of a copy: what is not durable in the one is not in the other."""
        for name in [name for name in self._synced if name.startswith(f"{folder}/")]:
            self._synced[f"{to}{name.removeprefix(str(folder))}"] = bytearray(self._synced[name])

    def lose_power(self, folder: Path) -> None:
        """The log's files hold what was synced."""
        for path in folder.glob("*.log"):
            held = bytes(self._synced.get(str(path), b""))
            path.write_bytes(held[: path.stat().st_size].ljust(path.stat().st_size, b"\0"))

    def _write_at_the_end(self, file: int, pieces: Sequence[Any]) -> int:
        offset = os.fstat(file).st_size
        written = self._writev(file, pieces)
        self._note(file, offset, b"".join(map(bytes, pieces))[:written])
        return written

    def _write_at(self, file: int, data: bytes, offset: int) -> int:
        written = self._pwrite(file, data, offset)
        self._note(file, offset, bytes(data[:written]))
        return written

    def _note(self, file: int, offset: int, data: bytes) -> None:
        self._unsynced.setdefault(_name(file), []).append((offset, data))

    def _sync(self, file: int) -> None:
        self._fsync(file)
        name = _name(file)
        pieces = self._unsynced.pop(name, [])
        if self.fails and name.endswith(".log"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        synced = self._synced.setdefault(name, bytearray())
        for offset, data in pieces:
            synced.extend(b"\0" * (offset + len(data) - len(synced)))
            synced[offset : offset + len(data)] = data


def _name(file: int) -> str:
    return os.readlink(f"/proc/self/fd/{file}")
