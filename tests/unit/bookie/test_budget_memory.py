"""CHK-68: bounds on adds that are not done bound the memory that they take, however small they are."""

from __future__ import annotations

from typing import Any

from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar_bookie.ledger.replicated_adds import ReplicatedAdds
from magnetar_bookie.read.record import encode_record
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_bookie.server.group_commit_rules import CommitGroup
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_protos.ledger_pb2 import Status
from tests.running import until
from tests.traced_memory import traced_memory

BUDGET = 1 << 20


def small_records(first: int, count: int) -> list[bytes]:
    return [encode_record(1, entry_id, -1, 0, b"x") for entry_id in range(first, first + count)]


def test_commit_group_counts_memory_of_small_records() -> None:
    """CHK-68: `max_pending_bytes` of a bookie."""

    def fill() -> tuple[CommitGroup, dict[int, tuple[bytes, CommitGroup]]]:
        group, pending = CommitGroup(), {}
        first = 1_000_000
        while group.pending_bytes < BUDGET:
            entry_ids, records = range(first, first + 100), small_records(first, 100)
            group.put_records(1, entry_ids, records, -1)
            pending.update({entry_id: (record, group) for entry_id, record in zip(entry_ids, records, strict=True)})
            group.add_result(None, 1, first, 100)
            first += 100
        return group, pending

    memory_bytes, (group, _) = traced_memory(fill)
    assert BUDGET / 2 < memory_bytes < BUDGET * 1.25
    group.drop_ledger(1)
    assert group.pending_bytes == 0


async def test_pending_adds_count_memory_of_small_records() -> None:
    """CHK-68: `max_pending_bytes` of a ledger's writer. What its channels keep counts as the bookies' lag."""

    def fill() -> ReplicatedAdds:
        unused: Any = _Unused()
        fragment, first = Fragment(0, ("b1", "b2", "b3")), 1_000_000
        metadata = LedgerMetadata(LedgerState.OPEN, Striping(3, 3, 2), b"k", (fragment,))
        adds = ReplicatedAdds(unused, 1, metadata, fragment, first, unused, recovery=False)
        while adds.pending_bytes < BUDGET:
            adds.append_entries(small_records(first, 100), lambda result, count: None, are_records=True)
            first += 100
        return adds

    memory_bytes, adds = traced_memory(fill)
    assert BUDGET / 4 < memory_bytes < BUDGET * 1.25
    for bookie_id in ("b1", "b2"):
        adds.on_answer(bookie_id, 1_000_000, adds.pending_entries, Status.OK)
    await until(lambda: not adds.pending_entries, "they have completed")
    assert adds.pending_bytes == 0


class _Unused:
    """A client, its bookies and their channels, which send nothing."""

    settings = LedgerClientSettings(max_pending_entries=1 << 30, max_pending_bytes=1 << 30)

    @property
    def bookies(self) -> _Unused:
        return self

    def get_add_channel(self, bookie_id: str, *, recovery: bool) -> _Unused:
        return self

    def attach(self, ledger_id: int, callbacks: object) -> object:
        return lambda: None

    def add_listener(self, callback: object) -> object:
        return lambda: None

    def send(self, *run: object) -> None: ...
