"""A topic that gets partitions while it is written to and read. Its messages have no keys, whose partitions would be
others from then on."""

from __future__ import annotations

import time

import magnetar
from magnetar.admin import Admin
from tests.faults.torture.clients import Clients
from tests.faults.torture.consumers import async_consumer, consumer, cumulatively, some_each_async
from tests.faults.torture.producing import AGAIN_S, Load, publisher, told
from tests.faults.torture.workload import Subscription, Topic, Worker, Workload

TOPIC = "growing"
_FIRST, _MOST = 1, 3
_AFTER_S = 8.0
_LOAD = Load(burst=30, options={"auto_update_partitions_interval_seconds": 1})


def grow(clients: Clients) -> None:
    """One partition more now and then. How many there are is asked afterwards, and so in each life of the process: one
    that was killed, or not answered, may have done it."""
    chance, known = clients.chance("grow"), _FIRST
    with Admin(clients.url) as admin:
        while known < _MOST and not clients.stopping.wait(_AFTER_S * (0.5 + chance.random())):
            _add_partition(clients, admin, known + 1)
            known = _say_partitions(clients, admin, known)
        _say_partitions(clients, admin, known)


def _add_partition(clients: Clients, admin: Admin, partitions: int) -> None:
    begun, result, why = time.monotonic(), "done", ""
    try:
        admin.topics.update_partitioned(TOPIC, partitions)
    except magnetar.MagnetarException as error:
        result, why = "unknown", told(error)
    clients.recorder.say("act", begun=begun, act="grow", target=TOPIC, result=result, why=why)


def _say_partitions(clients: Clients, admin: Admin, known: int) -> int:
    """How many there are, which is said if they are more than were known."""
    now = known
    while not clients.quitting.is_set():
        try:
            now = admin.topics.get_partitioned(TOPIC).partitions
            break
        except magnetar.MagnetarException:
            clients.quitting.wait(AGAIN_S)
    if now > known:
        topic = WORKLOAD.topics[0]
        clients.recorder.say("topic", topic=TOPIC, partitions=now, order=topic.order, deduplicated=topic.deduplicated)
    return now


WORKLOAD = Workload(
    name="growing",
    topics=(Topic(TOPIC, partitions=_FIRST),),
    subscriptions=(Subscription(TOPIC, "cumulative", "Exclusive"), Subscription(TOPIC, "each", "Shared")),
    producers=(
        Worker(grow),
        Worker(publisher(TOPIC, "sync", _LOAD)),
        Worker(publisher(TOPIC, "asyncio", _LOAD, asynchronous=True)),
    ),
    consumers=(
        Worker(consumer(TOPIC, "cumulative", "Exclusive", "sync", cumulatively)),
        Worker(async_consumer(TOPIC, "each", "Shared", "asyncio", some_each_async)),
    ),
)
