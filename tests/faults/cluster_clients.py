"""The processes of a cluster's clients (cluster_workload.py), and what their histories say by now."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from tests.faults.workload_processes import die_with_parent

__all__ = ["Clients", "Place", "Progress", "place"]

_ANSWER_S: Final = 120.0

# A topic without partitions, or a partition.
Place = str


def place(topic: str, partition: int) -> Place:
    return topic if partition < 0 else f"{topic}-partition-{partition}"


class ClientProcess:
    """One life of one role."""

    def __init__(self, words: list[str], standard_error: Path) -> None:
        self.log = standard_error
        with standard_error.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.cluster_workload", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                preexec_fn=die_with_parent,
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def tell(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())
        self._process.stdin.flush()

    async def said(self, answer: str) -> None:
        """Returns when it has said this."""
        assert self._process.stdout is not None
        async with asyncio.timeout(_ANSWER_S):
            found = (await asyncio.to_thread(self._process.stdout.readline)).decode().strip()
        assert found == answer, f"a client said {found!r}, and not {answer!r}: see {self.log}"


class Clients:
    """One process for each role, the present one."""

    def __init__(self, folder: Path, histories: Path, seed: str) -> None:
        self._folder = folder
        self._histories = histories
        self._seed = seed
        self.processes: dict[str, ClientProcess] = {}
        self.lives: dict[str, int] = defaultdict(int)
        # Where the cluster is found.
        self.url = ""

    async def begin(self, role: str) -> None:
        """Its next life, if it has none."""
        if role in self.processes:
            return
        self.lives[role] += 1
        words = [self.url, str(self._histories), self._seed, role, str(self.lives[role])]
        process = self.processes[role] = ClientProcess(words, self._folder / f"{role}-{self.lives[role]}.err")
        await process.said("begun")

    def kill(self, role: str) -> None:
        process = self.processes.pop(role, None)
        if process is not None:
            process.kill()

    def signal(self, role: str, number: signal.Signals) -> None:
        if role in self.processes:
            self.processes[role].signal(number)

    async def tell(self, roles: Iterable[str], command: str, answer: str) -> None:
        """All of them, and waits until each has answered."""
        chosen = [self.processes[role] for role in roles]
        for process in chosen:
            process.tell(command)
        for process in chosen:
            await process.said(answer)

    def close(self) -> None:
        for role in list(self.processes):
            self.kill(role)


class Progress:
    """Read on from where it was read before, each time it is asked to."""

    def __init__(self, folder: Path, subscriptions: Iterable[str]) -> None:
        self.folder = folder
        # By subscription: what it has seen, and what had a receipt and it has not seen.
        self.seen: dict[str, set[tuple[str, int]]] = {name: set() for name in subscriptions}
        self.missing: dict[str, set[tuple[str, int]]] = {name: set() for name in self.seen}
        # When receipts came, in order.
        self.receipts: dict[Place, list[float]] = defaultdict(list)
        self._read: dict[Path, int] = {}

    def read_on(self) -> None:
        for path in sorted(self.folder.glob("*.jsonl")):
            at = self._read.get(path, 0)
            with path.open("rb") as file:
                file.seek(at)
                new = file.read()
            whole = new.rfind(b"\n") + 1
            self._read[path] = at + whole
            for line in new[:whole].splitlines():
                self._take(json.loads(line))
        for times in self.receipts.values():
            times.sort()  # almost in order already

    def first_receipt_after(self, where: Place, at: float) -> float | None:
        times = self.receipts[where]
        found = bisect_right(times, at)
        return times[found] if found < len(times) else None

    def last_receipt(self, where: Place) -> float:
        return self.receipts[where][-1] if self.receipts[where] else 0.0

    def left(self, *, kept: bool) -> dict[str, int]:
        """What is missing still: in the subscriptions that are read at the end (`kept`), or in the others."""
        found = {name: len(missing) for name, missing in self.missing.items() if name.endswith(".keep") == kept}
        return {name: count for name, count in found.items() if count}

    def _take(self, line: dict[str, Any]) -> None:
        if line["what"] == "ok":
            producer = line["producer"]
            topic = producer.partition(".")[0]
            self.receipts[place(topic, line["partition"])].append(line["at"])
            sent = [(producer, number) for number in line["numbers"]]
            for name, seen in self.seen.items():
                if name.partition(".")[0] == topic:
                    self.missing[name].update(one for one in sent if one not in seen)
        elif line["what"] == "got":
            name = line["consumer"].partition("#")[0]
            if name in self.seen:
                got = [(producer, number) for producer, number, _ in line["items"]]
                self.seen[name].update(got)
                self.missing[name].difference_update(got)
