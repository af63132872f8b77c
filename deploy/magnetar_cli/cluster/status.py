"""How a cluster's processes are, as they say themselves and as the kernel does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from magnetar_cli.cluster.daemon_parts import BookiePart, BrokerPart, DaemonPart
from magnetar_cli.cluster.part import Part
from magnetar_cli.cluster.process import is_paused
from magnetar_cli.cluster.state import ClusterState
from magnetar_cli.http_asking import reasons_shown

__all__ = ["RUNNING", "ClusterStatus", "PartStatus", "ledgers_in_limbo", "look", "pulsar_url_of", "service_url_of"]

RUNNING = "running"
_CONNECTED: Final = "connected"


@dataclass(frozen=True, slots=True)
class PartStatus:
    """One process."""

    name: str
    # zookeeper, bookie or broker
    kind: str
    # running, starting, no session, unhealthy, read-only, limbo, leaving, paused, stopped or dead
    state: str
    # Why, where it is not well and says so.
    reason: str = ""
    pid: int | None = None
    address: str = ""
    # For clients of Pulsar's protocol.
    pulsar: str = ""
    http: str = ""
    uptime_s: float | None = None
    memory_bytes: int | None = None
    ledgers: int | None = None
    # That are loaded, and the bundles that it owns.
    topics: int | None = None
    bundles: int | None = None
    disk_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    folder: str
    metadata: str
    # For clients; empty: there is no broker.
    service_url: str = ""
    # For Pulsar's clients.
    pulsar_url: str = ""
    parts: list[PartStatus] = field(default_factory=list)

    @property
    def well(self) -> bool:
        return all(part.state == RUNNING for part in self.parts)


def look(folder: Path, state: ClusterState, parts: Sequence[Part]) -> ClusterStatus:
    """Asks all of them at once: one that does not answer holds up nobody."""
    brokers = [part for part in parts if isinstance(part, BrokerPart)]
    with ThreadPoolExecutor(max_workers=min(len(parts), 32) or 1) as asking:
        return ClusterStatus(
            str(folder),
            state.zookeeper.location,
            service_url_of(brokers),
            pulsar_url_of(brokers),
            list(asking.map(_look_at, parts)),
        )


def service_url_of(brokers: Sequence[BrokerPart]) -> str:
    """Any of them tells a client who serves a topic. Empty: there is none."""
    return f"magnetar://{','.join(part.address for part in brokers)}" if brokers else ""


def pulsar_url_of(brokers: Sequence[BrokerPart]) -> str:
    """The same for Pulsar's clients."""
    return f"pulsar://{','.join(part.pulsar_address for part in brokers)}" if brokers else ""


def _look_at(part: Part) -> PartStatus:
    process = part.place.process
    where: dict[str, Any] = {
        "kind": part.kind.name if isinstance(part, DaemonPart) else "zookeeper",
        "address": part.address,
        "pulsar": part.pulsar_address if isinstance(part, BrokerPart) else "",
        "http": part.http_address if isinstance(part, DaemonPart) else "",
        "disk_bytes": _size_of(part.folder),
    }
    if process is None or not part.running:
        if part.place.stopped:
            return PartStatus(part.name, state="stopped", **where)
        reason = "it was killed, or ended unexpectedly" if process else "it was never started"
        return PartStatus(part.name, state="dead", reason=reason, **where)
    where |= {"pid": process.pid, **_of_the_kernel(process.pid)}
    if is_paused(process):
        return PartStatus(part.name, state="paused", **where)
    if isinstance(part, BookiePart):
        where |= _of_the_bookie(part)
    elif isinstance(part, BrokerPart):
        where |= _of_the_broker(part)
    else:
        waits_for = part.waits_for()
        where |= {"state": "starting" if waits_for else RUNNING, "reason": waits_for}
    return PartStatus(part.name, **where)


def _of_the_bookie(part: BookiePart) -> dict[str, Any]:
    """Its state, why, and how many ledgers it holds. Limbo and read-only are told of those that serve."""
    ready, said = part.ask("/ready")
    if ready is None:
        return _silent(part)
    status = _said_of_itself(part)
    ledgers = {"ledgers": status.get("ledgers")}
    if ready != 200:
        healthy, _ = part.ask("/health")
        state = "starting" if status.get("session", _CONNECTED) == _CONNECTED else "no session"
        return {"state": state if healthy == 200 else "unhealthy", "reason": reasons_shown(said), **ledgers}
    if left := ledgers_in_limbo(status):
        reason = f"it may have lost entries of {left} ledgers, and repairs them"
        return {"state": "limbo", "reason": reason, **ledgers}
    if status.get("read_only"):
        return {"state": "read-only", "reason": ", ".join(status.get("read_only_because", ())), **ledgers}
    return {"state": RUNNING, **ledgers}


def _of_the_broker(part: BrokerPart) -> dict[str, Any]:
    """Its state, why, and what it serves. One that can't let a message through is not healthy, unless it says that its
    session is what it lacks."""
    ready, said = part.ask("/ready", timeout_s=part.ready_answer_s)
    if ready is None:
        return _silent(part)
    status = _said_of_itself(part)
    serves = {"topics": status.get("topics"), "bundles": status.get("bundles")}
    if ready == 200:
        return {"state": RUNNING, **serves}
    if not part.place.settled:
        state = "starting"
    else:
        state = "unhealthy" if status.get("session", _CONNECTED) == _CONNECTED else "no session"
    return {"state": state, "reason": reasons_shown(said), **serves}


def _silent(part: DaemonPart) -> dict[str, Any]:
    return {"state": "unhealthy" if part.place.settled else "starting", "reason": "it does not answer"}


def _said_of_itself(part: DaemonPart) -> dict[str, Any]:
    _, status = part.ask("/status")
    return status if isinstance(status, dict) else {}


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
