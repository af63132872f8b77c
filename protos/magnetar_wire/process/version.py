"""Magnetar's version."""

from __future__ import annotations

import functools

__all__ = ["read_version"]


# It reads files: that took a third of the time of a request for a topic's statistics.
@functools.cache
def read_version() -> str:
    """Return the version of the installed package; "unknown" if it is not installed."""
    # Imported late: it takes longer than most of what is imported at the start.
    import importlib.metadata

    try:
        return importlib.metadata.version("magnetar")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
