"""The client processes as the rig sees them: one for each role, each of which may have several runs.

They end with the thread that starts them. The standard error of each run is in a file of its own.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from tests.faults.checker.recorder import Recorder
from tests.faults.torture.client_process import KEEP, ROLES
from tests.faults.torture.workload import Workload

__all__ = ["ClientProcesses", "Processes"]

_ANSWER_S: Final = 120.0


class ClientProcesses(Protocol):
    """The interface of client processes for faults."""

    roles: tuple[str, ...]

    async def begin(self, role: str) -> None: ...

    async def kill(self, role: str) -> None: ...

    async def pause(self, role: str) -> None: ...

    async def resume(self, role: str) -> None: ...


class Processes:
    """The running process of each role. A client that fails for a reason of its own fails the waiting caller."""

    # Those that work all the time. Besides, there is `keep`, which is for the end (client_process.py).
    roles: tuple[str, ...] = ROLES

    def __init__(
        self, folder: Path, histories: Path, seed: str, recorder: Recorder, workloads: Sequence[Workload]
    ) -> None:
        """`folder` gets their standard error; `recorder` is the rig's."""
        # Where the next runs find the system; and by which of its listeners.
        self.url = ""
        self.pulsar_url = ""
        self.listener_name: str | None = None
        self._names = ",".join(workload.name for workload in workloads)
        self._folder, self._histories, self._seed, self._recorder = folder, histories, seed, recorder
        self._present: dict[str, _Process] = {}
        self._run_numbers: dict[str, int] = defaultdict(int)
        folder.mkdir(parents=True, exist_ok=True)

    async def begin(self, role: str) -> None:
        """Start the role's next run, if none is running, and wait until it reports that it has begun."""
        if role in self._present:
            return
        self._run_numbers[role] += 1
        run_number = str(self._run_numbers[role])
        where = [self.url, self.pulsar_url, self.listener_name or "", str(self._histories)]
        words = [*where, self._seed, role, run_number, self._names]
        process = self._present[role] = _Process(f"{role}-{run_number}", words, self._folder)
        await process.wait_for_answer("begun")

    @property
    def writers(self) -> list[str]:
        """The writers of the running processes."""
        return [process.writer for process in self._present.values()]

    def running(self, role: str) -> bool:
        return role in self._present and self._present[role].running

    async def kill(self, role: str) -> None:
        """Kill the process, and record `killed` in the rig's history when it is dead."""
        process = self._present.pop(role, None)
        if process is not None:
            await asyncio.to_thread(process.kill)
            self._recorder.say("killed", writer=process.writer)

    async def pause(self, role: str) -> None:
        self._signal(role, signal.SIGSTOP)

    async def resume(self, role: str) -> None:
        self._signal(role, signal.SIGCONT)

    def _signal(self, role: str, number: signal.Signals) -> None:
        if role in self._present:
            self._present[role].signal(number)

    async def stop(self) -> None:
        """Stop all producers, and return when their pending messages have results. From now on consumers acknowledge
        everything.
        """
        await self._send_command([role for role in self._present if role != KEEP], "stop", "stopped")

    async def end_readers(self) -> None:
        """End the readers that begin at ids. Producers have been stopped before."""
        await self._send_command([role for role in self._present if role != KEEP], "end_readers", "readers_ended")

    async def quit(self) -> None:
        """End all clients and their processes. Producers and positioned readers have ended before."""
        if KEEP in self._present:
            await self._send_command([KEEP], "stop", "stopped")
            await self._send_command([KEEP], "end_readers", "readers_ended")
        await self._send_command(list(self._present), "quit", "ended")
        for role in list(self._present):
            await asyncio.to_thread(self._present.pop(role).wait)

    def close(self) -> None:
        """Kill what is left."""
        for process in self._present.values():
            process.kill()
        self._present.clear()

    async def _send_command(self, roles: Sequence[str], command: str, answer: str) -> None:
        """Send the command to all, and wait until each has answered."""
        chosen = [self._present[role] for role in roles]
        for process in chosen:
            process.send(command)
        for process in chosen:
            await process.wait_for_answer(answer)


class _Process:
    """One run of one role."""

    def __init__(self, writer: str, words: Sequence[str], folder: Path) -> None:
        self.writer = writer
        self._log = folder / f"{writer}.err"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.torture.client_process", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_surroundings(),
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self.wait()

    def wait(self) -> None:
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def send(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())
        self._process.stdin.flush()

    async def wait_for_answer(self, answer: str) -> None:
        """Wait for this answer."""
        assert self._process.stdout is not None
        async with asyncio.timeout(_ANSWER_S):
            found = (await asyncio.to_thread(self._process.stdout.readline)).decode().strip()
        assert found == answer, f"{self.writer} answered {found!r} instead of {answer!r}: see {self._log}"


def _surroundings() -> dict[str, str]:
    """This process' environment, without variables that are settings of the SDK."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("MAGNETAR_")}
    return {**mine, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
