"""Clients of a cluster, in several processes: `python -m tests.faults.cluster_workload URL FOLDER SEED ROLE LIFE`.

    t0   a producer that batches, one that sends message by message, one of asyncio's; read by an Exclusive consumer
         that acknowledges cumulatively, and by a reader
    t1   two producers, one of which gives up what has no receipt within three seconds, and one of asyncio's; read by
         two Shared consumers in two processes, which acknowledge some messages of each batch
    t2   three partitions, messages with keys and without; read by two Failover consumers in two processes

Each process has one of the ROLES, and may be killed at any time: then another begins the role's next LIFE, whose
producers have other names. Everybody writes down what happens (standalone_history.py). The process says `begun` on
standard output. Told `stop` on standard input, producers end, and it says `stopped`; told `quit`, it ends.

On each topic there is a subscription `keep` from the beginning. It is read at the end, by the role `keep`: so it sees
all that there is.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

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
    produce,
    produce_async,
    read_all,
)

__all__ = ["KEEP", "LISTENER", "ROLES", "SUBSCRIPTIONS"]

# Those that work all the time, and the one for the end.
ROLES: Final = ("publish-1", "publish-2", "consume-1", "consume-2")
KEEP: Final = "keep"
# By topic: those that are made before anything is published, and the kinds of consumers that they have.
SUBSCRIPTIONS: Final = {
    PLAIN: {KEEP: magnetar.ConsumerType.Exclusive, "cumulative": magnetar.ConsumerType.Exclusive},
    SHARED: {KEEP: magnetar.ConsumerType.Exclusive, "shared": magnetar.ConsumerType.Shared},
    PARTITIONED: {KEEP: magnetar.ConsumerType.Exclusive, "failover": magnetar.ConsumerType.Failover},
}
# By which brokers tell them of proxies.
LISTENER: Final = "external"
_TIMELY_MS: Final = 3000
# All parts of a cluster share a machine with its clients.
_PAUSE_S: Final = 0.3

Worker = Callable[[], object]


def on_a_loop(work: Coroutine[Any, Any, None]) -> None:
    """On one that is never closed: gRPC's library hands events to closed loops as well, and drops others' with them."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    asyncio.run_coroutine_threadsafe(work, loop).result()


def producers(work: Work, role: str, life: str) -> list[Worker]:
    if role == "publish-1":
        return [
            lambda: produce(work, PLAIN, f"batched~{life}", batching=True),
            lambda: produce(work, PLAIN, f"single~{life}", batching=False),
            lambda: produce(work, PARTITIONED, f"keyed~{life}", batching=True, keys=11),
        ]
    if role == "publish-2":
        return [
            lambda: produce(work, SHARED, f"batched~{life}", batching=True),
            lambda: produce(work, SHARED, f"timely~{life}", batching=True, send_timeout_millis=_TIMELY_MS),
            lambda: on_a_loop(_produce_async(work, life)),
        ]
    return []


async def _produce_async(work: Work, life: str) -> None:
    client = aio.Client(work.url, listener_name=work.listener_name)
    names = (PLAIN, SHARED, PARTITIONED)
    await asyncio.gather(*(produce_async(work, client, topic, f"aio~{life}") for topic in names))
    await client.close()


def consumers(work: Work, role: str, life: str) -> list[Worker]:
    worker = f"{role}-{life}-"
    failover = magnetar.ConsumerType.Failover
    if role == KEEP:
        return [
            lambda topic=topic: consume_cumulatively(  # type: ignore[misc]
                work, topic, KEEP, magnetar.ConsumerType.Exclusive, worker, most=1000
            )
            for topic in SUBSCRIPTIONS
        ]
    if role == "consume-1":
        return [
            lambda: consume_cumulatively(work, PLAIN, "cumulative", magnetar.ConsumerType.Exclusive, worker),
            lambda: consume_cumulatively(work, PARTITIONED, "failover", failover, worker),
            lambda: consume_shared(work, SHARED, "shared", worker),
        ]
    if role == "consume-2":
        return [
            lambda: consume_cumulatively(work, PARTITIONED, "failover", failover, worker),
            lambda: on_a_loop(_consume_async(work, worker)),
            lambda: read_all(work, PLAIN, worker),
        ]
    return []


async def _consume_async(work: Work, worker: str) -> None:
    client = aio.Client(work.url, listener_name=work.listener_name)
    await consume_shared_async(work, client, SHARED, "shared", worker)
    await client.close()


def main(url: str, folder: str, seed: str, role: str, life: str) -> None:
    work = Work(url, Path(folder), seed, LISTENER)
    work.pause_s = _PAUSE_S
    broken: list[BaseException] = []

    def guarded(worker: Worker) -> None:
        try:
            worker()
        except BaseException as error:  # whatever it is, the rig is told
            broken.append(error)
            raise

    def started(workers: list[Worker]) -> list[threading.Thread]:
        threads = [threading.Thread(target=guarded, args=(worker,), daemon=True) for worker in workers]
        for thread in threads:
            thread.start()
        return threads

    producing, consuming = started(producers(work, role, life)), started(consumers(work, role, life))
    _say("begun")
    sys.stdin.readline()
    work.stopping.set()
    for thread in producing:
        thread.join()
    _say(f"broken {broken}" if broken else "stopped")
    sys.stdin.readline()
    work.quitting.set()
    for thread in consuming:
        thread.join()
    work.client.close()
    work.histories.close()
    _say(f"broken {broken}" if broken else "ended")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
