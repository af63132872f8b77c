"""How many examples a property test runs: all of them in `make soak`, a quarter anywhere else.

Both are profiles of Hypothesis, which `tests/conftest.py` loads; `--hypothesis-profile thorough` chooses the former.
Without `examples`, a test in `tests/property` runs 100 and 25. `make soak` repeats that folder alone, so tests
elsewhere have `@settings(max_examples=…)`. All but the tests with `stable=True` run other examples each time.
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis import settings

__all__ = ["examples", "register_profiles", "scaled"]

_PROFILES: Final = {"quick": 25, "thorough": 100}


def register_profiles() -> None:
    """Register both profiles and load the quick one. No test fails because an example took long."""
    for name, count in _PROFILES.items():
        settings.register_profile(name, deadline=None, max_examples=count)
    settings.load_profile("quick")


def examples(count: int, *, stable: bool = False, **others: Any) -> settings:
    """Return the settings of a test with `count` examples in `make soak`; `stable`: the same ones in every run."""
    if stable:
        others |= {"derandomize": True, "database": None}
    return settings(max_examples=scaled(count), **others)


def scaled(count: int) -> int:
    """Return how many of the `count` examples of `make soak` this run has."""
    return count * settings().max_examples // _PROFILES["thorough"]
