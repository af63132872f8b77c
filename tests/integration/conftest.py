"""The cluster that modules of this folder share: tests may inject faults into its brokers, and it is healed after each
test.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from magnetar_cli.cluster import LocalCluster

# Port 0 is each broker's own; at the last one nobody listens.
_LISTENERS: Final = ",".join(
    (
        "internal:magnetar://127.0.0.1:0",
        "external:magnetar://localhost:0",
        "external:pulsar://localhost:0",
        "nowhere:pulsar://127.0.0.1:1",
    )
)


@pytest.fixture(scope="session")
def magnetar_cluster_options() -> dict[str, Any]:
    return {"broker_settings": {"advertised_listeners": _LISTENERS}}


@pytest.fixture
def cluster(magnetar_cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The shared cluster, all parts of which run when a test begins, however the last one left them. Bookies keep what
    they have: a test that loses or repairs ledgers starts a cluster of its own."""
    yield magnetar_cluster
    for name in (*magnetar_cluster.zookeeper_names(), *magnetar_cluster.names(), *magnetar_cluster.broker_names()):
        if magnetar_cluster.running(name):
            magnetar_cluster.resume(name)
    magnetar_cluster.up()
