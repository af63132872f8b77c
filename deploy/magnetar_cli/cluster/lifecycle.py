"""Start and stop the processes of a local cluster.

**Start.** All processes are started before any is waited for: bookies and brokers wait by themselves for the processes
that they need, and each takes some time to load. Their readiness is requested concurrently, since a broker's answer
takes as long as publishing a message. If a process ends before it was ever ready, and another program has taken one of
its ports, it gets other ports and is started again. If it is a ZooKeeper server, all processes that know its old port
are restarted, too. After any other end `NotStarted` is raised.

**Stop.** Processes get SIGTERM first, and shut down gracefully. After a timeout they are killed.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from magnetar_cli.cluster.errors import ClusterError, NotStarted
from magnetar_cli.cluster.part import Part
from magnetar_cli.cluster.process import send, start, wait_ended
from magnetar_cli.cluster.state import ClusterState
from magnetar_cli.cluster.zookeeper_part import ZooKeeperPart

__all__ = ["Starter", "kill_parts", "stop_parts"]

_STARTS: Final = 5
_POLL_S: Final = 0.05
_PROGRESS_S: Final = 0.5
# A killed process ends when its system calls return: not while a disk does not answer.
_KILLED_S: Final = 30.0


class Starter:
    """Starts parts. `save` stores the cluster's state; it is called before each step that a restart must know of."""

    def __init__(
        self,
        state: ClusterState,
        save: Callable[[], None],
        on_progress: Callable[[str], None],
        *,
        die_with_parent: bool,
    ) -> None:
        self._state = state
        self._save = save
        self._on_progress = on_progress
        self._die_with_parent = die_with_parent

    def bring_up(self, parts: Sequence[Part], timeout_s: float) -> None:
        """Start the parts that do not run, and return when all are ready. Raise `NotStarted`; the others keep running
        then."""
        deadline = time.monotonic() + timeout_s
        for attempt in range(1, _STARTS + 1):
            down = [part for part in parts if not part.running]
            # Ports first: the configuration of a part has the ports of others.
            for part in down:
                if not part.record.settled and part.has_lost_port():
                    part.choose_ports(self._state.ports())
            for part in down:
                self._launch(part)
            displaced = self._wait_ready(parts, deadline, may_displace=attempt < _STARTS)
            if not displaced:
                return
            for part in displaced:
                self._change_ports(part, parts)

    def _launch(self, part: Part) -> None:
        record = part.record
        part.configure(self._state)
        record.launching, record.process, record.stopped = True, None, False
        record.log_from = part.log.stat().st_size if part.log.exists() else 0
        self._save()
        try:
            record.process = start(part.command, part.log, part.environment(), die_with_parent=self._die_with_parent)
        except OSError as error:
            raise NotStarted(f"{part.name} can't be started: {error}") from None
        finally:
            record.launching = False
            self._save()

    def _wait_ready(self, parts: Sequence[Part], deadline: float, *, may_displace: bool) -> list[Part]:
        """Return the parts that have lost a port to another program. If there are none, all parts are ready."""
        waiting = {part.name: part for part in parts}
        failed: list[Part] = []
        displaced: list[Part] = []
        reported_at = 0.0
        with _ReadinessChecks(len(parts)) as checks:
            while waiting:
                for name, part in list(waiting.items()):
                    if not part.running:
                        del waiting[name]
                        lost = may_displace and not part.record.settled and part.has_lost_port()
                        (displaced if lost else failed).append(part)
                    elif checks.find_reason(part) == "":
                        if not part.record.settled:
                            part.record.settled = True
                            self._save()
                        del waiting[name]
                if failed or any(isinstance(part, ZooKeeperPart) for part in displaced):
                    break
                reasons = {name: reason for name, part in waiting.items() if (reason := checks.find_reason(part))}
                if reasons and time.monotonic() >= reported_at + _PROGRESS_S:
                    reported_at = time.monotonic()
                    self._on_progress("; ".join(f"{name}: {reason}" for name, reason in reasons.items()))
                if waiting and time.monotonic() >= deadline:
                    late = next(iter(waiting.values()))
                    raise NotStarted(
                        f"{late.name} is not ready in time: {reasons.get(late.name, 'no reason reported')}\n"
                        f"it logged ({late.log}):\n{late.read_log_end()}"
                    )
                time.sleep(_POLL_S)
        if failed:
            raise NotStarted(
                "\n".join(f"{one.name} has ended; it logged ({one.log}):\n{one.read_log_end()}" for one in failed)
            )
        return displaced

    def _change_ports(self, part: Part, parts: Sequence[Part]) -> None:
        """Choose other ports. The other parts have a ZooKeeper server's port since their start, so they are killed,
        to be started again."""
        part.choose_ports(self._state.ports())
        self._save()
        if isinstance(part, ZooKeeperPart):
            kill_parts([other for other in parts if other is not part])


class _ReadinessChecks:
    """Checks parts concurrently, each with one request at a time."""

    def __init__(self, parts: int) -> None:
        self._pool = ThreadPoolExecutor(max(parts, 1))
        self._requests: dict[str, Future[str]] = {}
        # The last answer of each part.
        self._answers: dict[str, str] = {}

    def __enter__(self) -> _ReadinessChecks:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def find_reason(self, part: Part) -> str | None:
        """Return why the part is not ready, by its last answer. Empty: it is ready. None: it has not answered yet."""
        request = self._requests.get(part.name)
        if request is not None and request.done():
            self._answers[part.name] = request.result()
            request = None
        if request is None and self._answers.get(part.name) != "":
            self._requests[part.name] = self._pool.submit(part.find_unready_reason)
        return self._answers.get(part.name)


def stop_parts(parts: Sequence[Part], timeout_s: float, on_progress: Callable[[str], None]) -> None:
    """Send SIGTERM to all parts, and wait for their end. Paused parts are resumed to receive it. After the timeout
    they are killed."""
    signalled = []
    for part in parts:
        process = part.record.process
        if process is not None and send(process, signal.SIGTERM):
            send(process, signal.SIGCONT)
            signalled.append(part)
    deadline = time.monotonic() + timeout_s
    for part in signalled:
        assert part.record.process is not None
        if not wait_ended(part.record.process, max(deadline - time.monotonic(), 0.0)):
            on_progress(f"{part.name} has not ended within {timeout_s:g} s: it is killed")
            kill_parts([part])


def kill_parts(parts: Sequence[Part]) -> None:
    """Kill all parts, and wait for their end. Raise `ClusterError` if one does not end."""
    signalled = [
        part for part in parts if part.record.process is not None and send(part.record.process, signal.SIGKILL)
    ]
    for part in signalled:
        assert part.record.process is not None
        if not wait_ended(part.record.process, _KILLED_S):
            raise ClusterError(f"{part.name}, process {part.record.process.pid}, was killed and has not ended")
