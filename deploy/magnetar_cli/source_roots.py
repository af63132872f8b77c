"""The folders from which this process imports Magnetar's packages, for the PYTHONPATH of processes that it starts."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

__all__ = ["source_roots"]

_OURS: Final = (
    "magnetar_protos",
    "magnetar_wire",
    "magnetar_metadata",
    "magnetar_bookie",
    "magnetar_broker",
    "magnetar",
    "magnetar_cli",
)


def source_roots() -> list[str]:
    """Return the folders in a fixed order: a child that has them on its path imports the same code as this process."""
    roots = []
    for package in _OURS:
        found = importlib.util.find_spec(package)
        roots += [str(Path(place).parent) for place in (found.submodule_search_locations or ())] if found else []
    return list(dict.fromkeys(roots))
