"""Making and claiming ledgers, with lost answers and a sweeper in between."""

from __future__ import annotations

import pytest

from magnetar_bookie import paths
from magnetar_bookie.client.ledger_store import LedgerStore, MadeLedger
from magnetar_bookie.core import ledger_metadata
from magnetar_bookie.errors import IntentSwept, NoSuchLedger
from magnetar_bookie.read.striping import Striping
from magnetar_metadata import compare_and_set
from magnetar_metadata.store import SessionState
from magnetar_protos.ledger_pb2 import LedgerIntent
from magnetar_testing.clock import ManualClock
from magnetar_testing.metadata import Fault, MemoryServer, MemoryStore
from magnetar_testing.randomness import SeededRandomness


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.server = MemoryServer(self.clock)
        self.randomness = SeededRandomness(1)
        self.store = self.connect()
        self.ledgers = LedgerStore(self.store, self.clock, self.randomness)

    def connect(self) -> MemoryStore:
        """A store whose connection comes back as soon as it is lost."""
        store = self.server.connect()

        def changed(state: SessionState) -> None:
            if state is SessionState.SUSPENDED:
                self.server.resume(store)

        store.session.listen(changed)
        return store

    async def make(self) -> MadeLedger:
        return await self.ledgers.make(
            ["b1"], Striping(1, 1, 1), wanted_ensemble_size=1, purpose="a test", cookie_checks=[]
        )

    async def record(self, made: MadeLedger) -> None:
        await self.ledgers.record(made, "/owner", lambda old: (old or b"") + b"%d " % made.ledger_id)

    async def sweep(self, ledger_id: int) -> None:
        intent = LedgerIntent(sweeping=True).SerializeToString()
        await compare_and_set.change(
            self.store, paths.intent(ledger_id), lambda _: intent, clock=self.clock, randomness=self.randomness
        )

    async def owner(self) -> bytes | None:
        stored = await compare_and_set.read(self.store, "/owner")
        return stored.payload if stored else None

    async def intents(self) -> list[int]:
        return [paths.id_of(name) for name in await self.store.children(paths.INTENTS)]


@pytest.fixture
async def scene() -> Scene:
    return Scene()


async def test_new_ledger_has_an_intent_until_it_is_recorded(scene: Scene) -> None:
    made = await scene.make()
    assert await scene.intents() == [made.ledger_id]
    assert await scene.ledgers.read(made.ledger_id) == made.metadata
    await scene.record(made)
    assert await scene.intents() == []
    assert await scene.owner() == b"%d " % made.ledger_id


async def test_ledger_ids_increase_across_stores(scene: Scene) -> None:
    other = LedgerStore(scene.connect(), scene.clock, scene.randomness)
    ids = []
    for _ in range(3):
        ids.append((await scene.make()).ledger_id)
        made = await other.make(
            ["b1"],
            Striping(1, 1, 1),
            wanted_ensemble_size=1,
            purpose="a test",
            cookie_checks=[],
        )
        ids.append(made.ledger_id)
    assert ids == sorted(set(ids))
    assert await scene.ledgers.last_ledger_id() == ids[-1]
    assert [ledger_id async for ledger_id in scene.ledgers.ledger_ids()] == ids


async def test_an_answer_lost_at_any_step_leaves_no_ledger_without_an_intent(scene: Scene) -> None:
    """Whatever is lost, the ledger that the maker gets is new, and each one he does not know of has its intent."""
    known = []
    for fault in (Fault.LOSE_REQUEST, Fault.LOSE_ANSWER):
        for step in range(3):
            scene.server.queue_faults(scene.store, *[None] * step, fault)
            known.append((await scene.make()).ledger_id)
            await scene.store.sync()
    assert known == sorted(set(known))
    made = [ledger_id async for ledger_id in scene.ledgers.ledger_ids()]
    assert await scene.intents() == made
    assert set(known) < set(made), "no answer was lost after the ledger was made"


async def test_a_swept_ledger_can_t_be_recorded_and_a_recorded_one_not_swept(scene: Scene) -> None:
    """Whichever comes first: never both, and never a record of a ledger that is being deleted."""
    swept = await scene.make()
    await scene.sweep(swept.ledger_id)
    with pytest.raises(IntentSwept):
        await scene.record(swept)
    assert await scene.owner() is None

    recorded = await scene.make()
    await scene.record(recorded)
    with pytest.raises(IntentSwept):
        await scene.record(recorded)
    assert await scene.owner() == b"%d " % recorded.ledger_id


async def test_record_with_lost_response_is_detected_as_done(scene: Scene) -> None:
    made = await scene.make()
    scene.server.queue_faults(scene.store, None, Fault.LOSE_ANSWER)
    await scene.record(made)
    assert await scene.owner() == b"%d " % made.ledger_id
    assert await scene.intents() == []


async def test_ledger_change_is_applied_once_after_lost_response(scene: Scene) -> None:
    made = await scene.make()
    scene.server.queue_faults(scene.store, None, Fault.LOSE_ANSWER)
    closed = await scene.ledgers.change(
        made.ledger_id, lambda current: ledger_metadata.closed_by_writer(current, 3, 30, 5)
    )
    assert closed == await scene.ledgers.read(made.ledger_id, fresh=True)
    unchanged = await scene.store.get(paths.ledger(made.ledger_id))
    await scene.ledgers.change(made.ledger_id, ledger_metadata.begin_recovery)
    assert await scene.store.get(paths.ledger(made.ledger_id)) == unchanged


async def test_missing_ledger_raises_no_such_ledger(scene: Scene) -> None:
    with pytest.raises(NoSuchLedger):
        await scene.ledgers.read(5)
    with pytest.raises(NoSuchLedger):
        await scene.ledgers.change(5, ledger_metadata.begin_recovery)
