"""Clients of a standalone, as a process of its own: `python -m tests.faults.standalone_workload URL FOLDER SEED`.

    t0   one producer that batches, one that sends message by message, one of asyncio's; read by an Exclusive consumer
         that acknowledges cumulatively, and by a reader
    t1   two producers; read by two Shared consumers, one of asyncio's, which acknowledge some messages of each batch
    t2   three partitions, messages with keys; read by a Failover consumer

Acknowledgements are asked to have receipts, and consumers are closed and subscribed anew now and then. On each topic a
subscription `keep` is made at the beginning, and read at the end: it sees all that there is. Everybody writes down what
happens (standalone_history.py). Told `stop` on standard input, producers end, and consumers go on until they have seen
all that had a receipt: then it says `drained`. Told `quit`, it ends.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import magnetar
from magnetar import aio
from tests.faults.client_work import (
    PARTITIONED,
    PLAIN,
    SHARED,
    Work,
    consume_cumulatively,
    consume_shared,
    consume_shared_async,
    options,
    produce,
    produce_async,
    read_all,
)


class WatchedWork(Work):
    """That of one process with all clients, which knows what is missing."""

    def __init__(self, url: str, folder: Path, seed: str) -> None:
        super().__init__(url, folder, seed)
        # By subscription: what it has seen, and what had a receipt and it has not seen yet.
        self.seen: dict[str, set[tuple[str, int]]] = {}
        self._missing: dict[str, set[tuple[str, int]]] = {}
        # Producers that have not ended.
        self.producing = 0
        self._lock = threading.Lock()

    def producers(self, more: int) -> None:
        with self._lock:
            self.producing += more

    def subscribed(self, subscription: str) -> None:
        self.seen[subscription] = set()
        self._missing[subscription] = set()

    def was_sent(self, topic: str, producer: str, numbers: Sequence[int]) -> None:
        sent = [(producer, number) for number in numbers]
        with self._lock:
            for name, seen in self.seen.items():
                if name.partition(".")[0] == topic:
                    self._missing[name].update(one for one in sent if one not in seen)

    def was_seen(self, subscription: str, found: Sequence[tuple[str, int]]) -> None:
        with self._lock:
            self.seen[subscription].update(found)
            self._missing[subscription].difference_update(found)

    def missing(self) -> dict[str, int]:
        """Of each subscription: how much of what had a receipt it has not seen."""
        with self._lock:
            return {name: len(missing) for name, missing in self._missing.items()}


def read_kept(work: WatchedWork, topic: str) -> None:
    """What the subscription has that nobody has read so far. Until then nothing is trimmed, and all others may read."""
    work.stopping.wait()
    while work.producing or any(count for name, count in work.missing().items() if not name.endswith(".keep")):
        work.quitting.wait(0.1)
    consume_cumulatively(work, topic, "keep", magnetar.ConsumerType.Exclusive)


async def asynchronous(work: Work) -> None:
    client = aio.Client(work.url)
    await asyncio.gather(
        produce_async(work, client, PLAIN, "aio"),
        produce_async(work, client, SHARED, "aio"),
        produce_async(work, client, PARTITIONED, "aio"),
        consume_shared_async(work, client, SHARED, "shared"),
    )
    await client.close()


def workers(work: WatchedWork) -> list[Callable[[], object]]:
    failover, exclusive = magnetar.ConsumerType.Failover, magnetar.ConsumerType.Exclusive
    return [
        lambda: produce(work, PLAIN, "batched", batching=True),
        lambda: produce(work, PLAIN, "single", batching=False),
        lambda: produce(work, SHARED, "batched", batching=True),
        lambda: produce(work, PARTITIONED, "keyed", batching=True, keys=11),
        lambda: consume_cumulatively(work, PLAIN, "cumulative", exclusive),
        lambda: consume_cumulatively(work, PARTITIONED, "failover", failover),
        lambda: consume_shared(work, SHARED, "shared"),
        lambda: read_all(work, PLAIN),
        *(lambda topic=topic: read_kept(work, topic) for topic in (PLAIN, SHARED, PARTITIONED)),
        lambda: asyncio.run(asynchronous(work)),
    ]


def main(url: str, folder: str, seed: str) -> None:
    work = WatchedWork(url, Path(folder), seed)
    subscriptions = {PLAIN: ("keep", "cumulative"), SHARED: ("keep", "shared"), PARTITIONED: ("keep", "failover")}
    for topic, names in subscriptions.items():
        for name in names:
            kind = magnetar.ConsumerType.Shared if name == "shared" else magnetar.ConsumerType.Exclusive
            work.client.subscribe(topic, name, **options(kind)).close()
            work.subscribed(f"{topic}.{name}")
    work.subscribed(f"{PLAIN}.reader")
    broken: list[BaseException] = []

    def guarded(worker: Callable[[], object]) -> None:
        try:
            worker()
        except BaseException as error:  # whatever it is, the rig is told
            broken.append(error)
            raise

    threads = [threading.Thread(target=guarded, args=(worker,), daemon=True) for worker in workers(work)]
    for thread in threads:
        thread.start()
    _say("begun")
    sys.stdin.readline()
    work.stopping.set()
    told = 0.0
    while not broken and (work.producing or any(work.missing().values())):
        if time.monotonic() > told + 5:
            told = time.monotonic()
            sys.stderr.write(f"missing {work.missing()}" + "\n")
        time.sleep(0.1)
    _say(f"broken {broken}" if broken else "drained")
    sys.stdin.readline()
    work.quitting.set()
    for thread in threads:
        thread.join()
    work.client.close()
    work.histories.close()
    _say("ended")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
