"""Kill a command that starts a cluster with -9 at a random moment, and run another one on what is left.

The second command must start everything, each process once, and stopping must leave none behind. What could go wrong is
a process that was started and that nothing knows of: it would hold the data folder and the port.

    python -m tests.faults.killed_launcher --rounds 3000
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from magnetar_cli.cluster import LocalCluster
from tests.child_process import ChildProcess

_STAND_IN = Path(__file__).parents[1] / "integration" / "stand_in_daemon.py"
_DAEMON = (sys.executable, "-S", str(_STAND_IN))
_BOOKIES = 3
_BROKERS = 2
_LONGEST_S = 0.6
_UP = """
import sys
from pathlib import Path
from magnetar_cli.cluster import LocalCluster
print("begins", flush=True)
cluster = LocalCluster(Path(sys.argv[1]), bookie_command=sys.argv[2:], broker_command=sys.argv[2:])
cluster.up(3, 2, zookeeper="127.0.0.1:1")
"""


def run_round(folder: Path, chance: random.Random) -> None:
    """Raises `AssertionError`."""
    cluster = LocalCluster(folder, bookie_command=_DAEMON, broker_command=_DAEMON)
    with ChildProcess([sys.executable, "-c", _UP, str(folder), *_DAEMON], stdout=subprocess.PIPE) as command:
        assert command.stdout is not None
        command.stdout.readline()
        time.sleep(chance.random() ** 2 * _LONGEST_S)  # most of it happens early
        command.kill()
    left = _processes_of(folder)
    try:
        cluster.up(_BOOKIES, _BROKERS, zookeeper=None if _has_state(folder) else "127.0.0.1:1")
        running = _processes_of(folder)
        known = {cluster.bookie(name).pid for name in cluster.names()}
        known |= {cluster.broker(name).pid for name in cluster.broker_names()}
        assert running == known, f"processes {running} run, and the cluster knows {known}; {left} were left"
        assert len(known) == _BOOKIES + _BROKERS
        assert left <= known, f"{left} ran already, and {known} run now"
    finally:
        cluster.down()
        unknown = _processes_of(folder)
        for pid in unknown:
            psutil.Process(pid).kill()
    assert not unknown, f"{unknown} were left by `down`"


def _has_state(folder: Path) -> bool:
    return (folder / "cluster.json").exists()


def _processes_of(folder: Path) -> set[int]:
    found = set()
    parts = str(folder / "bookies"), str(folder / "brokers")
    for process in psutil.process_iter():
        try:
            if any(word.startswith(parts) for word in process.cmdline()):
                found.add(process.pid)
        except psutil.Error:
            continue
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    arguments = parser.parse_args()
    for number in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as folder:
            run_round(Path(folder), random.Random(f"{arguments.seed}/{number}"))
        sys.stderr.write(f"\rround {number + 1} of {arguments.rounds}, seed {arguments.seed}")
    sys.stderr.write(": all came up again, and none was left\n")


if __name__ == "__main__":
    main()
