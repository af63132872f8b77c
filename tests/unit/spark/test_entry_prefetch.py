"""A task reads the entries of a slice ahead, in order and without gaps, also from bookies that are slow, killed,
damaged or wrong."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_protos import ledger_pb2 as pb
from magnetar_spark.errors import NotReadNow
from magnetar_spark.log_slice import SlicePiece
from magnetar_spark.task.entry_prefetch import (
    Deletion,
    EntryLocations,
    EntryPrefetcher,
    EntryRun,
    LostEntries,
    estimate_range_entries,
)
from magnetar_testing.clock import ManualClock
from magnetar_wire.transport import Code, Disconnected, NotReached, Rejected
from tests.unit.bookie.honest_bookie import HonestBookie, entry, record_of
from tests.unit.bookie.patience import patiently

# As if an answer took four entries.
MIB = 1 << 20
ALL_HOLD_ALL = Striping(3, 3, 2)


class Scene:
    """Ledgers 7, 8, … whole on all their bookies. A bookie's address is its id and a 0."""

    def __init__(self, striping: Striping = ALL_HOLD_ALL, counts: tuple[int, ...] = (30,)) -> None:
        self.clock = ManualClock()
        self.striping = striping
        self.names = tuple(f"b{slot}" for slot in range(striping.ensemble_size))
        self.addresses = {name: f"{name}:0" for name in self.names}
        self.bookies = {f"{name}:0": HonestBookie(name, self.clock) for name in self.names}
        self.pieces = []
        for ledger_id, count in enumerate(counts, 7):
            for entry_id in range(count + 5):
                for slot in striping.write_set(entry_id):
                    self.bookies[f"b{slot}:0"].keep(ledger_id, record_of(ledger_id, entry_id))
            self.pieces.append(self.piece(ledger_id, 0, count - 1))
        # The answer to requests for a new plan, and these requests.
        self.new_plan: Callable[[], EntryLocations | Deletion] = lambda: self.whereabouts(self.addresses)
        self.planned: list[tuple[int, int, int]] = []

    def piece(self, ledger_id: int, first: int, last: int, entry_bytes: int = MIB) -> SlicePiece:
        size = (last - first + 1) * entry_bytes
        return SlicePiece(ledger_id, first, last, 0, 0, size, 0, self.striping, (Fragment(0, self.names),))

    def open_at(self, entry_id: int) -> None:
        """The ledgers are open, with a last fragment from that entry on; a new plan has the same."""
        fragments = (Fragment(0, self.names), Fragment(entry_id, self.names))
        self.pieces = [replace(piece, fragments=fragments, open=True) for piece in self.pieces]
        self.new_plan = lambda: EntryLocations(self.striping, fragments, self.addresses, open=True)

    def whereabouts(self, addresses: dict[str, str], names: tuple[str, ...] = (), first: int = 0) -> EntryLocations:
        return EntryLocations(self.striping, [Fragment(0, names or self.names)], addresses, first)

    def runs(self) -> EntryPrefetcher:
        return EntryPrefetcher(self.pieces, self.addresses, self._ask, self._new_plan, self.clock)

    async def all(self) -> list[EntryRun | LostEntries]:
        runs = self.runs()
        found = []
        while (one := await patiently(self.clock, runs.read_next())) is not None:
            found.append(one)
        await runs.close()
        return found

    def requests(self) -> list[pb.ReadRequest]:
        return [request for bookie in self.bookies.values() for request in bookie.reads()]

    async def _ask(self, address: str, request: pb.ReadRequest, timeout_s: float) -> pb.ReadAnswer:
        bookie = self.bookies.get(address)
        if bookie is None:
            raise NotReached(f"nobody is at {address!r}")
        return await bookie.read(pb.ReadRequest.FromString(request.SerializeToString()))

    async def _new_plan(self, ledger_id: int, first: int, last: int) -> EntryLocations | Deletion:
        self.planned.append((ledger_id, first, last))
        await asyncio.sleep(0)
        return self.new_plan()


def read_of(found: list[EntryRun | LostEntries]) -> list[tuple[int, int]]:
    """Ledgers and entries; each run must have the entries that it declares."""
    entries = []
    for one in found:
        assert isinstance(one, EntryRun)
        for entry_id, stored in enumerate(one.entries, one.first_entry_id):
            assert stored == entry(entry_id)
            entries.append((one.piece.ledger_id, entry_id))
    return entries


def all_of(*counts: int) -> list[tuple[int, int]]:
    return [(ledger_id, entry_id) for ledger_id, count in enumerate(counts, 7) for entry_id in range(count)]


@pytest.mark.parametrize("striping", [ALL_HOLD_ALL, Striping(3, 2, 2), Striping(4, 1, 1)], ids=str)
async def test_pieces_are_read_in_order_and_not_past_their_end(striping: Striping) -> None:
    """SPK-5: plain range reads, several at a time and in order, that fence nothing and never pass the piece."""
    scene = Scene(striping, (30, 3, 17))
    assert read_of(await scene.all()) == all_of(30, 3, 17)
    counts = {7: 30, 8: 3, 9: 17}
    for request in scene.requests():
        assert not request.fence
        assert not request.master_key
        assert request.last_entry_id < counts[request.ledger_id]
    assert {method for bookie in scene.bookies.values() for method, _ in bookie.calls} == {"read"}
    assert not scene.planned


async def test_piece_is_read_from_its_first_to_its_last_entry() -> None:
    scene = Scene()
    scene.pieces = [scene.piece(7, 11, 11), scene.piece(7, 13, 22)]
    assert read_of(await scene.all()) == [(7, 11), *((7, entry_id) for entry_id in range(13, 23))]


async def test_read_ahead_is_limited() -> None:
    scene = Scene(counts=(30,))

    runs = scene.runs()
    first = await runs.read_next()
    assert isinstance(first, EntryRun)
    for _ in range(100):
        await asyncio.sleep(0)
    share = estimate_range_entries(scene.pieces[0])
    assert 1 < len(first.entries) <= share
    # That one, and four more.
    assert sum(request.last_entry_id - request.first_entry_id + 1 for request in scene.requests()) == 5 * share
    await runs.close()


async def test_entries_that_are_larger_than_the_others_take_more_answers_and_no_more_memory() -> None:
    scene = Scene(counts=(30,))
    scene.pieces = [scene.piece(7, 0, 29, 1)]  # they say that an answer takes all of them
    for bookie in scene.bookies.values():
        bookie.lie = lambda request, answer: _shortened(answer, request.first_entry_id, 3)
    found = await scene.all()
    assert read_of(found) == all_of(30)


def _shortened(answer: pb.ReadAnswer, first: int, count: int) -> pb.ReadAnswer:
    """As if `count` entries filled it."""
    del answer.records[count:]
    answer.next_entry_id = min(answer.next_entry_id, first + count)
    return answer


@pytest.mark.parametrize("striping", [ALL_HOLD_ALL, Striping(3, 2, 2)], ids=str)
async def test_entries_unreadable_on_one_replica_are_read_from_another(striping: Striping) -> None:
    """SPK-5: of replicas that fail, lack entries, hold them damaged or lie, the request goes to the next one."""

    def fails(bookie: HonestBookie) -> None:
        bookie.failing.add("read")

    def hangs(bookie: HonestBookie) -> None:
        bookie.hanging.add("read")

    def lacks(bookie: HonestBookie) -> None:
        for entry_id in range(5, 25):
            bookie.ledger(7).records.pop(entry_id, None)

    def rots(bookie: HonestBookie) -> None:
        for entry_id in list(bookie.ledger(7).records)[3:20]:
            bookie.damage(7, entry_id)

    def lies(bookie: HonestBookie) -> None:
        bookie.lie = lambda _, answer: pb.ReadAnswer(
            status=pb.OK, records=[record_of(7, 0)] * len(answer.records), next_entry_id=answer.next_entry_id
        )

    def stands_still(bookie: HonestBookie) -> None:
        bookie.lie = lambda request, _: pb.ReadAnswer(status=pb.OK, next_entry_id=request.first_entry_id)

    for trouble in (fails, hangs, lacks, rots, lies, stands_still):
        scene = Scene(striping, (30,))
        trouble(scene.bookies["b1:0"])
        assert read_of(await scene.all()) == all_of(30), trouble.__name__
        assert not scene.planned, trouble.__name__


async def test_bookie_failure_during_a_read_loses_no_entry() -> None:
    scene = Scene(counts=(40,))
    requests = itertools.count()

    def fails_soon(_: str) -> None:
        if next(requests) >= 2:
            scene.bookies["b0:0"].failing.add("read")

    scene.bookies["b0:0"].before = fails_soon
    assert read_of(await scene.all()) == all_of(40)


async def test_replicas_that_have_moved_are_found_by_one_new_plan() -> None:
    """SPK-5: if no replica has an entry, one new plan is requested, for all ranges that need it."""
    scene = Scene(counts=(30, 10))
    for name in scene.names:
        moved = scene.bookies.pop(f"{name}:0")
        scene.bookies[f"{name}:1"] = moved
    scene.new_plan = lambda: scene.whereabouts({name: f"{name}:1" for name in scene.names})
    assert read_of(await scene.all()) == all_of(30, 10)
    assert scene.planned == [(7, 0, 29), (8, 0, 9)]


async def test_entries_lost_on_all_replicas_are_reported_and_others_read() -> None:
    scene = Scene(Striping(3, 3, 2), (30,))
    for bookie in scene.bookies.values():
        for entry_id in range(9, 14):
            del bookie.ledger(7).records[entry_id]
        bookie.damage(7, 20)
    found = await scene.all()
    lost = [entry_id for one in found if isinstance(one, LostEntries) for entry_id in _ids(one)]
    assert lost == [9, 10, 11, 12, 13, 20]
    # Ranges end there, and not every lost entry costs a request.
    assert len([one for one in found if isinstance(one, LostEntries)]) <= 4
    there = [one for one in found if isinstance(one, EntryRun)]
    assert read_of([*there]) == [at for at in all_of(30) if at[1] not in lost]
    assert len(scene.planned) == 1


def _ids(lost: LostEntries) -> range:
    return range(lost.first_entry_id, lost.last_entry_id + 1)


@pytest.mark.parametrize("deleted", Deletion)
async def test_deleted_ledger_is_reported_lost_and_the_rest_is_read(deleted: Deletion) -> None:
    scene = Scene(counts=(30, 30))
    for bookie in scene.bookies.values():
        bookie.ledger(7).deleted = True
    scene.new_plan = lambda: deleted
    found = await scene.all()
    # By ranges, and not by entries.
    assert len([one for one in found if isinstance(one, LostEntries)]) <= 10
    assert [entry_id for one in found if isinstance(one, LostEntries) for entry_id in _ids(one)] == [*range(30)]
    assert read_of([one for one in found if isinstance(one, EntryRun)]) == all_of(30, 30)[30:]
    scene = Scene(counts=(30,))
    for bookie in scene.bookies.values():
        for entry_id in range(12):
            del bookie.ledger(7).records[entry_id]
    scene.new_plan = lambda: scene.whereabouts(scene.addresses, first=12)
    found = await scene.all()
    assert [entry_id for one in found if isinstance(one, LostEntries) for entry_id in _ids(one)] == [*range(12)]
    assert read_of([one for one in found if isinstance(one, EntryRun)]) == all_of(30)[12:]


@pytest.mark.parametrize("deleted", Deletion)
async def test_entries_leased_from_a_deleted_topic_are_still_read(deleted: Deletion) -> None:
    """SPK-5, protocol.md's Leases, 4: an overloaded bookie has not reported that the entry is lost"""
    scene = Scene(counts=(30,))
    for bookie in scene.bookies.values():
        bookie.failing.add("read")

    def planned() -> Deletion:
        for bookie in scene.bookies.values():
            bookie.failing.discard("read")
        return deleted

    scene.new_plan = planned
    assert read_of(await scene.all()) == all_of(30)
    assert len(scene.planned) == 1


async def test_unreachable_ledger_is_lost_only_if_deleted_from_its_log() -> None:
    """A deleted topic has nobody to say so: unknown is not no."""
    scene = Scene(counts=(10,))
    scene.bookies.clear()
    scene.new_plan = lambda: Deletion.LEDGER
    found = await scene.all()
    assert [entry_id for one in found if isinstance(one, LostEntries) for entry_id in _ids(one)] == [*range(10)]
    scene.new_plan = lambda: Deletion.TOPIC

    runs = scene.runs()
    with pytest.raises(NotReadNow, match=r"the topic was deleted, and entry 0 of ledger 7 .* try again later"):
        await patiently(scene.clock, runs.read_next())
    await runs.close()


async def test_bookies_that_are_restarted_are_waited_for() -> None:
    """SPK-1: for reconnectSeconds, ten minutes by default"""
    scene = Scene(counts=(10,))
    away = dict(scene.bookies)
    scene.bookies.clear()

    runs = scene.runs()
    reading = asyncio.ensure_future(runs.read_next())
    began = scene.clock.monotonic()
    while scene.clock.monotonic() < began + 500.0:
        await asyncio.sleep(0)
        scene.clock.advance(1.0)
    assert not reading.done()
    scene.bookies.update(away)
    found = await patiently(scene.clock, asyncio.wait_for(reading, None))
    assert isinstance(found, EntryRun)
    await runs.close()


@pytest.mark.parametrize("how", ["unreached", "failing", "limbo"])
async def test_entries_are_not_reported_lost_if_a_replica_cannot_answer(how: str) -> None:
    """Unknown is not no: two report that they lack it, and the third can't be reached; or all may have lost it."""
    scene = Scene(counts=(10,))
    for name in ("b0", "b1"):
        scene.bookies[f"{name}:0"].ledger(7).records.pop(4)
    if how == "unreached":
        del scene.addresses["b2"]
    elif how == "failing":
        scene.bookies["b2:0"].failing.add("read")
    else:
        scene.bookies["b2:0"].ledger(7).records.pop(4)
        for bookie in scene.bookies.values():
            bookie.ledger(7).limbo = True

    runs = scene.runs()
    with pytest.raises(NotReadNow, match="entry 4 of ledger 7"):
        while await patiently(scene.clock, runs.read_next()):
            pass
    await runs.close()


async def test_an_entry_that_a_bookie_in_limbo_could_get_from_no_other_is_lost() -> None:
    """CHK-67: it has no record, repair would copy it from the others, and they say that they lack it."""
    scene = Scene(counts=(10,))
    for bookie in scene.bookies.values():
        bookie.ledger(7).records.pop(4)
    scene.bookies["b2:0"].ledger(7).limbo = True
    found = await scene.all()
    assert [entry_id for one in found if isinstance(one, LostEntries) for entry_id in _ids(one)] == [4]


async def test_a_copy_that_is_in_flight_to_a_bookie_is_waited_for() -> None:
    """CHK-67, SPK-5: in an open ledger's last fragment all replicas lack the entry, and it comes a moment later."""
    scene = Scene(counts=(30,))
    scene.open_at(10)
    taken = [(bookie, bookie.ledger(7).records.pop(20)) for bookie in scene.bookies.values()]

    runs = scene.runs()
    reading = asyncio.ensure_future(patiently(scene.clock, _all_of(runs)))
    # All got requests for entries after 19, by the old plan and by the new one, and get them again.
    while len([one for one in scene.requests() if one.first_entry_id == 20]) <= 9 and not reading.done():
        await asyncio.sleep(0)
    for bookie, record in taken[:1]:
        bookie.keep(7, record)
    assert read_of(await reading) == all_of(30)
    await runs.close()


async def _all_of(runs: EntryPrefetcher) -> list[EntryRun | LostEntries]:
    found = []
    while (one := await runs.read_next()) is not None:
        found.append(one)
    return found


async def test_missing_entries_of_the_open_fragment_are_not_reported_lost() -> None:
    """CHK-67: in an open ledger's last fragment only an entry that all replicas have damaged is lost. Before it, and
    once the ledger is closed or has left the log, each entry is that all of them lack."""

    def scene_without(entry_id: int) -> Scene:
        scene = Scene(counts=(30,))
        scene.open_at(10)
        for bookie in scene.bookies.values():
            del bookie.ledger(7).records[entry_id]
        return scene

    async def find_lost(scene: Scene) -> list[int]:
        return [entry_id for one in await scene.all() if isinstance(one, LostEntries) for entry_id in _ids(one)]

    async def body() -> None:
        runs = scene.runs()
        with pytest.raises(NotReadNow, match="entry 20 of ledger 7"):
            while await patiently(scene.clock, runs.read_next()):
                pass
        await runs.close()

    scene = scene_without(20)
    await body()
    scene = scene_without(20)
    for bookie in scene.bookies.values():
        bookie.damage(7, 19)
    await body()
    assert await find_lost(scene_without(9)) == [9]
    scene = scene_without(20)
    scene.new_plan = lambda: scene.whereabouts(scene.addresses)
    assert await find_lost(scene) == [20]
    scene = scene_without(20)
    scene.new_plan = lambda: Deletion.LEDGER
    assert await find_lost(scene) == [20]
    scene = Scene(counts=(30,))
    scene.open_at(10)
    for bookie in scene.bookies.values():
        bookie.damage(7, 20)
    assert await find_lost(scene) == [20]


async def test_overloaded_or_restarting_bookie_is_retried() -> None:
    """One bookie, as a standalone has: each of many concurrent tasks gets its rows."""
    scene = Scene(Striping(1, 1, 1), (30,))
    requests = itertools.count()

    def refuses(_: str) -> None:
        number = next(requests)
        if number % 3:
            raise Rejected(Code.RESOURCE_EXHAUSTED, "the bookie executes 64 reads")
        if 6 < number < 20:
            raise Disconnected("it restarts")

    scene.bookies["b0:0"].before = refuses
    assert read_of(await scene.all()) == all_of(30)
    assert len(scene.planned) == 1


async def test_cancelled_read_loses_no_entry_and_close_leaves_no_task() -> None:
    scene = Scene(counts=(30,))

    for name in scene.names:
        scene.bookies[f"{name}:0"].hanging.add("read")
    runs = scene.runs()
    waiting = asyncio.create_task(runs.read_next())
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.wait([waiting])
    for bookie in scene.bookies.values():
        bookie.hanging.clear()
    found: list[EntryRun | LostEntries] = []
    # Requests that hang are replaced by requests to the next replica.
    while (one := await patiently(scene.clock, runs.read_next())) is not None:
        found.append(one)
    assert read_of(found) == all_of(30)
    others = scene.runs()
    scene.bookies["b0:0"].hanging.add("read")
    await patiently(scene.clock, others.read_next())
    await others.close()
    assert await others.read_next() is None
    assert asyncio.all_tasks() == {asyncio.current_task()}
