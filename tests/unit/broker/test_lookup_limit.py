"""The maximum numbers of concurrent lookups and claims, and the errors above them."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_broker.server.grpc import service
from magnetar_broker.server.grpc.lookup import look_up
from magnetar_broker.settings.listeners import LookupSettings
from magnetar_protos.broker_pb2 import (
    ErrorCode,
    LastMessageAnswer,
    LastMessageRequest,
    LookupAnswer,
    LookupRequest,
    PartitionsAnswer,
    PartitionsRequest,
)
from magnetar_protos.ownership_pb2 import BundleOwner, ClaimAnswer, ClaimRequest
from magnetar_wire.bundles import BundleRange
from magnetar_wire.topic_name import NamespaceName
from magnetar_wire.transport import Code, Rejected
from tests.running import until
from tests.unit.broker.cluster_scene import running_brokers

NAME = "persistent://public/default/t"


async def test_lookups_above_the_limit_are_refused() -> None:
    """While the metadata store does not answer, lookups are pending up to the limit. Then all go on."""

    async with running_brokers(brokers=1, max_concurrent_lookup_request=3) as scene:
        one = scene["b1"]
        connection = scene.transport.connect(one.address)

        async def looked_up(topic: str) -> LookupAnswer:
            request = LookupRequest(topic=topic).SerializeToString()
            return LookupAnswer.FromString(await connection.call("lookup", request, timeout_s=60))

        scene.metadata.cut_silently(one.session)
        waiting = [asyncio.create_task(looked_up(f"persistent://public/n{number}/t")) for number in range(3)]
        limit = one.broker.server.lookup_limit
        await until(lambda: limit.in_flight == 3, "they are pending")
        problem = (await looked_up(NAME)).problem
        assert (problem.code, "max_concurrent_lookup_request" in problem.text) == (ErrorCode.TOO_MANY_REQUESTS, True)
        request = PartitionsRequest(topic=NAME).SerializeToString()
        partitions = PartitionsAnswer.FromString(await connection.call("partitions", request, timeout_s=60))
        assert partitions.problem.code == ErrorCode.TOO_MANY_REQUESTS
        request = LastMessageRequest(topic=NAME).SerializeToString()
        last = LastMessageAnswer.FromString(await connection.call("last_message", request, timeout_s=60))
        assert last.problem.code == ErrorCode.TOO_MANY_REQUESTS
        # Lost requests end with their connection, before their timeouts.
        scene.metadata.suspend(one.session)
        scene.metadata.resume(one.session)
        for one_answer in await asyncio.gather(*waiting):
            assert one_answer.problem.code != ErrorCode.TOO_MANY_REQUESTS
        assert limit.in_flight == 0
        assert (await looked_up(NAME)).address
        await connection.close()


async def test_a_cancelled_lookup_does_not_count() -> None:
    async with running_brokers(brokers=1, max_concurrent_lookup_request=2) as scene:
        one = scene["b1"]
        limit = one.broker.server.lookup_limit
        scene.metadata.cut_silently(one.session)
        request = LookupRequest(topic="persistent://public/other/t").SerializeToString()
        waiting = [asyncio.create_task(look_up(one.broker.server, one.broker_session, request)) for _ in range(2)]
        await until(lambda: limit.in_flight == 2, "they are pending")
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        assert limit.in_flight == 0
        scene.metadata.heal(one.session)


def test_the_default_limit_allows_many_clients_at_once() -> None:
    assert LookupSettings().max_concurrent_lookup_request >= 10_000


async def test_claims_above_the_limit_are_refused_before_anything_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = 0
    may_answer = asyncio.Event()

    async def claim_bundle(namespace: NamespaceName, bundle: BundleRange) -> BundleOwner:
        nonlocal claims
        claims += 1
        await may_answer.wait()
        return BundleOwner(broker_id="b")

    monkeypatch.setattr(service, "_MAX_CLAIMS", 2)
    async with running_brokers(brokers=1) as scene:
        monkeypatch.setattr(scene["b1"].ownership, "claim_bundle", claim_bundle)
        connection = scene.transport.connect(scene["b1"].address)
        request = ClaimRequest(namespace="public/default", bundle="0x00000000_0x40000000").SerializeToString()

        async def claim() -> ClaimAnswer:
            return ClaimAnswer.FromString(await connection.call("claim", request, timeout_s=60))

        waiting = [asyncio.create_task(claim()) for _ in range(2)]
        await until(lambda: claims == 2, "they are pending")
        with pytest.raises(Rejected) as refused:
            await claim()
        assert refused.value.code is Code.RESOURCE_EXHAUSTED
        assert claims == 2
        may_answer.set()
        assert [answer.owner.broker_id for answer in await asyncio.gather(*waiting)] == ["b", "b"]
        await claim()
        await connection.close()


async def test_no_read_continues_after_ownership_is_closed() -> None:
    """A shared read is a task of its own, which closing cancels."""

    async with running_brokers(brokers=1) as scene:
        one = scene["b1"]
        ownership = one.broker_session.ownership
        reads = ownership._registered._reads
        scene.metadata.cut_silently(one.session)
        listing = asyncio.create_task(ownership.list_brokers())
        await until(lambda: None in reads, "the read is in flight")
        await ownership.close()
        assert None not in reads
        await asyncio.wait([listing])
        assert listing.exception() is not None
        scene.metadata.heal(one.session)
