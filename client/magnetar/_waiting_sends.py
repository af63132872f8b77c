"""The sends of an asyncio producer that wait, for capacity or for their partition to be opened: a line for each
partition.

One task serves the line. Whenever there is capacity, it moves all sends that fit into the queue, in order, without
giving up the event loop: they share batches, as sends do that never had to wait. (A batch with a send that is awaited
closes at the loop's next step, so a send moved in a step of its own would become an entry of its own.) The task ends
when the line is empty.

A send is in line under the future of its receipt. Cancelling the send removes it; once it has been moved into the queue
it is no longer in line. `flush` puts a mark into the line (`add_mark`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from magnetar._outgoing_message import Outgoing
from magnetar._partition_producer import PartitionProducer
from magnetar.exceptions import MagnetarException

__all__ = ["WaitingSends"]


class WaitingSends:
    """The line of one partition."""

    def __init__(
        self,
        part: PartitionProducer,
        begin: Callable[[PartitionProducer], Awaitable[None]],
        check_size: Callable[[PartitionProducer, Outgoing], None],
        add: Callable[[PartitionProducer, Outgoing, asyncio.Future[Any]], bool],
    ) -> None:
        self._part = part
        # Opens the partition.
        self._begin = begin
        # Raises MessageTooBig. A partition's limit is known once it is open.
        self._check_size = check_size
        # Puts a message into the queue. Returns False if there is no capacity left.
        self._add = add
        # Messages by the futures of their receipts; None for a mark. OrderedDict removes both the first one and one in
        # the middle in constant time.
        self._line: OrderedDict[asyncio.Future[Any], Outgoing | None] = OrderedDict()
        self._task: asyncio.Task[None] | None = None

    def __bool__(self) -> bool:
        return bool(self._line)

    async def wait(self, message: Outgoing, receipt: asyncio.Future[Any]) -> Any:
        """Line up, and return the receipt. The message's size was checked, if the partition is open."""
        self._add_to_line(receipt, message)
        try:
            return await receipt
        finally:
            self._line.pop(receipt, None)

    def add_mark(self) -> asyncio.Future[None]:
        """Return a future that is done when all sends that are in line now have left it."""
        mark: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._add_to_line(mark, None)
        mark.add_done_callback(lambda mark: self._line.pop(mark, None))
        return mark

    def _add_to_line(self, future: asyncio.Future[Any], message: Outgoing | None) -> None:
        self._line[future] = message
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._serve(), name="magnetar waiting sends")

    async def _serve(self) -> None:
        try:
            while self._line:
                receipt, message = next(iter(self._line.items()))
                if receipt.done():  # cancelled, and its task has not run yet
                    del self._line[receipt]
                elif message is None:
                    del self._line[receipt]
                    receipt.set_result(None)
                elif not self._part.begun:
                    await self._open_partition()
                elif not self._accept(receipt, message):
                    await self._part.queue.wait_room()
        finally:
            for receipt in self._line:  # this task was cancelled: nobody else would end their waiting
                receipt.cancel()

    def _accept(self, receipt: asyncio.Future[Any], message: Outgoing) -> bool:
        """Move the first send into the queue, or fail it. Returns False if there is no capacity left."""
        try:
            if not self._add(self._part, message, receipt):
                return False
        except Exception as error:  # noqa: BLE001 (the sender gets it)
            self._fail(receipt, error)
        else:
            del self._line[receipt]
        return True

    async def _open_partition(self) -> None:
        """Open the partition. If that fails, the first send in line fails, and the next one makes the next attempt."""
        try:
            await self._begin(self._part)
        except MagnetarException as error:
            self._fail(next((receipt for receipt, message in self._line.items() if message is not None), None), error)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The producer was closed while it opened the partition: the next attempt raises the reason.
        else:
            for receipt, message in list(self._line.items()):
                try:
                    if message is not None:
                        self._check_size(self._part, message)
                except Exception as error:  # noqa: BLE001 (the sender gets it)
                    self._fail(receipt, error)

    def _fail(self, receipt: asyncio.Future[Any] | None, error: Exception) -> None:
        if receipt is not None:
            del self._line[receipt]
            if not receipt.done():  # it may be cancelled, and its task has not run yet
                receipt.set_exception(error)
