"""A question that many ask and that may hang."""

from __future__ import annotations

import asyncio

from magnetar_wire.clock import SystemClock
from magnetar_wire.shared_question import SharedQuestion


class Asked:
    def __init__(self) -> None:
        self.times = 0
        self.answered = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> None:
        self.times += 1
        await self.answered.wait()
        if self.error is not None:
            raise self.error


async def test_many_ask_and_one_is_asked() -> None:
    asked = Asked()
    question = SharedQuestion(asked, 30.0, SystemClock())
    asking = [asyncio.create_task(question.problem()) for _ in range(5)]
    await asyncio.sleep(0)
    asking[0].cancel()
    asked.answered.set()
    assert await asyncio.gather(*asking[1:]) == [""] * 4
    assert asked.times == 1
    assert await question.problem(fresh_s=1000.0) == ""
    assert asked.times == 1
    assert await question.problem() == ""
    assert asked.times == 2
    await question.close()


async def test_what_hangs_is_told_and_not_asked_again() -> None:
    asked = Asked()
    question = SharedQuestion(asked, 0.01, SystemClock())
    for _ in range(3):
        assert "has not answered for" in await question.problem(fresh_s=1000.0)
    assert asked.times == 1
    asked.answered.set()
    while await question.problem():
        pass
    asked.error = ValueError("no")
    assert await question.problem() == "failed: ValueError: no"
    await question.close()
    await SharedQuestion(asked, 1.0, SystemClock()).close()
