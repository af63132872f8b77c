"""What a bookie says of itself, for people and tools: the answer of `GET /status`."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

from magnetar_bookie.daemon.disk_use import Use
from magnetar_bookie.daemon.storage_use import use_of
from magnetar_bookie.server.bookie_process import BookieProcess
from magnetar_wire.process.histogram import Histogram
from magnetar_wire.process.version import read_version

__all__ = ["status_of"]


def status_of(process: BookieProcess, http_address: str, uptime_s: float, disk: Use | None) -> dict[str, Any]:
    bookie, collector = process.bookie, process.collector
    counters, storage = bookie.counters, use_of(bookie.storage)
    return {
        "bookie_id": bookie.bookie_id,
        "instance_id": bookie.record.cookie.instance_id.hex(),
        "version": read_version(),
        "pid": os.getpid(),
        "uptime_s": round(uptime_s, 3),
        "listen_address": process.address,
        "advertised_address": process.advertised_address,
        "advertised_listeners": dict(process.advertised_listeners),
        "http_address": http_address,
        "ready": process.registered,
        "session": process.session_state.value,
        "read_only": bookie.read_only,
        "read_only_because": bookie.read_only_because,
        "limbo": {
            # Ledgers below may have lost entries here; 0: none has.
            "below": bookie.record.limbo_below,
            "generation": bookie.record.limbo_generation,
            "ledgers_left": process.ledgers_in_limbo,
        },
        # Null: the garbage collector has not been through them yet; the next two are as of its last round.
        "ledgers": collector.ledgers,
        "tombstones": collector.tombstones,
        "unexplained": None if collector.ledgers is None else len(collector.unexplained),
        "pending_entries": bookie.pending_entries,
        "pending_bytes": bookie.pending_bytes,
        "groups": counters.group_entries.count,
        "mean_group_entries": _mean(counters.group_entries),
        "mean_group_bytes": _mean(counters.group_bytes),
        "mean_sync_s": _mean(counters.sync_seconds),
        "damaged_records_met": counters.damaged,
        "scrub": {
            "passes": counters.scrub_passes,
            "entries": counters.scrubbed_records,
            "bytes": counters.scrubbed_bytes,
            "began_ms": process.scrubber.position.began_ms,
            "at_ledger": process.scrubber.position.ledger_id,
            "resting": process.scrubber.position.done,
        },
        "add_streams": bookie.add_streams,
        "long_polls": bookie.long_polls,
        "disk": None if disk is None else asdict(disk),
        "storage": None if storage is None else asdict(storage),
        "auto_recovery": _auto_recovery(process),
    }


def _mean(histogram: Histogram) -> float | None:
    return round(histogram.total / histogram.count, 6) if histogram.count else None


def _auto_recovery(process: BookieProcess) -> dict[str, Any]:
    running = process.auto_recovery
    repairing = None if running is None else running.replication_worker.repairing
    return {
        "auditor": running is not None and running.auditing,
        "worker": running is not None,
        "repairing": None
        if repairing is None
        else {"ledger_id": repairing[0], "entries_in_place": repairing[1].copied, "entries": repairing[1].total},
        "tasks_done": process.repairs.tasks_done,
        "entries_in_place": process.repairs.entries_in_place,
    }
