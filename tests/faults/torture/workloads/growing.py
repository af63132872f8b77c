"""A topic that gets partitions while it is written to and read. Its messages have no keys, whose partitions would be
others from then on."""

from __future__ import annotations

import time

import magnetar
from magnetar.admin import Admin
from tests.faults.torture.clients import Clients
from tests.faults.torture.consumers import async_consumer, consumer, cumulatively, some_each_async
from tests.faults.torture.producing import Load, error_text, publisher
from tests.faults.torture.workload import Subscription, Topic, Worker, Workload

TOPIC = "growing"
_FIRST, _MOST = 1, 3
_AFTER_S = 8.0
_LOAD = Load(burst=30, options={"auto_update_partitions_interval_seconds": 1})


def grow(clients: Clients) -> None:
    """Add a partition now and then. The present number is read each time: an earlier run of the process that was
    killed, or got no answer, may have added one.
    """
    chance = clients.chance("grow")
    with Admin(clients.url) as admin:
        while not clients.stopping.wait(_AFTER_S * (0.5 + chance.random())):
            try:
                partitions = admin.topics.get_partitioned(TOPIC).partitions
            except magnetar.MagnetarException:  # it is retried
                continue
            if partitions >= _MOST:
                return
            _add_partition(clients, admin, partitions + 1)


def _add_partition(clients: Clients, admin: Admin, partitions: int) -> None:
    clients.recorder.say("topic", **WORKLOAD.topics[0].fields(partitions))
    begun, result, why = time.monotonic(), "done", ""
    try:
        admin.topics.update_partitioned(TOPIC, partitions)
    except magnetar.MagnetarException as error:
        result, why = "unknown", error_text(error)
    clients.recorder.say("act", begun=begun, act="grow", target=TOPIC, result=result, why=why)


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
