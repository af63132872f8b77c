"""The folder of a local cluster, for commands that need nothing else of the cluster.

The package `cluster` needs the extra `server`, so it is imported only if the folder holds a cluster.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

__all__ = ["DEFAULT_FOLDER", "STATE_FILE", "has_cluster", "has_running_broker"]

DEFAULT_FOLDER: Final = Path(".magnetar")
STATE_FILE: Final = "cluster.json"


def has_cluster(folder: Path = DEFAULT_FOLDER) -> bool:
    return (folder / STATE_FILE).is_file()


def has_running_broker(folder: Path = DEFAULT_FOLDER) -> bool:
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
