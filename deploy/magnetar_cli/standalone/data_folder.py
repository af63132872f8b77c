"""The folder of a standalone: one process has it at a time, and whoever comes second learns which one.

    standalone.lock     locked as long as the process lives; in it stands who that is
    metadata/  bookie/  what the parts keep

The lock is the open file's, and goes with the process however that ends.

**Ephemeral** folders are temporary ones that go at the end. After kill -9 nobody took them away: so each start looks
for those of its user that nobody has locked any more, and does it then.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Final

from magnetar_metadata.locked_folder import fork_handling

__all__ = ["DataFolder", "FolderTaken", "remove_abandoned"]

_LOCK: Final = "standalone.lock"
_EPHEMERAL: Final = "magnetar-ephemeral-"
_CLOSED: Final = -1
_ATTEMPTS: Final = 10


class FolderTaken(Exception):
    """Another process has it, or it can't be used."""


class DataFolder:
    """The locked folder."""

    def __init__(self, path: Path, file: int, *, ephemeral: bool) -> None:
        self.path = path
        self.ephemeral = ephemeral
        self._file = file

    @classmethod
    def open(cls, path: Path) -> DataFolder:
        """Makes it if it is not there, and locks it. Raises `FolderTaken`."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            return cls._locked(path, ephemeral=False)
        except OSError as error:
            raise FolderTaken(
                f"the folder {path} can't be used: {error.strerror}: use another one with --data"
            ) from error

    @classmethod
    def ephemeral_one(cls) -> DataFolder:
        """A temporary one. Raises `FolderTaken`."""
        for _ in range(_ATTEMPTS):
            try:
                return cls._locked(Path(tempfile.mkdtemp(prefix=_EPHEMERAL)), ephemeral=True)
            except FolderTaken:
                continue  # somebody who takes abandoned ones away came between
            except OSError as error:
                why = f"{error.strerror}: set TMPDIR to another folder"
                raise FolderTaken(f"no temporary folder can be created: {why}") from error
        raise FolderTaken(f"another process deletes all temporary folders that begin with {_EPHEMERAL}: stop it")

    @classmethod
    def _locked(cls, path: Path, *, ephemeral: bool) -> DataFolder:
        with fork_handling.opening:
            file = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            folder = cls(path, file, ephemeral=ephemeral)
            fork_handling.register(folder)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(path)
            folder.let_go()
            raise FolderTaken(
                f"the folder {path} is in use by {holder}: stop it first, or use another folder with --data"
            ) from None
        except BaseException:
            folder.let_go()
            raise
        if os.fstat(file).st_nlink == 0:
            folder.let_go()
            raise FolderTaken(f"the folder {path} was deleted by another process: try again")
        folder.tell({})
        return folder

    def tell(self, urls: dict[str, str]) -> None:
        """Whoever finds the folder locked reads this."""
        said = json.dumps({"pid": os.getpid(), **urls}).encode()
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, said, 0)

    def abandon_after_fork(self) -> None:
        """The lock is the parent's alone."""
        self.let_go()

    def let_go(self) -> None:
        """Gives up the lock."""
        file, self._file = self._file, _CLOSED
        if file != _CLOSED:
            os.close(file)

    def close(self) -> None:
        """What is in an ephemeral one goes, before the lock does."""
        if self.ephemeral:
            shutil.rmtree(self.path, ignore_errors=True)
        self.let_go()


def remove_abandoned() -> None:
    """Ephemeral folders whose process is gone."""
    for path in Path(tempfile.gettempdir()).glob(f"{_EPHEMERAL}*"):
        with contextlib.suppress(OSError, FolderTaken):
            # Ours, and no link that somebody put there to something of ours. One without a lock is being made.
            about = path.lstat()
            if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and (path / _LOCK).is_file():
                DataFolder._locked(path, ephemeral=True).close()


def _holder(path: Path) -> str:
    try:
        said = json.loads((path / _LOCK).read_bytes())
        where = said.get("grpc")
        return f"process {said['pid']}" + (f", which serves {where}" if where else "")
    except (OSError, ValueError, KeyError, AttributeError):
        return "another process"
