"""Ranges read from replicas in any state: what comes is right, without gaps, and comes whenever one replica has it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar_bookie.read.entry_reader import EntriesNotRead, EntryReader
from magnetar_bookie.read.read_answer import MissingReason
from magnetar_bookie.read.record import RECORD_HEADER_BYTES, extract_entry
from magnetar_bookie.read.striping import Fragment, Striping, find_fragment
from magnetar_protos import ledger_pb2 as pb
from magnetar_testing.clock import ManualClock
from magnetar_wire.transport import DeadlinePassed
from tests.examples import examples
from tests.unit.bookie.honest_bookie import HonestBookie, entry, record_of
from tests.unit.bookie.patience import patiently

_LEDGER = 3
_STRIPINGS = [Striping(1, 1, 1), Striping(3, 3, 2), Striping(3, 2, 1), Striping(4, 2, 2), Striping(5, 3, 2)]
_STATES = st.sampled_from(["whole", "whole", "absent", "damaged"])
_MANNERS = st.sampled_from(["honest", "honest", "short", "slow", "failing", "lying"])


@examples(150)
@given(st.data(), st.sampled_from(_STRIPINGS), st.integers(1, 15), st.sampled_from([1, 100, 300, 100_000]))
async def test_entries_of_any_replica_are_read_and_missing_ones_reported(
    data: st.DataObject, striping: Striping, count: int, max_bytes: int
) -> None:
    clock = ManualClock()
    size = striping.ensemble_size
    fragments = [Fragment(0, tuple(f"b{slot}" for slot in range(size)))]
    if data.draw(st.booleans()):
        fragments.append(Fragment(data.draw(st.integers(1, count)), tuple(f"b{slot + 1}" for slot in range(size))))
    bookies = {f"b{slot}": HonestBookie(f"b{slot}", clock) for slot in range(size + 1)}
    manners = {name: data.draw(_MANNERS) for name in bookies}
    readable = dict.fromkeys(range(count), False)
    faults: set[tuple[str, int, MissingReason]] = set()
    for entry_id in range(count):
        for slot in striping.write_set(entry_id):
            name = find_fragment(fragments, entry_id).bookies[slot]
            state = data.draw(_STATES)
            if state != "absent":
                bookies[name].keep(_LEDGER, record_of(_LEDGER, entry_id))
            if state == "damaged":
                bookies[name].damage(_LEDGER, entry_id)
            if state == "whole":
                readable[entry_id] |= manners[name] in ("honest", "short", "slow")
            else:
                faults.add((name, entry_id, MissingReason.ABSENT if state == "absent" else MissingReason.DAMAGED))

    async def ask(bookie_id: str, request: pb.ReadRequest, timeout_s: float) -> pb.ReadAnswer:
        if manners[bookie_id] == "failing":
            raise DeadlinePassed("it takes too long")
        if manners[bookie_id] == "slow":
            await clock.sleep(4)
        if manners[bookie_id] == "short":
            request.last_entry_id = request.first_entry_id
        answer = await bookies[bookie_id].read(request)
        if manners[bookie_id] == "lying":
            answer.absent.append(request.first_entry_id)
        return answer

    reader = EntryReader(_LEDGER, striping, fragments, ask, clock, timeout_s=5, speculative_timeout_s=2)

    first = 0
    while first < count:
        reasons: dict[str, str] = {}
        try:
            read = await patiently(clock, reader.read(first, count - 1, max_bytes))
        except EntriesNotRead as error:
            found, reported, reasons = [], list(error.faults), error.reasons
        else:
            found, reported = read.records, list(read.faults)
            assert found
            assert len(found) == 1 or sum(map(len, found)) <= max_bytes
            assert all(len(record) > RECORD_HEADER_BYTES for record in found)
        assert [extract_entry(record) for record in found] == [entry(first + index) for index in range(len(found))]
        assert {(fault.bookie_id, fault.entry_id, fault.reason) for fault in reported} <= faults
        if not found:
            assert not readable[first]
            write_set = striping.write_set(first)
            assert set(reasons) == {find_fragment(fragments, first).bookies[slot] for slot in write_set}
        first += len(found) or 1
