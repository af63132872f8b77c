"""A cluster of real processes on this machine. local_cluster.py is where to begin."""

from __future__ import annotations

from magnetar_cli.cluster.errors import ClusterBusy, ClusterError, NoCluster, NoSuchName, NotStarted, NotThere
from magnetar_cli.cluster.local_cluster import LocalCluster
from magnetar_cli.cluster.local_parts import LocalBookie, LocalBroker
from magnetar_cli.cluster.status import ClusterStatus, PartStatus

__all__ = [
    "ClusterBusy",
    "ClusterError",
    "ClusterStatus",
    "LocalBookie",
    "LocalBroker",
    "LocalCluster",
    "NoCluster",
    "NoSuchName",
    "NotStarted",
    "NotThere",
    "PartStatus",
]
