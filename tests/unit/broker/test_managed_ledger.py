"""The log: appends over many ledgers, openings, and what is read back."""

from __future__ import annotations

from magnetar_broker.core.position import EARLIEST, Position
from tests.unit.broker.log_scene import Scene, in_scene, payload


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"message %d" % number for number in range(first, first + count)]


def test_what_is_appended_is_read_in_order_over_many_ledgers() -> None:
    async def test(scene: Scene) -> None:
        log = await scene.open()
        await scene.append(log, *numbered(20))
        assert [one for one, _ in scene.outcomes.stored] == numbered(20)
        positions = [position for _, position in scene.outcomes.stored]
        assert positions == sorted(positions)
        entries = await scene.read_all(log)
        assert [one.position for one in entries] == positions
        assert [payload(one) for one in entries] == numbered(20)
        assert len({position.ledger_id for position in positions}) == 7
        assert log.entries_between(EARLIEST, log.last) == 20
        assert log.entries_between(positions[4], positions[9]) == 5
        await log.close()
        again = await scene.open()
        assert await scene.payloads(again) == numbered(20)
        assert again.next_index == 20
        await scene.append(again, b"and more")
        assert await scene.payloads(again) == [*numbered(20), b"and more"]
        assert scene.lost == []

    in_scene(test)


def test_without_a_cache_everything_comes_from_the_ledgers() -> None:
    async def test(scene: Scene) -> None:
        log = await scene.open(cache_bytes=0)
        await scene.append(log, *numbered(20))
        for at_a_time in (1, 2, 100):
            assert [payload(one) for one in await scene.read_all(log, at_a_time=at_a_time)] == numbered(20)
        first = scene.outcomes.stored[0][1]
        found = await scene.patiently(log.read_at([Position(first.ledger_id, 2), first, Position(10**9, 0)]))
        assert [None if one is None else payload(one) for one in found] == [b"message 2", b"message 0", None]

    in_scene(test)
