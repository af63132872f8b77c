"""The errors of a cluster on this machine; `magnetar cluster` prints their messages.

    ClusterError
    ├── NoCluster          a folder without a cluster
    ├── NoSuchName         a name that no process of the cluster has
    ├── ClusterBusy        a cluster whose lock another command holds
    ├── NotThere           a process to be paused, resumed or killed that does not run
    └── NotStarted         a process that ended before it was ready, or was not ready in time

Each message is one line, except that of `NotStarted`, which shows what the process logged last.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["ClusterBusy", "ClusterError", "NoCluster", "NoSuchName", "NotStarted", "NotThere", "how_to_cancel"]


def how_to_cancel(bookie_id: str) -> str:
    """Return the command that cancels the decommission of the bookie."""
    return f"`magnetar bookies decommission {bookie_id} --cancel` cancels that"


class ClusterError(Exception):
    """The base of all errors of a local cluster."""


class NoCluster(ClusterError):
    """A folder without a cluster."""


class NoSuchName(ClusterError):
    """A name that no process of the cluster has."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = (
            f"did you mean {near[0]!r}?" if near else f"it has {', '.join(names)}" if names else "it has no processes"
        )
        super().__init__(f"the cluster has no {name!r}: {hint}")


class ClusterBusy(ClusterError):
    """A cluster whose lock another command holds."""


class NotThere(ClusterError):
    """A process that does not run."""


class NotStarted(ClusterError):
    """A process that ended before it was ready, or was not ready in time. The message shows what it logged last."""
