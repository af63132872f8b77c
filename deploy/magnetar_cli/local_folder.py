"""The folder of a cluster of real processes on this machine, for commands that need nothing else of the cluster.

The package `cluster` needs the extra `server`: what uses it here imports it only where a cluster's file exists.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

__all__ = ["DEFAULT_FOLDER", "STATE_FILE", "has_cluster", "runs_brokers"]

DEFAULT_FOLDER: Final = Path(".magnetar")
STATE_FILE: Final = "cluster.json"


def has_cluster(folder: Path = DEFAULT_FOLDER) -> bool:
    return (folder / STATE_FILE).is_file()


def runs_brokers(folder: Path = DEFAULT_FOLDER) -> bool:
    """Return whether the folder holds a cluster with a broker whose process runs."""
    if not has_cluster(folder):
        return False
    try:
        from magnetar_cli.cluster import ClusterError, LocalCluster
    except ImportError:  # the extra `server` is not installed
        return False
    with contextlib.suppress(ClusterError, OSError):
        cluster = LocalCluster(folder)
        return any(cluster.running(name) for name in cluster.broker_names())
    return False
