"""Leases of a standalone that is killed: the next process honours them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magnetar import Client, MessageId
from magnetar.admin import Admin, MessagePosition, Plan
from magnetar_testing.standalone_process import StandaloneProcess
from tests.faults.torture.orphans import ledgers_of

_SETTINGS: dict[str, Any] = {
    "managed_ledger_max_entries_per_ledger": 3,
    "managed_ledger_min_ledger_rollover_time_minutes": 0,
    "topic_housekeeping_interval_seconds": 0.1,
    "managed_ledger_lease_sweep_interval_seconds": 0.2,
    "default_retention_without_subscription_minutes": 0,
}
_HOUR_MS, _SHORT_MS, _WITHIN_S = 3_600_000, 3000, 30.0
_BEGIN, _LEASE = MessagePosition(0, 0, 0), bytes(range(16))


def publish(url: str, topic: str, *numbers: int) -> None:
    with Client(url) as client:
        producer = client.create_producer(topic, batching_enabled=False)
        for number in numbers:
            producer.send(b"%d" % number)


def read(url: str, topic: str, count: int) -> list[int]:
    with Client(url) as client:
        reader = client.create_reader(topic, MessageId.earliest)
        return [int(reader.read_next(timeout_millis=30_000).data()) for _ in range(count)]


def plan(url: str, topic: str, lease_ms: int = 0) -> Plan:
    with Admin(url) as admin:
        return admin.reading.plan(topic, start=_BEGIN, lease_ms=lease_ms, lease_id=_LEASE, holder="a test")


def within(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + _WITHIN_S
    while not (fulfilled := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return fulfilled


@pytest.mark.slow
def test_leases_survive_kill_of_standalone(tmp_path: Path) -> None:
    """SPK-5: the lease was durable when the plan was answered; the next process honours it, and one of a topic that
    was deleted, and no ledger is left without an owner when all is over."""
    with StandaloneProcess(tmp_path / "data", **_SETTINGS) as server:
        for topic, lease_ms in (("leased", _HOUR_MS), ("deleted", _SHORT_MS)):
            publish(server.service_url, topic, 0)
            plan(server.service_url, topic, lease_ms)
        server.kill()
        server.start()
        for topic in ("leased", "deleted"):
            publish(server.service_url, topic, *range(1, 10))
        with Admin(server.service_url) as admin:
            admin.reading.plan("deleted", start=_BEGIN, lease_ms=_SHORT_MS, lease_id=_LEASE, holder="a test")
            retained = [one.ledger_id for one in admin.topics.internal_stats("leased").ledgers]
            left = [one.ledger_id for one in admin.topics.internal_stats("deleted").ledgers if one.entries]
            admin.topics.delete("deleted", force=True)
        assert len(retained) >= 3
        server.kill()
        found = asyncio.run(ledgers_of(server.folder))
        assert not found.orphans
        assert set(retained + left) <= set(found.living)
        server.start()
        publish(server.service_url, "leased", 10)
        assert read(server.service_url, "leased", 11) == list(range(11))
        assert not plan(server.service_url, "leased").begins_in_deleted
        with Admin(server.service_url) as admin:
            [lease] = admin.topics.internal_stats("leased").leases
            assert (lease.holder, lease.lease_ms) == ("a test", _HOUR_MS)
            incarnation = plan(server.service_url, "leased").incarnation
            admin.reading.renew_lease("leased", incarnation, _LEASE, 0)
            assert within(lambda: admin.topics.internal_stats("leased").ledgers[0].ledger_id > retained[-1])
        assert within(lambda: "whose leases have ended" in server.logged)
        server.stop()
        found = asyncio.run(ledgers_of(server.folder))
        assert not found.orphans
        assert not set(left) & set(found.living)
