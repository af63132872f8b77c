"""What can go wrong with a cluster on this machine; each message is for whoever typed the command.

    ClusterError
    ├── NoCluster          the folder holds none
    ├── NoSuchName         the cluster has nobody of that name
    ├── ClusterBusy        another command is at work on it
    ├── NotThere           who was to be paused, resumed or killed does not run
    └── NotStarted         a process ended before it was ready, or was not ready in time

Each is one line, but for `NotStarted`, which shows what the process logged last.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["ClusterBusy", "ClusterError", "NoCluster", "NoSuchName", "NotStarted", "NotThere", "how_to_cancel"]


def how_to_cancel(bookie_id: str) -> str:
    """A decommission."""
    return f"`magnetar bookies decommission {bookie_id} --cancel` cancels that"


class ClusterError(Exception):
    """Whatever goes wrong with a local cluster."""


class NoCluster(ClusterError):
    """The folder holds no cluster."""


class NoSuchName(ClusterError):
    """The cluster has nobody of that name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = (
            f"did you mean {near[0]!r}?" if near else f"it has {', '.join(names)}" if names else "it has no processes"
        )
        super().__init__(f"the cluster has no {name!r}: {hint}")


class ClusterBusy(ClusterError):
    """Another command is at work on the cluster."""


class NotThere(ClusterError):
    """The process does not run."""


class NotStarted(ClusterError):
    """A process is not ready; the message shows what it logged last."""
