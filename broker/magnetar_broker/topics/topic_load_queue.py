"""The queue in which openings of topics wait for a slot, by the rules of topic_load_slots.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.settings.topics import TopicSettings
from magnetar_broker.topics.topic_load_slots import TopicLoad, TopicLoadSlots
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import Clock
from magnetar_wire.topic_name import TopicName

__all__ = ["TopicLoadQueue"]

# The topic could not be opened. Other codes mean that it must not be, or that another broker owns it.
_FAILURES: Final = (ErrorCode.METADATA_ERROR, ErrorCode.PERSISTENCE_ERROR, ErrorCode.UNKNOWN_ERROR)


class TopicLoadQueue:
    def __init__(self, settings: TopicSettings, clock: Clock) -> None:
        self._timeout_s = settings.topic_load_timeout_seconds
        self._slow_after_s = settings.slow_topic_load_seconds
        self._clock = clock
        self._slots: TopicLoadSlots[TopicName] = TopicLoadSlots(settings.max_concurrent_topic_load_request)
        self._turns: dict[TopicLoad[TopicName], asyncio.Future[None]] = {}
        self._deadlines: dict[TopicLoad[TopicName], asyncio.Timeout] = {}

    @asynccontextmanager
    async def slot(self, name: TopicName) -> AsyncIterator[None]:
        """Wait for a slot and hold it. The body is cancelled when it takes too long, or is slow and another topic needs
        the slot; then this raises SERVICE_NOT_READY."""
        loading = self._slots.request(name)
        failed = False
        try:
            await self._wait_turn(loading)
            async with self._in_time(loading):
                yield
        except TimeoutError:
            failed = True
            raise BrokerError(ErrorCode.SERVICE_NOT_READY, self._explain(loading)) from None
        except Exception as error:
            failed = _is_failure(error)
            raise
        finally:
            self._slots.release(loading, failed=failed)
            self._move_up()

    async def _wait_turn(self, loading: TopicLoad[TopicName]) -> None:
        turn = self._turns[loading] = asyncio.get_running_loop().create_future()
        self._move_up()
        try:
            await turn
        finally:
            del self._turns[loading]

    @asynccontextmanager
    async def _in_time(self, loading: TopicLoad[TopicName]) -> AsyncIterator[None]:
        overdue = self._clock.call_later(self._slow_after_s, lambda: self._mark_slow(loading))
        try:
            async with asyncio.timeout(0.0 if loading.is_evicted else self._timeout_s) as deadline:
                self._deadlines[loading] = deadline
                yield
        finally:
            overdue.cancel()
            self._deadlines.pop(loading, None)

    def _mark_slow(self, loading: TopicLoad[TopicName]) -> None:
        self._slots.mark_slow(loading)
        self._move_up()

    def _move_up(self) -> None:
        while (granted := self._slots.grant_next()) is not None:
            turn = self._turns[granted]
            if not turn.done():  # else its waiter was cancelled, and is about to release the slot
                turn.set_result(None)
        while (evicted := self._slots.evict_next()) is not None:
            if (deadline := self._deadlines.get(evicted)) is not None:  # else it is about to begin
                deadline.reschedule(asyncio.get_running_loop().time())

    def _explain(self, loading: TopicLoad[TopicName]) -> str:
        if loading.is_evicted:
            return (
                f"{loading.name} was not opened within {self._slow_after_s:g} s (slow_topic_load_seconds), "
                "and other topics wait to be opened: try again"
            )
        return f"{loading.name} was not opened within {self._timeout_s:g} s (topic_load_timeout_seconds): try again"


def _is_failure(error: Exception) -> bool:
    if isinstance(error, BrokerError):
        return error.code in _FAILURES and not isinstance(error, TopicUnloaded)
    return True
