"""Find the broker of a cluster that serves a topic, by a lookup, for tests that inject faults into it."""

from __future__ import annotations

import asyncio
import contextlib

from magnetar_cli.cluster import LocalCluster
from magnetar_protos.broker_pb2 import LookupAnswer, LookupRequest
from magnetar_wire.grpc_transport import GrpcTransport
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import TransportError
from tests.running import until

__all__ = ["address_of", "looked_up", "owner_of"]


async def looked_up(at: str, topic: str, listener_name: str = "") -> LookupAnswer:
    """Return the answer of the broker at this address."""
    connection = GrpcTransport().connect(at)
    try:
        request = LookupRequest(topic=str(TopicName.parse(topic)), listener_name=listener_name)
        return LookupAnswer.FromString(await connection.call("lookup", request.SerializeToString(), timeout_s=10))
    finally:
        await connection.close()


def address_of(cluster: LocalCluster, topic: str) -> str:
    """Wait until a running broker knows the topic's owner, and return its address."""
    found: list[str] = []

    async def known() -> bool:
        for name in cluster.broker_names():
            broker = cluster.broker(name)
            if broker.running:
                with contextlib.suppress(TransportError):
                    answer = await looked_up(broker.address, topic)
                    if answer.HasField("problem"):
                        continue
                    found.append(answer.address)
                    return True
        return False

    asyncio.run(until(known, f"{topic} has an owner"))
    return found[0]


def owner_of(cluster: LocalCluster, topic: str) -> str:
    """Return the name of the topic's owner."""
    address = address_of(cluster, topic)
    return next(name for name in cluster.broker_names() if cluster.broker(name).address == address)
