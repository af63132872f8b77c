"""Repair with bookies that send arbitrary answers: it ends, and accepts only true records."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from magnetar_bookie.auto_recovery.errors import CannotRepair
from magnetar_bookie.auto_recovery.inventory import find_missing_entries
from magnetar_bookie.auto_recovery.ledger_repair_rules import SlotRepair
from magnetar_bookie.auto_recovery.replica_reader import ReplicaReader
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.core.ledger_metadata import LedgerMetadata, LedgerState
from magnetar_bookie.read.record import encode_record
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_bookie.settings.client import LedgerClientSettings
from magnetar_protos.ledger_pb2 import EntryRange, InventoryAnswer, ReadAnswer, ReadRequest
from magnetar_wire.transport import DeadlinePassed, NotReached

LEDGER = 7
LAST = 9
STEP = SlotRepair(0, LAST, 0, "b1", "b4")
RECORDS = {one: encode_record(LEDGER, one, -1, 0, b"entry %d" % one) for one in range(LAST + 1)}
STRANGE = [b"", b"short", encode_record(LEDGER + 1, 3, -1, 0, b"another's"), RECORDS[4][:-1] + b"!"]
IDS = st.integers(0, LAST + 3)
ENTRY_IDS = st.lists(IDS, max_size=6)


@dataclass
class Liars:
    """Bookies that send these answers in order, to any request. Then none of them answers."""

    answers: list[Message]
    requests: list[tuple[str, Any]] = field(default_factory=list)

    def alive(self) -> dict[str, None]:
        return dict.fromkeys(["b1", "b2", "b3", "b4"])

    async def call(self, bookie_id: str, method: str, request: Any, answer_type: object, *, timeout_s: float) -> Any:
        self.requests.append((bookie_id, request))
        assert len(self.requests) < 500, "it does not end"
        if not self.answers:
            raise NotReached("no bookie is there") if len(self.requests) % 2 else DeadlinePassed("no answer")
        return self.answers.pop(0)


def client_of(liars: Liars) -> LedgerClient:
    return cast(LedgerClient, SimpleNamespace(bookies=liars, settings=LedgerClientSettings()))


def metadata_of(striping: Striping) -> LedgerMetadata:
    bookies = ("b1", "b2", "b3")[: striping.ensemble_size]
    return LedgerMetadata(LedgerState.CLOSED, striping, b"key", (Fragment(0, bookies),), last_entry_id=LAST)


STRIPINGS = st.sampled_from([Striping(3, 3, 2), Striping(3, 2, 2), Striping(2, 1, 1)])


@st.composite
def read_answers(draw: st.DrawFn) -> ReadAnswer:
    records = draw(st.lists(st.sampled_from([*RECORDS.values(), *STRANGE]), max_size=8))
    return ReadAnswer(
        status=draw(st.integers(0, 12)) if draw(st.booleans()) else 1,  # type: ignore[arg-type]
        records=records,
        absent=draw(ENTRY_IDS),
        unknown=draw(ENTRY_IDS),
        damaged=draw(ENTRY_IDS),
        next_entry_id=draw(st.one_of(IDS, st.just(2**64 - 1))),
    )


@given(st.lists(read_answers(), max_size=30), STRIPINGS, st.integers(1, 300), st.data())
async def test_reading_ends_with_true_records_or_reasons(
    answers: list[Message], striping: Striping, max_bytes: int, data: st.DataObject
) -> None:
    wanted = data.draw(st.lists(st.integers(0, LAST), unique=True, min_size=1).map(sorted))
    liars = Liars(answers)

    reader = ReplicaReader(client_of(liars), LEDGER, metadata_of(striping), STEP)
    missing = list(wanted)
    while missing:
        records = await reader.read(missing, max_bytes)
        for entry_id, record in records.items():
            assert record == RECORDS[entry_id]
        left = [one for one in missing if one not in records and one not in reader.unreadable]
        assert len(left) < len(missing)
        missing = left
    assert all(entry_id in wanted for entry_id in reader.unreadable)
    assert all("b4" not in answers for answers in reader.unreadable.values())
    for bookie_id, request in liars.requests:
        assert isinstance(request, ReadRequest)
        assert bookie_id != "b4"
        requested = range(request.first_entry_id, request.last_entry_id + 1, request.step)
        assert all(one in wanted for one in requested)


@st.composite
def inventory_answers(draw: st.DrawFn) -> InventoryAnswer:
    ranges = draw(st.lists(st.tuples(IDS, IDS), max_size=4))
    return InventoryAnswer(
        status=draw(st.integers(0, 12)) if draw(st.integers(0, 9)) == 0 else 1,  # type: ignore[arg-type]
        held=[EntryRange(first_entry_id=first, last_entry_id=last) for first, last in ranges],
        next_entry_id=draw(st.one_of(IDS, st.just(2**64 - 1))),
    )


@given(st.lists(inventory_answers(), max_size=30), STRIPINGS, st.integers(1, 20))
async def test_reading_inventories_ends_and_skips_no_entry(
    answers: list[Message], striping: Striping, inventory_entries: int
) -> None:
    held: list[tuple[int, int]] = [
        (one.first_entry_id, one.last_entry_id) for answer in answers for one in cast(InventoryAnswer, answer).held
    ]
    options = AutoRecoverySettings(inventory_entries=inventory_entries)

    async def find_missing() -> list[int] | None:
        found: list[int] = []
        before = 0
        metadata = metadata_of(striping)
        try:
            async for end, missing in find_missing_entries(client_of(Liars(answers)), options, LEDGER, metadata, STEP):
                assert before < end <= LAST + 1
                assert all(before <= one < end for one in missing)
                found += missing
                before = end
        except CannotRepair:
            return None
        assert before == LAST + 1
        return found

    lacks = await find_missing()
    if lacks is not None:
        assert lacks == sorted(lacks)
        held_by_none = [
            one for one in range(LAST + 1) if striping.holds(0, one) and not any(a <= one <= b for a, b in held)
        ]
        assert all(one in lacks for one in held_by_none)
