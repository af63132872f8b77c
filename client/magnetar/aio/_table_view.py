"""The asyncio table view, for tasks of the loop on which its client was created.

Methods and docstrings are those of magnetar._table_view, as tests/unit/client/test_signatures.py checks. Callbacks may
also be coroutine functions.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

from magnetar._consuming.multi_topic_consumer import MultiTopicConsumer
from magnetar._listeners.message_listener import check_listener
from magnetar._message import Message
from magnetar._table_contents import TableCallback, follow_table, refresh_table
from magnetar._table_view import NO_REFRESH_IN_CALLBACK, BaseTableView
from magnetar.exceptions import OperationNotSupported, SchemaUnavailable
from magnetar.schema._schema import T

__all__ = ["TableView"]

log = logging.getLogger("magnetar")


class TableView(BaseTableView[T]):
    """The latest value of each key of a topic, which it follows: `Client.create_table_view` creates it.

    The value of a key is that of its last message. A message without a value, or with an empty payload, removes the
    key. Messages without a key are ignored. If a value can't be decoded, that is logged, and the key keeps its former
    value. All keys and decoded values are held in memory.

    While a broker can't be reached, the view keeps what it has; then it catches up. When it is closed, or its topic
    can't be read any more, each use raises the reason.
    """

    def __init__(self, core: MultiTopicConsumer) -> None:
        super().__init__(core)
        # Held while a batch is applied or a callback is added, and the task that holds it.
        self._turn = asyncio.Lock()
        self._holder: asyncio.Task[Any] | None = None
        self._following = asyncio.get_running_loop().create_task(
            follow_table(self._contents, lambda batch: self._run_alone(partial(self._apply, batch))),
            name=f"magnetar table view of {self.topic()}",
        )

    async def refresh(self) -> None:
        """Return when everything that was published before this call is in the view.

        Raises Timeout if no message comes for `operation_timeout_seconds`, and SchemaUnavailable if a schema version
        can't be read for that time. The view goes on, and applies the messages later.
        """
        if self._is_in_callback():
            raise OperationNotSupported(NO_REFRESH_IN_CALLBACK)
        await refresh_table(self._contents)

    async def for_each(self, callback: TableCallback[T]) -> None:
        """Call `callback` with each key and its value."""
        check_listener("callback", callback, awaited=True)
        for key, value in self.items():
            result = callback(key, value)
            if inspect.isawaitable(result):
                await result

    async def for_each_and_listen(self, callback: TableCallback[T]) -> None:
        """Call `callback` with each key and its value, and from then on with each change: the key and its new value, or
        None if the key was removed. Returns after the calls for what was there.

        No change is missed or reported twice. All calls are made by the view, one at a time and in order. An exception
        of `callback` is logged, and the next call is made.
        """
        check_listener("callback", callback, awaited=True)
        self._core.check_open()
        if self._is_in_callback():
            await self._add_callback(callback)
        else:
            await self._run_alone(partial(self._add_callback, callback))

    async def close(self) -> None:
        """Close the view. Closing twice does nothing."""
        if self._following is not asyncio.current_task():  # otherwise a callback closes the view, and goes on
            self._following.cancel()
        await self._core.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _is_in_callback(self) -> bool:
        return self._holder is not None and self._holder is asyncio.current_task()

    async def _run_alone(self, work: Callable[[], Awaitable[None]]) -> None:
        async with self._turn:
            self._holder = asyncio.current_task()
            try:
                await work()
            finally:
                self._holder = None

    async def _apply(self, messages: deque[Message[T]]) -> None:
        while messages:
            try:
                change = self._contents.apply_message(messages[0])
            except SchemaUnavailable:
                break
            messages.popleft()
            if change is not None:
                for callback in self._contents.callbacks:
                    await self._call(callback, *change)
        await asyncio.sleep(0)  # other tasks have their turn between batches

    async def _add_callback(self, callback: TableCallback[T]) -> None:
        for key, value in self._contents.values.copy().items():
            await self._call(callback, key, value)
        self._contents.callbacks += (callback,)

    async def _call(self, callback: TableCallback[T], key: str, value: T | None) -> None:
        try:
            result = callback(key, value)
            if inspect.isawaitable(result):
                await result
        except Exception:
            log.exception("a callback of the table view of %s failed for %r", self.topic(), key)
