"""The synchronous table view."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from functools import partial
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from magnetar._consumer import Run
from magnetar._consuming.multi_topic_consumer import MultiTopicConsumer
from magnetar._listeners.message_listener import check_listener
from magnetar._message import Message
from magnetar._public_object import Unpicklable, repr_of
from magnetar._table_contents import TableCallback, TableContents, follow_table, refresh_table
from magnetar._threads.callback_thread import CallbackThread
from magnetar.exceptions import OperationNotSupported, SchemaUnavailable
from magnetar.schema._schema import T

__all__ = ["NO_REFRESH_IN_CALLBACK", "BaseTableView", "TableView"]

log = logging.getLogger("magnetar")

D = TypeVar("D")

NO_REFRESH_IN_CALLBACK: Final = (
    "refresh would wait for messages that are applied when this callback has returned: call it from another thread or "
    "task"
)


class BaseTableView(Unpicklable, Generic[T]):
    """The methods that don't wait, which the synchronous and the asyncio table view share."""

    def __init__(self, core: MultiTopicConsumer) -> None:
        self._core = core
        self._contents: TableContents[T] = TableContents(core)

    def topic(self) -> str:
        """Return the topic's full name."""
        return str(self._core.names[0])

    def is_connected(self) -> bool:
        """Return whether all partitions are connected to their brokers now."""
        return self._core.is_connected

    def get(self, key: str, default: D | None = None) -> T | D | None:
        """Return the latest value of a key; the default if there is none."""
        return self._get_values().get(key, default)

    def keys(self) -> KeysView[str]:
        """Return the keys that there are now. Later changes don't change what was returned."""
        return self._copy().keys()

    def values(self) -> ValuesView[T]:
        """Return the values that there are now. Later changes don't change what was returned."""
        return self._copy().values()

    def items(self) -> ItemsView[str, T]:
        """Return the keys and values that there are now. Later changes don't change what was returned."""
        return self._copy().items()

    def __getitem__(self, key: str) -> T:
        return self._get_values()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._get_values()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self._get_values())

    def __repr__(self) -> str:
        return repr_of(self, "topic", "is_connected")

    def _get_values(self) -> dict[str, T]:
        """Raises the error with which the view has ended: what it held would become outdated without notice."""
        self._core.check_open()
        return self._contents.values

    def _copy(self) -> dict[str, T]:
        return self._get_values().copy()  # no change of another thread comes between


class TableView(BaseTableView[T]):
    """The latest value of each key of a topic, which it follows: `Client.create_table_view` creates it.

    The value of a key is that of its last message. A message without a value, or with an empty payload, removes the
    key. Messages without a key are ignored. If a value can't be decoded, that is logged, and the key keeps its former
    value. All keys and decoded values are held in memory.

    While a broker can't be reached, the view keeps what it has; then it catches up. When it is closed, or its topic
    can't be read any more, each use raises the reason.
    """

    def __init__(self, core: MultiTopicConsumer, run: Run) -> None:
        super().__init__(core)
        self._run = run
        # Decodes, applies and calls callbacks. The loop waits for nothing of it.
        self._thread = CallbackThread(f"magnetar table view of {self.topic()}")
        core.call_soon(lambda: core.start_task(self._follow()))

    def refresh(self) -> None:
        """Return when everything that was published before this call is in the view.

        Raises Timeout if no message comes for `operation_timeout_seconds`, and SchemaUnavailable if a schema version
        can't be read for that time. The view goes on, and applies the messages later.
        """
        if self._thread.is_current:
            raise OperationNotSupported(NO_REFRESH_IN_CALLBACK)
        self._core.check_open()
        self._run(refresh_table(self._contents))

    def for_each(self, callback: TableCallback[T]) -> None:
        """Call `callback` with each key and its value."""
        check_listener("callback", callback)
        for key, value in self.items():
            callback(key, value)

    def for_each_and_listen(self, callback: TableCallback[T]) -> None:
        """Call `callback` with each key and its value, and from then on with each change: the key and its new value, or
        None if the key was removed. Returns after the calls for what was there.

        No change is missed or reported twice. All calls are made by the view, one at a time and in order. An exception
        of `callback` is logged, and the next call is made.
        """
        check_listener("callback", callback)
        self._core.check_open()
        if self._thread.is_current:  # in a callback
            self._add_callback(callback)
        else:
            self._run(self._call_on_thread(partial(self._add_callback, callback)))

    def close(self) -> None:
        """Close the view. Closing twice does nothing."""
        if self._core.error is None:
            self._run(self._core.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # On the loop.

    async def _follow(self) -> None:
        try:
            await follow_table(self._contents, lambda batch: self._call_on_thread(partial(self._apply, batch)))
        finally:
            self._thread.stop()

    async def _call_on_thread(self, work: Callable[[], object]) -> None:
        """Return when the view's thread has done the work."""
        self._core.check_open()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def set_done() -> None:
            if not done.done():
                done.set_result(None)

        def call() -> None:
            try:
                work()
            finally:
                self._core.call_soon(set_done)

        self._thread.call_later(call)
        await done

    # On the view's thread.

    def _apply(self, messages: deque[Message[T]]) -> None:
        while messages:
            try:
                change = self._contents.apply_message(messages[0])
            except SchemaUnavailable:
                break
            messages.popleft()
            if change is not None:
                for callback in self._contents.callbacks:
                    self._call(callback, *change)

    def _add_callback(self, callback: TableCallback[T]) -> None:
        for key, value in self._contents.values.copy().items():
            self._call(callback, key, value)
        self._contents.callbacks += (callback,)

    def _call(self, callback: TableCallback[T], key: str, value: T | None) -> None:
        try:
            callback(key, value)
        except BaseException:  # also SystemExit, which would end the thread
            log.exception("a callback of the table view of %s failed for %r", self.topic(), key)
