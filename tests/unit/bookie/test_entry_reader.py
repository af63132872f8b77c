"""Ranges of entries from replicas that are slow, broken, incomplete or wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from magnetar_bookie.read.entry_reader import EntriesNotRead, EntryReader, Fault
from magnetar_bookie.read.read_answer import MissingReason
from magnetar_bookie.read.record import RECORD_HEADER_BYTES, extract_entry
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_protos import ledger_pb2 as pb
from magnetar_testing.clock import ManualClock
from tests.unit.bookie.honest_bookie import HonestBookie, entry, record_of
from tests.unit.bookie.patience import patiently

LEDGER = 7
BIG = 1_000_000


class Scene:
    """A ledger of `count` entries, whole on all its bookies, and a reader."""

    def __init__(self, striping: Striping, count: int, fragments: list[Fragment] | None = None) -> None:
        self.clock = ManualClock()
        names = tuple(f"b{slot}" for slot in range(striping.ensemble_size))
        self.fragments = fragments or [Fragment(0, names)]
        self.bookies = {
            name: HonestBookie(name, self.clock) for fragment in self.fragments for name in fragment.bookies
        }
        for entry_id in range(count):
            fragment = [each for each in self.fragments if each.first_entry_id <= entry_id][-1]
            for slot in striping.write_set(entry_id):
                self.bookies[fragment.bookies[slot]].keep(LEDGER, record_of(LEDGER, entry_id))
        self.reader = EntryReader(
            LEDGER, striping, self.fragments, self._ask, self.clock, timeout_s=5.0, speculative_timeout_s=2.0
        )

    async def _ask(self, bookie_id: str, request: pb.ReadRequest, timeout_s: float) -> pb.ReadAnswer:
        return await self.bookies[bookie_id].read(pb.ReadRequest.FromString(request.SerializeToString()))

    async def read(self, first: int, last: int, max_bytes: int = BIG) -> tuple[list[bytes], list[Fault]]:
        read = await patiently(self.clock, self.reader.read(first, last, max_bytes))
        return [extract_entry(record) for record in read.records], list(read.faults)

    async def read_all(self, first: int, last: int, max_bytes: int = BIG) -> tuple[list[bytes], list[Fault]]:
        entries: list[bytes] = []
        faults: list[Fault] = []
        while first + len(entries) <= last:
            more, found = await self.read(first + len(entries), last, max_bytes)
            entries += more
            faults += found
        return entries, faults

    def count_reads(self) -> dict[str, int]:
        return {name: len(bookie.reads()) for name, bookie in self.bookies.items() if bookie.reads()}


def entries(first: int, last: int) -> list[bytes]:
    return [entry(entry_id) for entry_id in range(first, last + 1)]


async def test_one_bookie_serves_a_whole_range_where_all_hold_all() -> None:
    scene = Scene(Striping(3, 3, 2), 100)
    assert (await scene.read(4, 99)) == (entries(4, 99), [])
    assert scene.count_reads() == {"b1": 1}


@pytest.mark.parametrize("striping", [Striping(3, 2, 2), Striping(5, 2, 1), Striping(4, 1, 1)], ids=str)
@pytest.mark.parametrize(("first", "last"), [(0, 49), (3, 3), (7, 8), (11, 49)])
async def test_striped_entries_are_read_in_order(striping: Striping, first: int, last: int) -> None:
    scene = Scene(striping, 50)
    assert (await scene.read(first, last)) == (entries(first, last), [])
    assert sum(scene.count_reads().values()) == min(striping.ensemble_size, last - first + 1)


async def test_read_stops_at_fragment_end_and_resumes_in_next_ensemble() -> None:
    scene = Scene(Striping(2, 2, 1), 30, [Fragment(0, ("a", "b")), Fragment(10, ("c", "d")), Fragment(20, ("a", "d"))])
    assert (await scene.read(4, 29)) == (entries(4, 9), [])
    assert (await scene.read_all(0, 29)) == (entries(0, 29), [])


@pytest.mark.parametrize("striping", [Striping(3, 3, 2), Striping(3, 2, 2)], ids=str)
async def test_faulty_replica_is_reported_and_next_one_is_read(
    striping: Striping,
) -> None:
    """CHK-28: a read finds what a replica should have but lacks."""
    scene = Scene(striping, 20)
    del scene.bookies["b1"].ledger(LEDGER).records[1]
    scene.bookies["b0"].damage(LEDGER, 9)
    found, faults = await scene.read_all(0, 19)
    assert found == entries(0, 19)
    expected = [Fault("b0", 9, MissingReason.DAMAGED), Fault("b1", 1, MissingReason.ABSENT)]
    if striping.write_quorum == striping.ensemble_size:  # only the bookie that is read is found
        expected = expected[:1]
    assert sorted(set(faults), key=str) == expected


async def test_replica_that_fills_a_gap_serves_the_remaining_entries() -> None:
    scene = Scene(Striping(3, 3, 2), 20)
    for entry_id in range(5, 20):
        del scene.bookies["b0"].ledger(LEDGER).records[entry_id]
    assert (await scene.read(0, 19))[0] == entries(0, 19)
    assert scene.count_reads() == {"b0": 1, "b1": 1}


async def test_missing_entry_in_limbo_is_read_elsewhere_without_fault() -> None:
    scene = Scene(Striping(2, 2, 1), 3)
    held = scene.bookies["b0"].ledger(LEDGER)
    held.records.clear()
    held.limbo = True
    assert (await scene.read(0, 2)) == (entries(0, 2), [])


async def test_failed_read_is_retried_on_next_replica_immediately() -> None:
    scene = Scene(Striping(3, 3, 2), 5)
    scene.bookies["b0"].failing.add("read")
    before = scene.clock.monotonic()
    assert (await scene.read(0, 4)) == (entries(0, 4), [])
    assert scene.clock.monotonic() == before


async def test_slow_replica_triggers_speculative_read_and_is_deprioritized() -> None:
    scene = Scene(Striping(3, 3, 2), 5)
    scene.bookies["b0"].hanging.add("read")
    assert (await scene.read(0, 4)) == (entries(0, 4), [])
    assert scene.count_reads() == {"b0": 1, "b1": 1}
    assert (await scene.read(0, 4)) == (entries(0, 4), [])
    assert scene.count_reads() == {"b0": 1, "b1": 2}
    scene.clock.advance(60)
    scene.bookies["b0"].hanging.clear()
    assert (await scene.read(0, 4)) == (entries(0, 4), [])
    assert scene.count_reads() == {"b0": 2, "b1": 2}


async def test_unreadable_entry_error_reports_reason_per_bookie() -> None:
    scene = Scene(Striping(3, 3, 2), 5)
    scene.bookies["b0"].failing.add("read")
    del scene.bookies["b1"].ledger(LEDGER).records[3]
    scene.bookies["b2"].damage(LEDGER, 3)
    with pytest.raises(EntriesNotRead) as raised:
        await scene.read(3, 4)
    assert raised.value.reasons == {
        "b0": "b0 is not to be reached",
        "b1": MissingReason.ABSENT.value,
        "b2": MissingReason.DAMAGED.value,
    }
    assert set(raised.value.faults) == {Fault("b1", 3, MissingReason.ABSENT), Fault("b2", 3, MissingReason.DAMAGED)}


@pytest.mark.parametrize("striping", [Striping(3, 3, 2), Striping(3, 2, 2)], ids=str)
async def test_a_read_stays_below_its_bytes_but_for_the_first_entry(striping: Striping) -> None:
    scene = Scene(striping, 40)
    one = RECORD_HEADER_BYTES + len(entry(20))
    for fits in (3, 6, 9):
        found, _ = await scene.read(20, 39, fits * one + 1)
        assert found == entries(20, 19 + fits)
    assert (await scene.read(20, 39, 1))[0] == entries(20, 20)
    assert (await scene.read_all(0, 39, 1)) == (entries(0, 39), [])


Lie = Callable[[pb.ReadRequest, pb.ReadAnswer], None]


def _not_advancing(request: pb.ReadRequest, answer: pb.ReadAnswer) -> None:
    answer.Clear()
    answer.status, answer.next_entry_id = pb.OK, request.first_entry_id


def _one_too_many(_: pb.ReadRequest, answer: pb.ReadAnswer) -> None:
    answer.records.append(answer.records[0])


def _one_too_few(_: pb.ReadRequest, answer: pb.ReadAnswer) -> None:
    del answer.records[-1]


def _absent_beside_its_record(request: pb.ReadRequest, answer: pb.ReadAnswer) -> None:
    answer.absent.append(request.first_entry_id)


def _absent_but_not_requested(_: pb.ReadRequest, answer: pb.ReadAnswer) -> None:
    answer.absent.append(1_000_000)


def _absent_twice(request: pb.ReadRequest, answer: pb.ReadAnswer) -> None:
    del answer.records[0]
    answer.absent.extend([request.first_entry_id] * 2)


def _far_end(_: pb.ReadRequest, answer: pb.ReadAnswer) -> None:
    del answer.records[2:]
    answer.next_entry_id = 2**64 - 1


def _nothing(_: pb.ReadRequest, answer: pb.ReadAnswer) -> None:
    answer.Clear()


def _unknown_status(_: pb.ReadRequest, answer: pb.ReadAnswer) -> None:
    answer.Clear()
    answer.status = 99  # type: ignore[assignment]


def _deleted(_: pb.ReadRequest, answer: pb.ReadAnswer) -> None:
    answer.Clear()
    answer.status = pb.DELETED


def _wrong_order(_: pb.ReadRequest, answer: pb.ReadAnswer) -> None:
    answer.records[0], answer.records[1] = answer.records[1], answer.records[0]


def _another_ledger_s(_: pb.ReadRequest, answer: pb.ReadAnswer) -> None:
    answer.records[0] = record_of(LEDGER + 1, 4)


def _empty_record(_: pb.ReadRequest, answer: pb.ReadAnswer) -> None:
    answer.records[0] = b""


LIES: list[Lie] = [
    _not_advancing,
    _one_too_many,
    _one_too_few,
    _absent_beside_its_record,
    _absent_but_not_requested,
    _absent_twice,
    _far_end,
    _nothing,
    _unknown_status,
    _deleted,
    _wrong_order,
    _another_ledger_s,
    _empty_record,
]


@pytest.mark.parametrize("lie", LIES)
async def test_a_bookie_that_lies_is_a_failed_replica(lie: Lie) -> None:
    def falsify(request: pb.ReadRequest, answer: pb.ReadAnswer) -> pb.ReadAnswer:
        lie(request, answer)
        return answer

    scene = Scene(Striping(3, 3, 2), 20)
    scene.bookies["b1"].lie = falsify
    assert (await scene.read_all(4, 19))[0] == entries(4, 19)
    assert "b2" in scene.count_reads()
    for bookie in scene.bookies.values():
        bookie.lie = falsify
    with pytest.raises(EntriesNotRead):
        await scene.read(4, 19)


async def test_read_returns_highest_reported_lac() -> None:
    scene = Scene(Striping(3, 2, 1), 9)
    scene.bookies["b1"].confirm(LEDGER, 8)
    assert (await scene.reader.read(0, 5)).last_add_confirmed == 8
