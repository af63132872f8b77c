"""The status of a local cluster's processes, from their own reports over HTTP and from the kernel."""

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
from magnetar_cli.http_request import format_reasons

__all__ = [
    "RUNNING",
    "ClusterStatus",
    "PartStatus",
    "count_limbo_ledgers",
    "format_pulsar_url",
    "format_service_url",
    "inspect_cluster",
]

RUNNING = "running"
_CONNECTED: Final = "connected"


@dataclass(frozen=True, slots=True)
class PartStatus:
    """One process."""

    name: str
    # zookeeper, bookie or broker.
    kind: str
    # running, starting, no session, unhealthy, read-only, limbo, leaving, paused, stopped or dead.
    state: str
    # Why it is in this state, if it is not running normally.
    reason: str = ""
    pid: int | None = None
    address: str = ""
    # Address for clients of Pulsar's protocol.
    pulsar: str = ""
    http: str = ""
    uptime_s: float | None = None
    memory_bytes: int | None = None
    ledgers: int | None = None
    # Loaded topics and owned bundles of a broker.
    topics: int | None = None
    bundles: int | None = None
    disk_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    folder: str
    metadata: str
    # For clients. Empty: there is no broker.
    service_url: str = ""
    # For Pulsar's clients.
    pulsar_url: str = ""
    parts: list[PartStatus] = field(default_factory=list)

    @property
    def well(self) -> bool:
        return all(part.state == RUNNING for part in self.parts)


def inspect_cluster(folder: Path, state: ClusterState, parts: Sequence[Part]) -> ClusterStatus:
    """Inspect all parts concurrently, since some may not answer."""
    brokers = [part for part in parts if isinstance(part, BrokerPart)]
    with ThreadPoolExecutor(max_workers=min(len(parts), 32) or 1) as pool:
        return ClusterStatus(
            str(folder),
            state.zookeeper.location,
            format_service_url(brokers),
            format_pulsar_url(brokers),
            list(pool.map(_inspect_part, parts)),
        )


def format_service_url(brokers: Sequence[BrokerPart]) -> str:
    """Return the service URL with all brokers, or an empty string if there are none."""
    return f"magnetar://{','.join(part.address for part in brokers)}" if brokers else ""


def format_pulsar_url(brokers: Sequence[BrokerPart]) -> str:
    """Return the service URL for Pulsar's clients."""
    return f"pulsar://{','.join(part.pulsar_address for part in brokers)}" if brokers else ""


def _inspect_part(part: Part) -> PartStatus:
    process = part.record.process
    facts: dict[str, Any] = {
        "kind": part.kind.name if isinstance(part, DaemonPart) else "zookeeper",
        "address": part.address,
        "pulsar": part.pulsar_address if isinstance(part, BrokerPart) else "",
        "http": part.http_address if isinstance(part, DaemonPart) else "",
        "disk_bytes": _measure_disk_use(part.folder),
    }
    if process is None or not part.running:
        if part.record.stopped:
            return PartStatus(part.name, state="stopped", **facts)
        reason = "it was killed, or ended unexpectedly" if process else "it was never started"
        return PartStatus(part.name, state="dead", reason=reason, **facts)
    facts |= {"pid": process.pid, **_read_resource_use(process.pid)}
    if is_paused(process):
        return PartStatus(part.name, state="paused", **facts)
    if isinstance(part, BookiePart):
        facts |= _inspect_bookie(part)
    elif isinstance(part, BrokerPart):
        facts |= _inspect_broker(part)
    else:
        reason = part.find_unready_reason()
        facts |= {"state": "starting" if reason else RUNNING, "reason": reason}
    return PartStatus(part.name, **facts)


def _inspect_bookie(part: BookiePart) -> dict[str, Any]:
    """Return its state, the reason, and its number of ledgers. Limbo and read-only are states of a ready bookie."""
    ready, answer = part.request("/ready")
    if ready is None:
        return _report_no_answer(part)
    status = _request_status(part)
    ledgers = {"ledgers": status.get("ledgers")}
    if ready != 200:
        healthy, _ = part.request("/health")
        state = "starting" if status.get("session", _CONNECTED) == _CONNECTED else "no session"
        return {"state": state if healthy == 200 else "unhealthy", "reason": format_reasons(answer), **ledgers}
    if left := count_limbo_ledgers(status):
        reason = f"it may have lost entries of {left} ledgers, and repairs them"
        return {"state": "limbo", "reason": reason, **ledgers}
    if status.get("read_only"):
        return {"state": "read-only", "reason": ", ".join(status.get("read_only_because", ())), **ledgers}
    return {"state": RUNNING, **ledgers}


def _inspect_broker(part: BrokerPart) -> dict[str, Any]:
    """Return its state, the reason, and what it serves. A broker through which no message passes is unhealthy, unless
    it reports that it has no session."""
    ready, answer = part.request("/ready", timeout_s=part.ready_timeout_s)
    if ready is None:
        return _report_no_answer(part)
    status = _request_status(part)
    serves = {"topics": status.get("topics"), "bundles": status.get("bundles")}
    if ready == 200:
        return {"state": RUNNING, **serves}
    if not part.record.settled:
        state = "starting"
    else:
        state = "unhealthy" if status.get("session", _CONNECTED) == _CONNECTED else "no session"
    return {"state": state, "reason": format_reasons(answer), **serves}


def _report_no_answer(part: DaemonPart) -> dict[str, Any]:
    return {"state": "unhealthy" if part.record.settled else "starting", "reason": "it does not answer"}


def _request_status(part: DaemonPart) -> dict[str, Any]:
    _, status = part.request("/status")
    return status if isinstance(status, dict) else {}


def count_limbo_ledgers(status: dict[str, Any]) -> int | str | None:
    """Return the number of ledgers whose entries may be lost, from a bookie's status. None: there are none (any
    more)."""
    limbo = status.get("limbo") or {}
    if not limbo.get("below"):
        return None
    left: int | None = limbo.get("ledgers_left")
    return f"up to {limbo['below'] - 1}" if left is None else left or None


def _read_resource_use(pid: int) -> dict[str, Any]:
    try:
        found = psutil.Process(pid)
        with found.oneshot():
            return {"uptime_s": time.time() - found.create_time(), "memory_bytes": found.memory_info().rss}
    except psutil.Error:
        return {}


def _measure_disk_use(folder: Path) -> int:
    """Return the disk space of the folder's files."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.lstat().st_blocks * 512
        except OSError:
            continue  # it was just deleted
    return total
