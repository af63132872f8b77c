"""The workload's processes: a writer and a tail for each chain, and what can be done to them."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from magnetar_cli.bound_process import start_bound_process

__all__ = ["AckWatch", "ChainRun", "WorkloadProcess", "die_with_parent"]

_PR_SET_PDEATHSIG: Final = 1


def die_with_parent() -> None:
    """In the child, as it begins. It goes by the thread that starts it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class WorkloadProcess:
    """One process of ledger_workload.py."""

    def __init__(self, name: str, words: Sequence[str], standard_error: Path) -> None:
        self.name = name
        with standard_error.open("ab") as log:
            self._process = start_bound_process(
                [sys.executable, "-m", "tests.faults.ledger_workload", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        self._process.terminate()


@dataclass(slots=True)
class ChainRun:
    """One chain: who writes and who tails it."""

    name: str
    striping: str
    # How to start them: `{name}` and the metadata's location are filled in.
    write: Sequence[str]
    tail: Sequence[str]
    folder: Path
    writer: WorkloadProcess | None = None
    tailer: WorkloadProcess | None = None
    # Writers that were put to sleep, and whose chain another has taken over.
    zombies: list[WorkloadProcess] = field(default_factory=list)
    started: int = 0

    @property
    def ack_quorum(self) -> int:
        return int(self.striping.split("/")[2])

    def start_writer(self) -> None:
        self.writer = self._start("write", self.write, "w")

    def start_tail(self) -> None:
        self.tailer = self._start("tail", self.tail, "t")

    def _start(self, what: str, words: Sequence[str], letter: str) -> WorkloadProcess:
        self.started += 1
        name = f"{letter}-{self.name}-{self.started}"
        # A file for each: a process's last output is at the end of its own file.
        return WorkloadProcess(
            name,
            [what, "--chain", self.name, "--name", name, "--seed", str(self.started), *words],
            self.folder / f"{name}.err",
        )

    def taken_over(self) -> bool:
        """The present writer has a ledger of its own in the chain, or is no more."""
        if self.writer is None or not self.writer.running:
            return True
        logs = (self.folder / "logs").glob(f"{self.writer.name}.*.log")
        return any(b"\nappend " in log.read_bytes() for log in logs)

    def processes(self) -> list[WorkloadProcess]:
        return [one for one in (self.writer, self.tailer, *self.zombies) if one is not None and one.running]


class AckWatch:
    """What the logs say by now, read on from where they were read before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        # By chain, kind of process and word: the number of such lines, and the highest ledger and entry in them.
        self._reported: dict[tuple[str, str, str], tuple[int, tuple[int, int]]] = {}

    def count(self, chain: str) -> int:
        """How many entries of the chain were acknowledged."""
        self._read_on(chain, "w", "acked")
        return self._reported.get((chain, "w", "acked"), (0, (0, 0)))[0]

    def latest(self, chain: str, kind: str, word: str) -> tuple[int, int]:
        """The highest ledger and entry in the lines with this word of the chain's writers ("w") or tails ("t")."""
        self._read_on(chain, kind, word)
        return self._reported.get((chain, kind, word), (0, (0, 0)))[1]

    def _read_on(self, chain: str, kind: str, word: str) -> None:
        line = re.compile(rb"^%s (\d+) (\d+)" % word.encode(), re.MULTILINE)
        for path in self._folder.glob(f"{kind}-{chain}-*.log"):
            at = self._read.get(path, 0)
            with path.open("rb") as log:
                log.seek(at)
                new = log.read()
            whole = new.rfind(b"\n") + 1
            self._read[path] = at + whole
            found = [(int(ledger_id), int(entry_id)) for ledger_id, entry_id in line.findall(new[:whole])]
            if found:
                count, latest = self._reported.get((chain, kind, word), (0, (0, 0)))
                self._reported[chain, kind, word] = count + len(found), max(latest, *found)
