"""How a cluster's processes are, as they say themselves and as the kernel does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from magnetar_cli.cluster.parts import BookiePart, Part, reasons_shown
from magnetar_cli.cluster.process import is_paused
from magnetar_cli.cluster.state import ClusterState

__all__ = ["RUNNING", "ClusterStatus", "PartStatus", "ledgers_in_limbo", "look"]

RUNNING = "running"
_CONNECTED: Final = "connected"


@dataclass(frozen=True, slots=True)
class PartStatus:
    """One process."""

    name: str
    # running, starting, no session, unhealthy, read-only, limbo, leaving, paused, stopped or dead
    state: str
    # Why, where it is not well and says so.
    reason: str = ""
    pid: int | None = None
    address: str = ""
    http: str = ""
    uptime_s: float | None = None
    memory_bytes: int | None = None
    ledgers: int | None = None
    disk_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    folder: str
    metadata: str
    parts: list[PartStatus] = field(default_factory=list)

    @property
    def well(self) -> bool:
        return all(part.state == RUNNING for part in self.parts)


def look(folder: Path, state: ClusterState, parts: Sequence[Part]) -> ClusterStatus:
    """Asks all of them at once: one that does not answer holds up nobody."""
    with ThreadPoolExecutor(max_workers=min(len(parts), 32) or 1) as asking:
        return ClusterStatus(str(folder), state.zookeeper.location, list(asking.map(_look_at, parts)))


def _look_at(part: Part) -> PartStatus:
    process = part.place.process
    where: dict[str, Any] = {
        "address": part.address if isinstance(part, BookiePart) else f"127.0.0.1:{part.ports[0]}",
        "http": part.http_address if isinstance(part, BookiePart) else "",
        "disk_bytes": _size_of(part.folder),
    }
    if process is None or not part.running:
        if part.place.stopped:
            return PartStatus(part.name, "stopped", **where)
        reason = "it was killed, or ended by itself" if process else "it was never started"
        return PartStatus(part.name, "dead", reason, **where)
    where |= {"pid": process.pid, **_of_the_kernel(process.pid)}
    if is_paused(process):
        return PartStatus(part.name, "paused", **where)
    if not isinstance(part, BookiePart):
        waits_for = part.waits_for()
        return PartStatus(part.name, "starting" if waits_for else RUNNING, waits_for, **where)
    state, reason, ledgers = _of_the_bookie(part)
    return PartStatus(part.name, state, reason, ledgers=ledgers, **where)


def _of_the_bookie(part: BookiePart) -> tuple[str, str, int | None]:
    """Its state, why, and how many ledgers it holds. Limbo and read-only are told of those that serve."""
    ready, said = part.ask("/ready")
    if ready is None:
        return ("unhealthy" if part.place.settled else "starting"), "it does not answer", None
    _, status = part.ask("/status")
    status = status if isinstance(status, dict) else {}
    ledgers = status.get("ledgers")
    if ready != 200:
        healthy, _ = part.ask("/health")
        state = "starting" if status.get("session", _CONNECTED) == _CONNECTED else "no session"
        return (state if healthy == 200 else "unhealthy"), reasons_shown(said), ledgers
    if left := ledgers_in_limbo(status):
        return "limbo", f"it may have lost entries of {left} ledgers, and looks after them", ledgers
    if status.get("read_only"):
        return "read-only", ", ".join(status.get("read_only_because", ())), ledgers
    return RUNNING, "", ledgers


def ledgers_in_limbo(status: dict[str, Any]) -> int | str | None:
    """By what a bookie says of itself; None: it lost nothing, or is through with it."""
    limbo = status.get("limbo") or {}
    if not limbo.get("below"):
        return None
    left: int | None = limbo.get("ledgers_left")
    return f"up to {limbo['below'] - 1}" if left is None else left or None


def _of_the_kernel(pid: int) -> dict[str, Any]:
    try:
        found = psutil.Process(pid)
        with found.oneshot():
            return {"uptime_s": time.time() - found.create_time(), "memory_bytes": found.memory_info().rss}
    except psutil.Error:
        return {}


def _size_of(folder: Path) -> int:
    """What its files take on the disk."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.lstat().st_blocks * 512
        except OSError:
            continue  # gone meanwhile
    return total
