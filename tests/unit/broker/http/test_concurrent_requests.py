"""Requests of several administrators at the same time."""

from __future__ import annotations

import asyncio
from collections import Counter

from tests.unit.broker.http.admin_scene import running_http


async def test_topics_are_created_while_policies_of_their_namespace_change() -> None:
    """TOP-2, TOP-4: over HTTP, over gRPC, and on first use."""
    async with running_http() as scene, scene.broker.client() as client:
        is_done = asyncio.Event()

        async def change_policies() -> int:
            changes = 0
            while not is_done.is_set():
                answer = await scene.ask("POST", "namespaces/public/default/messageTTL", 100 + changes)
                assert answer.status == 204
                changes += 1
            return changes

        changing = [asyncio.create_task(change_policies()) for _ in range(4)]
        try:
            for number in range(10):
                answer = await scene.ask("PUT", f"persistent/public/default/http{number}")
                assert answer.status == 204, answer
                await scene.broker.admin.topics.create(f"grpc{number}")
                await (await client.create_producer(f"used{number}")).close()
            assert (await scene.ask("PUT", "persistent/public/default/parts/partitions", 4)).status == 204
        finally:
            is_done.set()
        assert sum(await asyncio.gather(*changing)) > 0
        assert len(await scene.get("persistent/public/default")) == 34


async def test_one_of_several_equal_requests_succeeds() -> None:
    """TOP-7: the others find what it has done."""
    async with running_http() as scene:
        path = "persistent/public/default/t"
        created = await asyncio.gather(*(scene.ask("PUT", path) for _ in range(10)))
        assert Counter(one.status for one in created) == {204: 1, 409: 9}
        deleted = await asyncio.gather(*(scene.ask("DELETE", f"{path}?force=true") for _ in range(10)))
        assert Counter(one.status for one in deleted) == {204: 1, 404: 9}
