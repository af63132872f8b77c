"""The data folder of a standalone, which one process locks.

    standalone.lock     locked while the process runs; contains its process id and URLs, for the errors of others
    metadata/  bookie/  the data of the metadata store and of the bookie

The kernel releases the lock when the process ends, also after kill -9.

**Ephemeral** folders are temporary, and deleted at the end. After kill -9 they remain: so each start deletes those of
its user that no process locks any more.
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
    """The folder is locked by another process, or can't be used."""


class DataFolder:
    """A locked folder."""

    def __init__(self, path: Path, file: int, *, ephemeral: bool) -> None:
        self.path = path
        self.ephemeral = ephemeral
        self._file = file

    @classmethod
    def open(cls, path: Path) -> DataFolder:
        """Create the folder if necessary, and lock it. Raise `FolderTaken`."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            return cls._lock(path, ephemeral=False)
        except OSError as error:
            raise FolderTaken(
                f"the folder {path} can't be used: {error.strerror}: use another one with --data"
            ) from error

    @classmethod
    def create_ephemeral(cls) -> DataFolder:
        """Create and lock a temporary folder. Raise `FolderTaken`."""
        for _ in range(_ATTEMPTS):
            try:
                return cls._lock(Path(tempfile.mkdtemp(prefix=_EPHEMERAL)), ephemeral=True)
            except FolderTaken:
                continue  # another process has just deleted it as abandoned
            except OSError as error:
                why = f"{error.strerror}: set TMPDIR to another folder"
                raise FolderTaken(f"no temporary folder can be created: {why}") from error
        raise FolderTaken(f"another process deletes all temporary folders that begin with {_EPHEMERAL}: stop it")

    @classmethod
    def _lock(cls, path: Path, *, ephemeral: bool) -> DataFolder:
        with fork_handling.opening:
            file = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            folder = cls(path, file, ephemeral=ephemeral)
            fork_handling.register(folder)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _describe_holder(path)
            folder.release_lock()
            raise FolderTaken(
                f"the folder {path} is in use by {holder}: stop it first, or use another folder with --data"
            ) from None
        except BaseException:
            folder.release_lock()
            raise
        if os.fstat(file).st_nlink == 0:
            folder.release_lock()
            raise FolderTaken(f"the folder {path} was deleted by another process: try again")
        folder.write_urls({})
        return folder

    def write_urls(self, urls: dict[str, str]) -> None:
        """Write the process id and the URLs into the lock file."""
        content = json.dumps({"pid": os.getpid(), **urls}).encode()
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, content, 0)

    def abandon_after_fork(self) -> None:
        """Release the lock in a forked child. The parent still holds it."""
        self.release_lock()

    def release_lock(self) -> None:
        file, self._file = self._file, _CLOSED
        if file != _CLOSED:
            os.close(file)

    def close(self) -> None:
        """Release the lock. An ephemeral folder is deleted before."""
        if self.ephemeral:
            shutil.rmtree(self.path, ignore_errors=True)
        self.release_lock()


def remove_abandoned() -> None:
    """Delete the ephemeral folders of processes that have ended."""
    for path in Path(tempfile.gettempdir()).glob(f"{_EPHEMERAL}*"):
        with contextlib.suppress(OSError, FolderTaken):
            # Only folders of this user, and no links to them. A folder without a lock file is just being created.
            about = path.lstat()
            if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and (path / _LOCK).is_file():
                DataFolder._lock(path, ephemeral=True).close()


def _describe_holder(path: Path) -> str:
    try:
        holder = json.loads((path / _LOCK).read_bytes())
        url = holder.get("grpc")
        return f"process {holder['pid']}" + (f", which serves {url}" if url else "")
    except (OSError, ValueError, KeyError, AttributeError):
        return "another process"
