"""One run of a client process: `python -m tests.faults.torture.client_process URL PULSAR_URL LISTENER HISTORIES SEED
ROLE RUN WORKLOADS`.

Its role determines which workers of the workloads run in it. It prints `begun` when they run. After `stop` on standard
input its producers end, and it prints `stopped`; after `end_readers` its positioned readers do, and it prints
`readers_ended`; after `quit` all end, and it prints `ended`. A worker that fails for a
reason of its own makes it print `broken`, and the traceback is in standard error.

The role `keep` is for the end: it reads the subscriptions that nobody has read so far.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.faults.checker.recorder import Recorder
from tests.faults.torture import workloads as registered
from tests.faults.torture.clients import Clients
from tests.faults.torture.consumers import consumer, cumulatively
from tests.faults.torture.letters import letter_reader
from tests.faults.torture.workload import Subscription, Worker, Workload
from tests.faults.workload_processes import die_with_parent

__all__ = ["CONSUMING", "KEEP", "PUBLISHING", "ROLES", "assign_workers", "keep_subscriptions"]

PUBLISHING: Final = ("publish-1", "publish-2")
CONSUMING: Final = ("consume-1", "consume-2")
# Consumers are started first: a topic with a quota takes no messages before its consumer runs.
ROLES: Final = (*CONSUMING, *PUBLISHING)
KEEP: Final = "keep"

Run = Callable[[Clients], None]


def keep_subscriptions(workloads: Sequence[Workload]) -> tuple[Subscription, ...]:
    """On each topic that retains all, a subscription from the beginning that is not read before the end: so nothing is
    trimmed, and its reader gets everything.
    """
    topics = [topic for workload in workloads for topic in workload.topics]
    return tuple(Subscription(topic.name, KEEP, "Exclusive") for topic in topics if topic.retains_all)


@dataclass(frozen=True, slots=True)
class Assigned:
    """The workers of one role."""

    producers: Sequence[Run] = ()
    consumers: Sequence[Run] = ()
    positioned_readers: Sequence[Run] = ()


def assign_workers(workloads: Sequence[Workload], role: str) -> Assigned:
    """Workers are assigned to the processes of their kind in turn."""
    if role == KEEP:
        with_letters = {topic.name for workload in workloads for topic in workload.topics if topic.has_letters}
        keeping = [
            letter_reader(one.topic, KEEP, KEEP)
            if one.topic in with_letters
            else consumer(one.topic, KEEP, "Exclusive", KEEP, cumulatively, most=1000)
            for one in keep_subscriptions(workloads)
        ]
        return Assigned(consumers=keeping)
    producers = [worker for workload in workloads for worker in workload.producers]
    consumers = [worker for workload in workloads for worker in workload.consumers]
    readers = [worker for workload in workloads for worker in workload.positioned_readers]
    return Assigned(
        _share(producers, PUBLISHING, role), _share(consumers, CONSUMING, role), _share(readers, CONSUMING, role)
    )


def _share(workers: Sequence[Worker], roles: Sequence[str], role: str) -> list[Run]:
    runs = [worker.run for worker in workers for _ in range(worker.processes)]
    return [run for number, run in enumerate(runs) if roles[number % len(roles)] == role]


class _Workers:
    """Threads, one for each worker."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self.broken: list[BaseException] = []

    def start(self, runs: Sequence[Run]) -> list[threading.Thread]:
        threads = [threading.Thread(target=self._guarded, args=(run,), daemon=True) for run in runs]
        for thread in threads:
            thread.start()
        return threads

    def _guarded(self, run: Run) -> None:
        try:
            run(self._clients)
        except BaseException as error:  # any error is reported to the rig
            self.broken.append(error)
            raise

    def answer(self, threads: Sequence[threading.Thread], answer: str) -> None:
        """Print the answer when these have ended."""
        for thread in threads:
            thread.join()
        _say(f"broken {self.broken}" if self.broken else answer)


def main(
    url: str, pulsar_url: str, listener: str, histories: str, seed: str, role: str, run: str, workloads: str
) -> None:
    writer = f"{role}-{run}"
    recorder = Recorder(Path(histories), writer)
    clients = Clients(url, pulsar_url, listener or None, Path(histories), seed, writer, recorder)
    assigned = assign_workers(registered.named(workloads.split(",")), role)
    if role == KEEP:
        clients.stopping.set()
    workers = _Workers(clients)
    producing, consuming = workers.start(assigned.producers), workers.start(assigned.consumers)
    reading = workers.start(assigned.positioned_readers)
    _say("begun")
    _wait_for("stop")
    clients.stopping.set()
    workers.answer(producing, "stopped")
    _wait_for("end_readers")
    clients.readers_ending.set()
    workers.answer(reading, "readers_ended")
    _wait_for("quit")
    clients.quitting.set()
    for thread in consuming:
        thread.join()
    clients.close()
    workers.answer(consuming, "ended")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _wait_for(command: str) -> None:
    line = sys.stdin.readline().strip()
    if line != command:
        raise SystemExit(f"expected {command!r} on standard input, and read {line!r}")


if __name__ == "__main__":
    # By itself: the rig has used gRPC, and nothing is to run between its fork and this program.
    die_with_parent()
    main(*sys.argv[1:])
