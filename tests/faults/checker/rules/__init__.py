"""The rules, one file each. To add a rule, add a file with a `RULE`."""

from __future__ import annotations

import importlib
import pkgutil

from tests.faults.checker.rule import Rule

__all__ = ["all"]


def all() -> list[type[Rule]]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [importlib.import_module(f"{__name__}.{name}").RULE for name in names]
