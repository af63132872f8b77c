"""Writing and closing a ledger over real streams, with bookies that fail."""

from __future__ import annotations

from tests.unit.bookie.writer_scene import Outcomes, Scene, scenario


@scenario()
async def test_a_ledger_is_written_and_closed(scene: Scene) -> None:
    writer = await scene.writer()
    assert [await writer.add(b"entry %d" % number) for number in range(20)] == list(range(20))
    outcomes = Outcomes(writer)
    outcomes.append(*[b"more"] * 500)
    metadata = await writer.close()
    assert outcomes.told == list(range(20, 520))
    assert (metadata.closed, metadata.last_entry_id) == (True, 519)
    assert metadata.length_bytes == sum(len(b"entry %d" % number) for number in range(20)) + 2000
    for bookie in scene.ensemble(writer):
        assert len(bookie.entries(writer.ledger_id)) == 520
        assert max(bookie.frames) > 100  # what gathered left together


@scenario()
async def test_a_bookie_that_dies_is_replaced(scene: Scene) -> None:
    writer = await scene.writer()
    await writer.add(b"before")
    spare, dead = scene.spare(writer), scene.ensemble(writer)[1]
    await dead.go(registered=True)
    assert [await writer.add(b"after") for _ in range(5)] == [1, 2, 3, 4, 5]
    await scene.settled(lambda: spare.bookie_id in writer.metadata.last_fragment.bookies)
    assert await writer.add(b"last") == 6
    metadata = await writer.close()
    assert metadata.last_entry_id == 6
    assert len(metadata.fragments) == 2
