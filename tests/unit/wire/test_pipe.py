"""Pipes: their own bounds, and one that many share."""

from __future__ import annotations

import asyncio

from magnetar_wire.pipe import Pipe, SharedBytes
from magnetar_wire.transport import Disconnected


async def waits(work: asyncio.Task[None]) -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return not work.done()


async def test_above_a_shared_bound_each_pipe_holds_one_message() -> None:
    """CHK-49: whose messages are taken goes on; what was held is given back however a pipe ends."""
    shared = SharedBytes(100)
    stuck, other = Pipe(16, 1000, shared), Pipe(16, 1000, shared)
    for _ in range(12):
        if shared.used_bytes < 100:
            await stuck.put(bytes(10))
    assert shared.used_bytes == 100
    more = asyncio.create_task(stuck.put(bytes(10)))
    assert await waits(more)
    for number in range(20):
        await other.put(bytes([number]))
        second = asyncio.create_task(other.put(b"x"))
        assert await waits(second)
        assert await other.get() == bytes([number])
        await second
        assert await other.get() == b"x"
    assert shared.used_bytes == 100
    assert await stuck.get() == bytes(10)
    await more
    stuck.fail(Disconnected("it is over"))
    stuck.discard_messages()
    assert shared.used_bytes == 0
    for _ in range(5):
        await other.put(bytes(10))
    assert shared.used_bytes == 50
