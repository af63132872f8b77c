"""All kinds of faults, each registered in a file of its own group."""

from __future__ import annotations

import importlib
import pkgutil

from tests.faults.torture.fault import Fault

__all__ = ["all"]


def all() -> tuple[Fault, ...]:
    """Return the faults of all files here, in the order of their names."""
    names = sorted(found.name for found in pkgutil.iter_modules(__path__))
    return tuple(fault for name in names for fault in importlib.import_module(f"{__name__}.{name}").FAULTS)
