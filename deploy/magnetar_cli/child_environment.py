"""The environment of server processes that this one starts: the same code, and none of its settings."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Final

from magnetar_wire.configuration import ENVIRONMENT_PREFIX

__all__ = ["server_environment", "source_roots"]

_PACKAGES: Final = (
    "magnetar_protos",
    "magnetar_wire",
    "magnetar_metadata",
    "magnetar_bookie",
    "magnetar_broker",
    "magnetar",
    "magnetar_cli",
)


def source_roots() -> list[str]:
    """Return the folders from which this process imports Magnetar's packages, in a fixed order, for a PYTHONPATH."""
    roots = []
    for package in _PACKAGES:
        found = importlib.util.find_spec(package)
        roots += [str(Path(folder).parent) for folder in (found.submodule_search_locations or ())] if found else []
    return list(dict.fromkeys(roots))


def server_environment() -> dict[str, str]:
    """Return this process's environment without variables that are settings, with the source roots in PYTHONPATH."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
    return {**others, "PYTHONPATH": os.pathsep.join([*source_roots(), *filter(None, [others.get("PYTHONPATH")])])}
