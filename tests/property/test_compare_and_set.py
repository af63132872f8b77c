"""Many writers count one node up through faults of all kinds: the count is the sum of their results, no more and no
less.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from magnetar_metadata.compare_and_set import change, read
from magnetar_metadata.envelope import STORED_TOKENS
from magnetar_metadata.errors import OutcomeUnknown, SessionLost
from magnetar_metadata.store import SessionState
from magnetar_testing.clock import ManualClock
from magnetar_testing.metadata import Fault, MemoryServer
from magnetar_testing.metadata.store import MemoryStore
from magnetar_testing.randomness import SeededRandomness
from tests.examples import examples

_WRITERS = 3
_CHANGES = 4
assert _WRITERS * _CHANGES < STORED_TOKENS

_faults = st.lists(st.one_of(st.none(), st.sampled_from(Fault)), max_size=12)
_kinds = ["resume", "resume", "release", "lag", "suspend"]


@dataclass
class Outcomes:
    """The results of one writer's changes."""

    made: int = 0
    unknown: int = 0
    ended: bool = field(default=False)


@examples(250)
@given(
    st.lists(_faults, min_size=_WRITERS, max_size=_WRITERS),
    st.lists(st.tuples(st.sampled_from(_kinds), st.integers(0, _WRITERS - 1), st.integers(1, 6)), max_size=60),
)
async def test_every_outcome_is_found_out_while_sessions_live(
    faults: list[list[Fault | None]], actions: list[tuple[str, int, int]]
) -> None:
    count, outcomes = await _count(faults, actions)
    assert count == sum(each.made for each in outcomes) == _WRITERS * _CHANGES
    assert sum(each.unknown for each in outcomes) == 0


@examples(250)
@given(
    st.lists(_faults, min_size=_WRITERS, max_size=_WRITERS),
    st.lists(
        st.tuples(st.sampled_from([*_kinds, "expire"]), st.integers(0, _WRITERS - 1), st.integers(1, 6)), max_size=60
    ),
)
async def test_counter_lies_between_confirmed_and_possible_changes(
    faults: list[list[Fault | None]], actions: list[tuple[str, int, int]]
) -> None:
    count, outcomes = await _count(faults, actions)
    made = sum(each.made for each in outcomes)
    assert made <= count <= made + sum(each.unknown for each in outcomes)


async def _count(faults: list[list[Fault | None]], actions: list[tuple[str, int, int]]) -> tuple[int, list[Outcomes]]:
    clock = ManualClock()
    server = MemoryServer(clock)
    stores = [server.connect() for _ in range(_WRITERS)]
    outcomes = [Outcomes() for _ in stores]
    for store, planned in zip(stores, faults, strict=True):
        server.queue_faults(store, *planned)
    writers = [asyncio.create_task(_write(store, clock, seed, outcomes[seed])) for seed, store in enumerate(stores)]
    for kind, which, turns in actions:
        for _ in range(turns):
            await asyncio.sleep(0)
        _act(server, kind, stores[which])
    while not all(writer.done() for writer in writers):
        await asyncio.sleep(0)
        # A connected writer without an answer retries after a pause.
        clock.advance(0.01)
        for store in stores:
            if store.session.state is SessionState.SUSPENDED:
                server.resume(store)
    await asyncio.gather(*writers)
    # A late request must not change the count any more, for any reported results.
    for store in stores:
        server.release(store)
    stored = await read(server.connect(), "/count")
    return int(stored.payload) if stored else 0, outcomes


def _act(server: MemoryServer, kind: str, store: MemoryStore) -> None:
    if store.session.state is SessionState.LOST:
        return
    match kind:
        case "resume":
            server.resume(store)
        case "release":
            server.release(store)
        case "lag":
            server.lag(store)
        case "suspend":
            server.suspend(store)
        case "expire":
            server.expire(store)


async def _write(store: MemoryStore, clock: ManualClock, seed: int, outcomes: Outcomes) -> None:
    randomness = SeededRandomness(seed)
    for _ in range(_CHANGES):
        try:
            await change(store, "/count", _plus_one, clock=clock, randomness=randomness)
            outcomes.made += 1
        except OutcomeUnknown:
            outcomes.unknown += 1
        except SessionLost:
            outcomes.ended = True


def _plus_one(old: bytes | None) -> bytes:
    return b"%d" % (int(old or b"0") + 1)
