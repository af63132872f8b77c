"""Recoveries of ledgers that a writer left in any state it may leave, with bookies that hang or have lost the entry."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from magnetar_bookie.errors import RecoveryUndecided
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata
from magnetar_bookie.read.striping import Fragment, Striping, find_fragment
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from tests.examples import examples
from tests.unit.bookie.honest_bookie import entry, length_up_to, record_of
from tests.unit.bookie.small_cluster import SmallCluster, running_small_cluster

_STRIPINGS = [
    Striping(1, 1, 1),
    Striping(2, 2, 1),
    Striping(2, 2, 2),
    Striping(3, 3, 2),
    Striping(3, 2, 2),
    Striping(3, 2, 1),
    Striping(4, 3, 2),
]
_BOOKIES = 6


@dataclass
class Left:
    """What a writer has left on the bookies."""

    striping: Striping
    second_from: int | None
    # By entry: the indexes in the write set that have it, and the LAC in its record.
    got: list[list[int]]
    confirmed: list[int]
    hanging: list[str]
    failing_adds: list[str]
    recoverers: int

    @property
    def completed(self) -> int:
        """The highest entry that the writer may have completed."""
        last = -1
        while last + 1 < len(self.got) and len(self.got[last + 1]) >= self.striping.ack_quorum:
            last += 1
        return last


@st.composite
def _left(draw: st.DrawFn) -> Left:
    striping = draw(st.sampled_from(_STRIPINGS))
    indexes = st.lists(st.integers(0, striping.write_quorum - 1), unique=True, max_size=striping.write_quorum)
    whole = list(range(striping.write_quorum))
    got = [whole] * draw(st.integers(0, 6)) + draw(st.lists(indexes, max_size=6))
    completed = Left(striping, None, got, [], [], [], 1).completed
    confirmed = []
    so_far = -1
    for entry_id in range(len(got)):
        so_far = (
            draw(st.integers(so_far, min(completed, entry_id - 1))) if min(completed, entry_id - 1) > so_far else so_far
        )
        confirmed.append(so_far)
    second_from = draw(st.none() | st.integers(1, completed + 1)) if completed >= 0 else None
    names = [f"b{number}" for number in range(_BOOKIES)]
    return Left(
        striping,
        second_from,
        got,
        confirmed,
        draw(st.lists(st.sampled_from(names), max_size=2)),
        draw(st.lists(st.sampled_from(names), max_size=1)),
        draw(st.integers(1, 2)),
    )


@examples(150)
@given(_left())
async def test_recovery_retains_completed_entries_on_an_ack_quorum(left: Left) -> None:
    """CHK-3: completed entries are recovered; recovered ones are the writer's, on an ack quorum; the length fits."""

    async with running_small_cluster(
        bookies=_BOOKIES,
        settings=LedgerClientSettings(
            explicit_lac_interval_ms=0,
            read_entry_timeout_seconds=1.0,
            add_entry_timeout_seconds=1.0,
            recovery_timeout_seconds=8.0,
            recovery_window_entries=3,
        ),
    ) as cluster:
        striping = left.striping
        fragments = [Fragment(0, tuple(f"b{slot}" for slot in range(striping.ensemble_size)))]
        if left.second_from is not None:
            fragments.append(
                Fragment(left.second_from, tuple(f"b{5 - slot}" for slot in range(striping.ensemble_size)))
            )
        ledger_id = await cluster.make(striping, *fragments)
        for entry_id, indexes in enumerate(left.got):
            write_set = striping.write_set(entry_id)
            for index in indexes:
                bookie = cluster[find_fragment(fragments, entry_id).bookies[write_set[index]]]
                bookie.keep(ledger_id, record_of(ledger_id, entry_id, left.confirmed[entry_id]))
        for name in left.hanging:
            cluster[name].hanging = {"fence", "read", "add"}
        for name in left.failing_adds:
            cluster[name].failing = {"add"}
        found = await cluster.patiently(_recovered(cluster, ledger_id, left.recoverers))
        for name in left.hanging:
            cluster[name].hanging = set()
        if found is None:
            found = await cluster.patiently(_recovered(cluster, ledger_id, 1))
            if found is None:
                # Too few bookies to write to, although the ensemble is back: one of it refuses adds.
                assert left.failing_adds
                return
        assert left.completed <= found.last_entry_id < len(left.got)
        assert found.length_bytes == length_up_to(found.last_entry_id)
        for entry_id in range(found.last_entry_id + 1):
            bookies = find_fragment(found.fragments, entry_id).bookies
            named = [bookies[slot] for slot in striping.write_set(entry_id)]
            assert len([name for name in named if name in cluster.holders(ledger_id, entry_id)]) >= striping.ack_quorum
        reader = await cluster.client.open(ledger_id)
        read = [one async for one in reader.entries()]
        assert read == [(entry_id, entry(entry_id)) for entry_id in range(found.last_entry_id + 1)]


async def _recovered(cluster: SmallCluster, ledger_id: int, recoverers: int) -> LedgerMetadata | None:
    """Return the result of all recoveries; None: one of them is undecided, and then all are or another closed it."""
    found = await asyncio.gather(
        *(cluster.client.recover(ledger_id) for _ in range(recoverers)), return_exceptions=True
    )
    closed = [one for one in found if isinstance(one, LedgerMetadata)]
    for one in found:
        if isinstance(one, BaseException) and not isinstance(one, RecoveryUndecided):
            raise one
    assert all(one == closed[0] for one in closed)
    return closed[0] if closed else None
