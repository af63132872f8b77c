"""A local cluster for tests: ZooKeeper, bookies and brokers as processes, ready in some seconds.

    with running_cluster(tmp_path / "cluster", bookies=3, brokers=2) as cluster:
        cluster.service_url, cluster.pulsar_url
        cluster.broker("broker-1").kill()

It is `magnetar cluster` with shorter intervals (`QUICK`, `QUICK_BROKERS`), so that a test can wait for a recovery. The
kernel ends the processes when the process that started them has ended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from magnetar_cli.cluster import LocalCluster
from magnetar_cli.local_java import NoJava, find_java

__all__ = ["QUICK", "QUICK_BROKERS", "SESSION_TIMEOUT_S", "running_cluster"]

QUICK: Final[dict[str, Any]] = {
    "lost_bookie_recovery_delay_seconds": 1.0,
    "open_ledger_rereplication_grace_period_seconds": 1.0,
    "auditor_scan_interval_seconds": 1.0,
    "intent_grace_period_seconds": 1.0,
    "rw_rereplicate_backoff_seconds": 0.2,
    "rw_rereplicate_backoff_max_seconds": 1.0,
    "progress_interval_seconds": 0.0,
    "garbage_interval_seconds": 1.0,
    "metadata_retry_seconds": 0.2,
}
QUICK_BROKERS: Final[dict[str, Any]] = {"metadata_retry_seconds": 0.2}
# ZooKeeper's minimum is two ticks, which are half a second each.
SESSION_TIMEOUT_S: Final = 2.0


@contextlib.contextmanager
def running_cluster(
    folder: Path,
    bookies: int = 3,
    brokers: int = 0,
    zookeepers: int = 1,
    broker_settings: Mapping[str, Any] | None = None,
    session_timeout_s: float = SESSION_TIMEOUT_S,
    **settings: Any,
) -> Iterator[LocalCluster]:
    """Start a cluster, and stop it at the end.

    `settings` are those of the bookies and `broker_settings` those of the brokers, in addition to `QUICK` and
    `QUICK_BROKERS`. Skip the test if there is no Java.
    """
    try:
        find_java()
    except NoJava as error:
        pytest.skip(f"a cluster needs ZooKeeper, and so Java: {error}")
    with LocalCluster(folder, die_with_parent=True) as cluster:
        cluster.up(
            bookies,
            brokers,
            zookeepers=zookeepers,
            settings={**QUICK, **settings},
            broker_settings={**QUICK_BROKERS, **(broker_settings or {})},
            session_timeout_s=session_timeout_s,
        )
        yield cluster
