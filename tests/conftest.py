"""Settings for all tests.

No Hypothesis test fails because an example took long, as one does on a busy machine. Where tests run in several
processes, the slow tests of a file stay in one of them, so that what a file's tests share is started once.
"""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("without deadlines", deadline=None)
settings.load_profile("without deadlines")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("xdist_group") is None and item.get_closest_marker("slow") is not None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
