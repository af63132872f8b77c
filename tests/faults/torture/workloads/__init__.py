"""The workloads: each file here has one, `WORKLOAD`, and is found by being here."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence

from tests.faults.torture.workload import Workload

__all__ = ["all", "named"]


def all() -> tuple[Workload, ...]:
    """In the order of their names."""
    names = sorted(found.name for found in pkgutil.iter_modules(__path__))
    return tuple(importlib.import_module(f"{__name__}.{name}").WORKLOAD for name in names)


def named(names: Sequence[str]) -> tuple[Workload, ...]:
    """Raises ValueError for one that there isn't."""
    known = {workload.name: workload for workload in all()}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"there is no workload {', '.join(unknown)}: those there are, are {', '.join(known)}")
    return tuple(known[name] for name in names)
