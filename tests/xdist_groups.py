"""Groups of tests that run on one worker of pytest-xdist, `--dist loadgroup`, with any version of pytest.

Modules with the same mark `xdist_group` are a group. So is any other module whose tests start processes, so that what
its tests share is started once. Tests of other folders, fast ones and the simulation, run on any worker.

pytest-xdist 3.8 adds `xdist_group` marks to node ids, which pytest 9.2 does not let it change: it ignores groups then,
without an error. The controller knows nothing else of a test than its node id. So the group of a test is read here from
its module's line `pytestmark = …`; marks of single tests or classes don't count.

The groups that take longest begin first. Otherwise pytest-xdist begins with the groups of most tests, and one worker is
left with a long group of few tests when the others are done.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Final

from xdist.scheduler import LoadGroupScheduling

__all__ = ["LONG_GROUPS", "GroupScheduling", "group_of", "in_fast_folder"]

_FAST_FOLDERS: Final = [("tests", "unit"), ("tests", "property"), ("tests", "mutants")]
_GROUP: Final = re.compile(r'^pytestmark = .*xdist_group\("([^"]+)"\)', re.MULTILINE)

# Groups and modules in the order in which they begin: those that took ten seconds or more on two cores. The others
# follow.
LONG_GROUPS: Final = (
    "spark",
    "spark streams",
    "guide of Spark",
    "tests/integration/test_command_line.py",
    "tests/integration/test_standalone.py",
    "cluster",
    "tests/faults/test_torture.py",
    "tests/integration/test_client_spark.py",
    "tests/integration/test_backup.py",
    "tests/integration/test_guide.py",
    "tests/sim/test_simulation.py",
    "tests/sim/test_service.py",
    "maintenance",
    "tests/faults/test_ledger_storage_crash.py",
    "tests/faults/test_cursor_faults.py",
    "tests/faults/test_checker_planted.py",
    "tests/integration/test_administration.py",
    "tests/faults/test_torture_faults.py",
    "tests/integration/test_bookie_daemon.py",
    "zookeeper",
    "tests/faults/test_hostile_grpc_clients.py",
    "tests/faults/test_administration_killed.py",
    "tests/integration/test_broker_process.py",
    "tests/integration/test_consuming.py",
    "java",
    "tests/integration/test_guide_cluster.py",
    "tests/integration/test_retention.py",
    "tests/integration/test_client_exit.py",
    "administration of brokers",
    "tests/faults/test_bit_rot_of_topics.py",
    "tests/integration/test_local_brokers.py",
    "tests/integration/test_client_fork.py",
    "tests/sim/test_network.py",
    "tests/integration/test_local_cluster.py",
    "tests/contract/test_rocks_storage.py",
    "tests/integration/test_command_line_results.py",
    "tests/integration/test_pulsar_reconnecting.py",
    "real cluster",
    "tests/sim/test_topics.py",
    "tests/unit/client/test_endpoint_check.py",
    "tests/integration/test_bit_rot.py",
    "tests/property/test_codec_memory.py",
)
_RANKS: Final = {name: rank for rank, name in enumerate(LONG_GROUPS)}


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

    def _assign_work_unit(self, node: object) -> None:
        """Hand the worker the first group by rank; without a rank, the one of most tests."""
        first = min(self.workqueue, key=lambda group: _RANKS.get(group.partition("::")[0], len(_RANKS)))
        self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)
