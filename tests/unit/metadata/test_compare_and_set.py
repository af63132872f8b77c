"""The conclusions of compare-and-set when an answer is lost and others make the most inconvenient changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from magnetar_metadata.compare_and_set import DELETE, StoredValue, Update, change, read
from magnetar_metadata.errors import InvalidChange, NotEmpty, NotSent, OutcomeUnknown, Refused
from magnetar_metadata.store import ABSENT, Change, ChangeResult, SessionState
from magnetar_testing.clock import ManualClock
from magnetar_testing.metadata import Fault, MemoryServer, MemoryStore
from magnetar_testing.randomness import SeededRandomness


class Scene:
    """A store of ours, somebody else's, and what is changed with them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.server = MemoryServer(self.clock)
        self.ours, self.other = self.server.connect(), self.server.connect()
        self._randomness = SeededRandomness(1)

    async def change(
        self, update: Update, store: MemoryStore | None = None, timeout_s: float = 5
    ) -> StoredValue | None:
        return await change(
            store or self.ours, "/n", update, clock=self.clock, randomness=self._randomness, timeout_s=timeout_s
        )

    async def change_losing_its_answer(self, update: Update) -> asyncio.Task[StoredValue | None]:
        # The first request is the read.
        self.server.queue_faults(self.ours, None, Fault.LOSE_ANSWER)
        changing = asyncio.create_task(self.change(update))
        while self.ours.session.state is not SessionState.SUSPENDED:
            await asyncio.sleep(0)
        return changing


@pytest.fixture
async def scene() -> Scene:
    return Scene()


async def test_applied_delete_is_not_reported_as_refused(scene: Scene) -> None:
    """The repeat meets another's node with a child: its `NotEmpty` proves nothing about the first copy."""
    await scene.change(lambda _: b"mine")
    deleting = await scene.change_losing_its_answer(lambda _: DELETE)
    await scene.change(lambda _: b"theirs", scene.other)
    await scene.other.put("/n/child", b"", ABSENT)
    scene.server.resume(scene.ours)
    with pytest.raises(OutcomeUnknown):
        await deleting


async def test_unapplied_delete_is_reported_as_refused(scene: Scene) -> None:
    """The same incarnation with a child: the delete was lost, and the refusal of a fresh one is the caller's."""
    await scene.change(lambda _: b"mine")
    scene.server.queue_faults(scene.ours, None, Fault.LOSE_REQUEST)
    deleting = asyncio.create_task(scene.change(lambda _: DELETE))
    while scene.ours.session.state is not SessionState.SUSPENDED:
        await asyncio.sleep(0)
    await scene.other.put("/n/child", b"", ABSENT)
    scene.server.resume(scene.ours)
    with pytest.raises(NotEmpty):
        await deleting


class Answers:
    """Stands before a store's `transaction`, and decides the result of each."""

    def __init__(self, store: MemoryStore, outcomes: Callable[[int], Exception | None], made: Sequence[int]) -> None:
        self._transaction = store.transaction
        self._outcomes = outcomes
        self._made = made
        self.sent = 0
        store.transaction = self  # type: ignore[method-assign]

    async def __call__(self, changes: Sequence[Change]) -> list[ChangeResult]:
        self.sent += 1
        made: Any = await self._transaction(changes) if self.sent in self._made else []
        outcome = self._outcomes(self.sent)
        if outcome is not None:
            raise outcome
        return made  # type: ignore[no-any-return]


def _lost_then_refused(sent: int) -> Exception:
    return OutcomeUnknown("lost") if sent == 1 else Refused("over quota", "/n")


@pytest.mark.parametrize("made", [True, False])
async def test_a_repeat_refused_for_another_reason_proves_nothing(made: bool) -> None:
    """Found made where it was; where the node is as before, the result is unknown."""
    scene = Scene()
    await scene.change(lambda _: b"1")
    Answers(scene.ours, _lost_then_refused, made=[1] if made else [])
    if made:
        stored = await scene.change(lambda _: b"2")
        assert stored is not None
        assert (stored.payload, stored.version) == (b"2", 1)
    else:
        with pytest.raises(OutcomeUnknown, match="over quota"):
            await scene.change(lambda _: b"2")


async def test_refusal_of_a_first_attempt_is_raised_to_the_caller(scene: Scene) -> None:
    Answers(scene.ours, lambda _: Refused("over quota", "/n"), made=[])
    with pytest.raises(Refused, match="over quota"):
        await scene.change(lambda _: b"1")


async def test_repeated_create_has_another_incarnation_than_the_deleted_node(scene: Scene) -> None:
    creating = await scene.change_losing_its_answer(lambda _: b"mine")
    first = await read(scene.other, "/n")
    assert first is not None
    await scene.other.delete("/n", 0)
    scene.server.resume(scene.ours)
    stored = await creating
    assert stored is not None
    assert stored == await read(scene.other, "/n")
    assert stored.incarnation != first.incarnation


async def test_a_create_that_was_made_is_known_by_the_token_of_its_first_copy(scene: Scene) -> None:
    creating = await scene.change_losing_its_answer(lambda _: b"mine")
    first = await read(scene.other, "/n")
    await scene.change(lambda _: b"theirs", scene.other)
    scene.server.resume(scene.ours)
    assert await creating == first
    assert (await scene.ours.exists("/n")).version == 1  # type: ignore[union-attr]


async def test_throttled_changes_are_retried_with_pauses(scene: Scene) -> None:
    answers = Answers(scene.ours, lambda _: NotSent("throttled"), made=[])
    changing = asyncio.create_task(scene.change(lambda _: b"x", timeout_s=10))
    while not changing.done():
        for _ in range(10):
            await asyncio.sleep(0)
        scene.clock.advance(0.05)
    with pytest.raises(NotSent, match="throttled"):
        await changing
    assert 5 <= answers.sent <= 20


async def test_an_update_that_makes_no_bytes_is_refused_and_deletes_nothing(scene: Scene) -> None:
    await scene.change(lambda _: b"mine")
    with pytest.raises(InvalidChange, match="return bytes"):
        await scene.change(lambda _: bytearray(b"x"))  # type: ignore[arg-type,return-value]
    assert await scene.ours.exists("/n") is not None
