"""What the cluster is made of: ZooKeeper and bookies, each as a process that is configured, started and asked.

A part knows its files, its command and how to tell that it is ready. Which of them runs, and what is written down about
that, is local_cluster.py's.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from magnetar_cli.cluster.bookie_settings import write_settings
from magnetar_cli.cluster.ports import LOOPBACK, free_port, is_free
from magnetar_cli.cluster.process import is_running
from magnetar_cli.cluster.state import BookieState, ClusterState, Launched
from magnetar_cli.local_zookeeper import configure_server, mode_at, server_command
from magnetar_wire.configuration import ENVIRONMENT_PREFIX

__all__ = ["BOOKIE_COMMAND", "BookiePart", "Part", "ZooKeeperPart", "ask_http", "reasons_shown"]

BOOKIE_COMMAND: Final = (sys.executable, "-m", "magnetar_cli", "bookie")
_ANSWER_S: Final = 2.0
# The level comes after the time, in a line of a bookie's log.
_FATAL: Final = re.compile(r"\S+ CRITICAL ")
_OURS: Final = ("magnetar_protos", "magnetar_wire", "magnetar_metadata", "magnetar_bookie", "magnetar_cli")
_MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024


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
        """Ours. But options come from the part's file alone, or a variable would be every bookie's."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
        return {**kept, "PYTHONPATH": os.pathsep.join([*_source_roots(), *filter(None, [kept.get("PYTHONPATH")])])}

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


class ZooKeeperPart(Part):
    def __init__(self, folder: Path, state: ClusterState) -> None:
        super().__init__("zookeeper", folder / "zookeeper", state.zookeeper)
        self._state = state.zookeeper

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def command(self) -> Sequence[str]:
        return server_command(self.folder)

    @property
    def ports(self) -> tuple[int, ...]:
        return (self._state.port,)

    def choose_ports(self, taken: Sequence[int]) -> None:
        self._state.port = free_port(taken)

    def configure(self, state: ClusterState) -> None:
        configure_server(self.folder, self._state.port)

    def waits_for(self) -> str:
        return "" if mode_at(self._state.port) else "it does not serve yet"


class BookiePart(Part):
    def __init__(self, folder: Path, name: str, bookie: BookieState, command: Sequence[str]) -> None:
        super().__init__(name, folder / "bookies" / name, bookie)
        self.bookie = bookie
        self._command = command

    @property
    def log(self) -> Path:
        return self.folder / "bookie.log"

    @property
    def settings_file(self) -> Path:
        return self.folder / "bookie.toml"

    @property
    def command(self) -> Sequence[str]:
        return [*self._command, "--config", str(self.settings_file)]

    @property
    def ports(self) -> tuple[int, ...]:
        return (self.bookie.port, self.bookie.http_port)

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.bookie.port}"

    @property
    def http_address(self) -> str:
        return f"{LOOPBACK}:{self.bookie.http_port}"

    def choose_ports(self, taken: Sequence[int]) -> None:
        self.bookie.port = free_port(taken)
        self.bookie.http_port = free_port([*taken, self.bookie.port])

    def configure(self, state: ClusterState) -> None:
        own = {
            "bookie_id": self.name,
            "data_folder": str(self.folder / "data"),
            "metadata": state.zookeeper.location,
            "listen_address": self.address,
            "http_address": self.http_address,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        write_settings(self.settings_file, {**state.settings, **self.bookie.settings, **own})

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **self.bookie.environment}

    def waits_for(self) -> str:
        status, answer = self.ask("/ready")
        if status == 200:
            return ""
        return "it does not answer yet" if status is None else reasons_shown(answer)

    def ask(self, path: str, method: str = "GET", body: Any = None) -> tuple[int | None, Any]:
        return ask_http(self.http_address, path, method, body)


def ask_http(address: str, path: str, method: str = "GET", body: Any = None) -> tuple[int | None, Any]:
    """The status and what was answered, as JSON if it is that, else as text; None: there was no answer."""
    connection = http.client.HTTPConnection(address, timeout=_ANSWER_S)
    try:
        data = None if body is None else json.dumps(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        text = answer.read(_MAX_ANSWER_BYTES).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return None, None
    finally:
        connection.close()
    try:
        return answer.status, json.loads(text)
    except ValueError:
        return answer.status, text


def reasons_shown(answer: Any) -> str:
    """Why a bookie is not ready or healthy, as it said."""
    if isinstance(answer, dict) and isinstance(answer.get("reasons"), list):
        return "; ".join(map(str, answer["reasons"]))
    return f"it is not ready: {str(answer).strip()[:200]}"


def _source_roots() -> list[str]:
    """So that a process imports what this one does, wherever that was found."""
    roots = []
    for package in _OURS:
        found = importlib.util.find_spec(package)
        roots += [str(Path(place).parent) for place in (found.submodule_search_locations or ())] if found else []
    return list(dict.fromkeys(roots))
