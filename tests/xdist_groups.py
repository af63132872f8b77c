"""Groups of tests that run on one worker of pytest-xdist, `--dist loadgroup`, with any version of pytest.

pytest-xdist 3.8 adds `xdist_group` marks to node ids, which pytest 9.2 does not let it change: it ignores groups then,
without an error. The controller knows nothing else of a test than its node id. So the group of a test is read here from
its module's line `pytestmark = …`; marks of single tests or classes don't count.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Final

from xdist.scheduler import LoadGroupScheduling

__all__ = ["ModuleGroupScheduling", "group_of"]

_GROUP: Final = re.compile(r'^pytestmark = .*xdist_group\("([^"]+)"\)', re.MULTILINE)


@functools.cache
def group_of(module: Path) -> str | None:
    """Return the group of the module's tests; None: they may run on any worker."""
    found = _GROUP.search(module.read_text())
    return found[1] if found else None


class ModuleGroupScheduling(LoadGroupScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return group_of(self.config.rootpath / nodeid.partition("::")[0]) or nodeid
