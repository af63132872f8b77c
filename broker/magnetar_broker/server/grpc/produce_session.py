"""What the producers of one `produce` stream share: the answers to its client, its memory budget and its tasks.

The stream (produce_stream.py) reads requests and sends answers. Its producers (stream_producer.py) see this object
only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from magnetar_broker.server.grpc.produce_answers import ProduceAnswers
from magnetar_broker.server.grpc.stream_budget import StreamBudget
from magnetar_broker.topics.producer_sink import too_many_waiting
from magnetar_broker.topics.publish_budget import PublishBudget
from magnetar_wire.tasks import OrderedTaskGroup

__all__ = ["ProduceSession"]


class ProduceSession:
    __slots__ = (
        "_broker_budget",
        "_changed",
        "_max_queued_producers",
        "_queued_producers",
        "_to_send",
        "answers",
        "budget",
        "tasks",
    )

    def __init__(self, broker_budget: PublishBudget, max_pending_bytes: int, max_queued_producers: int) -> None:
        self.answers = ProduceAnswers()
        # The memory of the stream's undecided entries, and that of all clients of the broker.
        self.budget = StreamBudget(max_pending_bytes)
        self._broker_budget = broker_budget
        # Producers that wait until they have their topics to themselves.
        self._queued_producers = 0
        self._max_queued_producers = max_queued_producers
        # While the stream is served.
        self.tasks: OrderedTaskGroup | None = None
        # The sender waits for answers; the receiver waits for a change.
        self._to_send: asyncio.Future[None] | None = None
        self._changed: asyncio.Future[None] | None = None

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` as one of the stream's tasks."""
        assert self.tasks is not None
        return self.tasks.create_task(work)

    def count_queued(self, opening: asyncio.Task[None]) -> None:
        """Count a producer that waits, until `opening` has ended. Raises `BrokerError` if there are too many."""
        if self._queued_producers >= self._max_queued_producers:
            raise too_many_waiting("stream", self._max_queued_producers)
        self._queued_producers += 1
        opening.add_done_callback(self._leave_queue)

    def _leave_queue(self, opening: asyncio.Task[None]) -> None:
        self._queued_producers -= 1

    # Answers.

    def wake_sender(self) -> None:
        """Report that there are answers."""
        if self._to_send is not None and not self._to_send.done():
            self._to_send.set_result(None)

    async def wait_for_answers(self) -> None:
        while not len(self.answers):
            self._to_send = asyncio.get_running_loop().create_future()
            await self._to_send

    # Memory.

    def add_pending(self, memory_bytes: int) -> None:
        """Count entries that were received."""
        self.budget.used_bytes += memory_bytes
        self._broker_budget.add(memory_bytes)

    def finish_pending(self, memory_bytes: int) -> None:
        """Count entries as decided."""
        self.budget.used_bytes -= memory_bytes
        self._broker_budget.release(memory_bytes)
        self.report_change()

    async def wait_for_capacity(self, max_answers: int) -> None:
        """Return when the next message may be read: the stream and the broker have capacity, and few answers wait."""
        while self.budget.full or len(self.answers) > max_answers:
            await self.wait_change()
        await self._broker_budget.wait_for_capacity()

    # Changes.

    def report_change(self) -> None:
        """Report that an entry was decided, an answer was sent or a producer has ended."""
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def wait_change(self) -> None:
        """Return at the next change. One task at a time may wait."""
        self._changed = asyncio.get_running_loop().create_future()
        try:
            await self._changed
        finally:
            self._changed = None
