"""One process of a local cluster: its files, its command, its ports, and whether it is ready.

local_cluster.py decides which parts run, and stores their state.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from magnetar_cli.child_environment import server_environment
from magnetar_cli.cluster.ports import is_free
from magnetar_cli.cluster.process import is_running
from magnetar_cli.cluster.state import ClusterState, ProcessRecord

__all__ = ["Part"]

# In a line of Magnetar's logs the level comes after the time.
_FATAL: Final = re.compile(r"\S+ CRITICAL ")
_LOG_LINES: Final = 15


class Part(ABC):
    """A process of the cluster, running or not."""

    def __init__(self, name: str, folder: Path, record: ProcessRecord) -> None:
        self.name = name
        self.folder = folder
        # Stored in the cluster's state.
        self.record = record

    @property
    def running(self) -> bool:
        return self.record.process is not None and is_running(self.record.process)

    @property
    @abstractmethod
    def log(self) -> Path:
        """The file with the process's output."""

    @property
    @abstractmethod
    def command(self) -> Sequence[str]:
        """The command of the process. No other process has the same one."""

    @property
    @abstractmethod
    def address(self) -> str:
        """The address for clients."""

    @property
    @abstractmethod
    def ports(self) -> tuple[int, ...]:
        """All ports at which it listens."""

    @abstractmethod
    def choose_ports(self, taken: Sequence[int]) -> None:
        """Choose new ports, none of which is in `taken`."""

    @abstractmethod
    def configure(self, state: ClusterState) -> None:
        """Write its configuration files."""

    @abstractmethod
    def find_unready_reason(self) -> str:
        """Return why it is not ready, or an empty string if it is."""

    def environment(self) -> dict[str, str]:
        return server_environment()

    def has_lost_port(self) -> bool:
        """Return whether it has ended, and another process uses one of its ports."""
        return not self.running and not all(is_free(port) for port in self.ports)

    def read_log_end(self) -> str:
        """Return the log since its last start: all fatal errors, and the last other lines."""
        try:
            with self.log.open("rb") as file:
                file.seek(self.record.log_from)
                logged = file.read().decode(errors="replace").splitlines()
        except FileNotFoundError:
            logged = []
        fatal = [line for line in logged if _FATAL.match(line)]
        rest = [line for line in logged if not _FATAL.match(line)]
        return "\n".join([*fatal, *rest[-_LOG_LINES:]]) or "(nothing)"
