"""Groups of tests that run on one worker of pytest-xdist, `--dist loadgroup`, with any version of pytest.

Modules with the same mark `xdist_group` are a group. So is any other module whose tests start processes, so that what
its tests share is started once. Tests of other folders, fast ones and the simulation, run on any worker.

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

__all__ = ["GroupScheduling", "group_of", "in_fast_folder"]

_FAST_FOLDERS: Final = [("tests", "unit"), ("tests", "property"), ("tests", "mutants")]
_GROUP: Final = re.compile(r'^pytestmark = .*xdist_group\("([^"]+)"\)', re.MULTILINE)


@functools.cache
def group_of(module: Path) -> str | None:
    """Return the group of the module's tests; None: they may run on any worker."""
    found = _GROUP.search(module.read_text())
    return found[1] if found else None


def in_fast_folder(module: Path) -> bool:
    """Whether the module, relative to the project, is in a folder whose tests are fast unless they are marked."""
    return module.parts[:2] in _FAST_FOLDERS


class GroupScheduling(LoadGroupScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        module = Path(nodeid.partition("::")[0])
        alone = in_fast_folder(module) or module.parts[:2] == ("tests", "sim")
        return group_of(self.config.rootpath / module) or (nodeid if alone else str(module))
