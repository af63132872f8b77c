from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from magnetar_wire.tasks import OrderedTaskGroup

Groups = Callable[[], OrderedTaskGroup]


async def forever(note: Callable[[], object] = lambda: None) -> None:
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        note()


async def fail(error: BaseException) -> None:
    raise error


async def test_the_block_ends_when_all_tasks_have() -> None:
    done: list[int] = []

    async def work(number: int) -> None:
        await asyncio.sleep(0)
        done.append(number)

    async with OrderedTaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(work(number))
    assert done == [0, 1, 2]


async def test_the_first_failure_cancels_the_others_in_the_order_they_were_made() -> None:
    """asyncio.TaskGroup, whose tasks are a set, cancels a hundred tasks in another order in each run."""
    cancelled: list[int] = []
    with pytest.raises(ExceptionGroup) as raised:
        async with OrderedTaskGroup() as tasks:
            for number in range(100):
                tasks.create_task(forever(lambda number=number: cancelled.append(number)))  # type: ignore[misc]
            await asyncio.sleep(0)
            tasks.create_task(fail(ValueError("one")))
            await forever()
    assert cancelled == list(range(100))
    assert [str(error) for error in raised.value.exceptions] == ["one"]
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0


async def test_a_failing_block_cancels_its_tasks_and_raises_both_errors() -> None:
    async def fails_when_cancelled() -> None:
        try:
            await forever()
        finally:
            raise KeyError("task")

    with pytest.raises(ExceptionGroup) as raised:
        async with OrderedTaskGroup() as tasks:
            tasks.create_task(fails_when_cancelled())
            await asyncio.sleep(0)
            raise ValueError("block")
    assert {type(error) for error in raised.value.exceptions} == {KeyError, ValueError}


@pytest.mark.parametrize("in_block", [True, False])
async def test_a_cancelled_block_cancels_its_tasks_and_raises_the_cancellation(in_block: bool) -> None:
    ended: list[str] = []

    async def slow_to_end() -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            ended.append("task")

    async def owner() -> None:
        async with OrderedTaskGroup() as tasks:
            tasks.create_task(slow_to_end())
            if in_block:
                await forever()

    task = asyncio.create_task(owner())
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["task"]


async def test_cancelling_the_group_is_no_error() -> None:
    cancelled: list[int] = []
    async with OrderedTaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(forever(lambda number=number: cancelled.append(number)))  # type: ignore[misc]
        await asyncio.sleep(0)
        tasks.cancel()
    assert cancelled == [0, 1, 2]


async def test_the_error_of_a_task_after_the_group_was_cancelled_is_raised() -> None:
    async def fails_when_cancelled() -> None:
        try:
            await forever()
        finally:
            raise KeyError("late")

    with pytest.raises(ExceptionGroup) as raised:
        async with OrderedTaskGroup() as tasks:
            tasks.create_task(fails_when_cancelled())
            await asyncio.sleep(0)
            tasks.cancel()
    assert [type(error) for error in raised.value.exceptions] == [KeyError]


async def test_tasks_may_make_tasks_until_the_group_ends() -> None:
    made: list[str] = []

    async def child() -> None:
        made.append("child")

    async def parent(tasks: OrderedTaskGroup) -> None:
        await asyncio.sleep(0)
        tasks.create_task(child())

    async with OrderedTaskGroup() as tasks:
        tasks.create_task(parent(tasks))
    assert made == ["child"]
    with pytest.raises(RuntimeError, match="closing"):
        tasks.create_task(child())
    with pytest.raises(RuntimeError, match="not entered"):
        OrderedTaskGroup().create_task(child())


class Cleaner:
    """A task whose cleanup takes time, and that records whether it could finish it."""

    def __init__(self, notes: list[str], name: str = "task", turns: int = 4) -> None:
        self._notes = notes
        self._name = name
        self._turns = turns

    async def run(self) -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            try:
                for _ in range(self._turns):
                    await asyncio.sleep(0)
                self._notes.append(f"{self._name} cleaned up")
            except asyncio.CancelledError:
                self._notes.append(f"{self._name} was interrupted")
            raise


async def fail_later(turns: int = 2) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
    raise ValueError("later")


async def fail_when_cancelled() -> None:
    try:
        await forever()
    except asyncio.CancelledError:
        raise KeyError("while ending") from None


async def sibling_fails(group: Any, notes: list[str]) -> None:
    async with group() as tasks:
        tasks.create_task(Cleaner(notes).run())
        tasks.create_task(fail_later())
        await forever()


async def second_failure_while_leaving(group: Any, notes: list[str]) -> None:
    async with group() as tasks:
        tasks.create_task(Cleaner(notes).run())
        tasks.create_task(fail_when_cancelled())
        tasks.create_task(fail_later())


async def block_fails(group: Any, notes: list[str]) -> None:
    async with group() as tasks:
        tasks.create_task(Cleaner(notes).run())
        tasks.create_task(fail_when_cancelled())
        await asyncio.sleep(0)
        raise RuntimeError("block")


async def time_runs_out(group: Any, notes: list[str]) -> None:
    async with asyncio.timeout(0.01), group() as tasks:
        tasks.create_task(Cleaner(notes).run())
        await forever()


async def inner_group_fails(group: Any, notes: list[str]) -> None:
    async with group() as outer:
        outer.create_task(Cleaner(notes, "outer").run())
        async with group() as inner:
            inner.create_task(Cleaner(notes, "inner").run())
            inner.create_task(fail_later())
            await forever()


async def cancelled_from_outside(group: Any, notes: list[str], times: int) -> None:
    async def owner() -> None:
        async with group() as tasks:
            tasks.create_task(Cleaner(notes, turns=8).run())
            await forever()

    task = asyncio.create_task(owner())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await asyncio.wait([task])
    notes.append(f"cancelled {task.cancelled()}")


async def cancelled_once(group: Any, notes: list[str]) -> None:
    await cancelled_from_outside(group, notes, 1)


async def cancelled_twice(group: Any, notes: list[str]) -> None:
    await cancelled_from_outside(group, notes, 2)


def leaves(error: BaseException) -> list[str]:
    """Return the errors of a tree of groups."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for one in error.exceptions for leaf in leaves(one)]
    return [repr(error)]


@pytest.mark.parametrize(
    "scene",
    [
        sibling_fails,
        second_failure_while_leaving,
        block_fails,
        time_runs_out,
        inner_group_fails,
        cancelled_once,
        cancelled_twice,
    ],
)
def test_it_behaves_like_the_group_of_asyncio(scene: Callable[[Any, list[str]], Coroutine[Any, Any, None]]) -> None:
    async def run_group(group: Any) -> list[str]:
        notes: list[str] = []
        try:
            await scene(group, notes)
        except BaseException as error:  # noqa: BLE001 (what it raises is what is compared)
            notes += leaves(error)
        current = asyncio.current_task()
        assert current is not None
        # asyncio's own leaves a count behind in one scene, up to Python 3.12.
        assert current.cancelling() == 0 or group is asyncio.TaskGroup
        return notes

    ours = asyncio.run(run_group(OrderedTaskGroup))
    assert ours == asyncio.run(run_group(asyncio.TaskGroup))
    assert not [note for note in ours if "interrupted" in note]


ENDS_THE_PROGRAM = """
import asyncio
from magnetar_wire.tasks import OrderedTaskGroup

async def leave():
    raise SystemExit(3)

async def main():
    async with OrderedTaskGroup() as tasks:
        tasks.create_task(asyncio.sleep(1000))
        tasks.create_task(leave())
        await asyncio.sleep(1000)

asyncio.run(main())
"""


def test_the_end_of_the_program_is_raised_first() -> None:
    # In a process of its own: a SystemExit through asyncio.run leaves CPython 3.11's count of recursions wrong.
    ended = subprocess.run([sys.executable, "-c", ENDS_THE_PROGRAM], timeout=60, check=False)
    assert ended.returncode == 3


async def test_nested_groups_undo_their_own_cancellation() -> None:
    with pytest.raises(ExceptionGroup):
        async with OrderedTaskGroup() as outer:
            outer.create_task(forever())
            with pytest.raises(ExceptionGroup):
                async with OrderedTaskGroup() as inner:
                    inner.create_task(fail(ValueError("inner")))
                    await forever()
            outer.create_task(fail(ValueError("outer")))
            await forever()
