"""One process of a cluster: configured, started and asked.

A part knows its files, its command and how to tell that it is ready. Which of them runs, and what is written down about
that, is local_cluster.py's.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from magnetar_cli.cluster.ports import is_free
from magnetar_cli.cluster.process import is_running
from magnetar_cli.cluster.state import ClusterState, Launched
from magnetar_cli.source_roots import source_roots
from magnetar_wire.configuration import ENVIRONMENT_PREFIX

__all__ = ["Part"]

# The level comes after the time, in a line of a log of ours.
_FATAL: Final = re.compile(r"\S+ CRITICAL ")


class Part(ABC):
    """One process and its files."""

    def __init__(self, name: str, folder: Path, place: Launched) -> None:
        self.name = name
        self.folder = folder
        self.place = place

    @property
    def running(self) -> bool:
        return self.place.process is not None and is_running(self.place.process)

    @property
    @abstractmethod
    def log(self) -> Path:
        """Where its output goes."""

    @property
    @abstractmethod
    def command(self) -> Sequence[str]:
        """What starts it, and tells its process from all others."""

    @property
    @abstractmethod
    def address(self) -> str:
        """Where it serves."""

    @property
    @abstractmethod
    def ports(self) -> tuple[int, ...]:
        """Where it listens."""

    @abstractmethod
    def choose_ports(self, taken: Sequence[int]) -> None:
        """Others than now."""

    @abstractmethod
    def configure(self, state: ClusterState) -> None:
        """Writes its files anew."""

    @abstractmethod
    def waits_for(self) -> str:
        """What keeps it from being ready; empty: it is."""

    def environment(self) -> dict[str, str]:
        """Return this process's environment without settings: each part has its own, in its file."""
        others = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
        return {**others, "PYTHONPATH": os.pathsep.join([*source_roots(), *filter(None, [others.get("PYTHONPATH")])])}

    def port_lost(self) -> bool:
        """It has ended, and somebody else has a port of it."""
        return not self.running and not all(is_free(port) for port in self.ports)

    def last_words(self, lines: int = 15) -> str:
        """What it logged since it was started last: first what ended it, if it says so, then the end of the rest."""
        try:
            with self.log.open("rb") as file:
                file.seek(self.place.log_from)
                logged = file.read().decode(errors="replace").splitlines()
        except FileNotFoundError:
            logged = []
        fatal = [line for line in logged if _FATAL.match(line)]
        rest = [line for line in logged if not _FATAL.match(line)]
        return "\n".join([*fatal, *rest[-lines:]]) or "(nothing)"
