"""The cursors of a non-persistent topic: the names and properties of its subscriptions, in memory only.

A cursor is always at the end of the log: subscriptions.py moves it there. A durable subscription without
consumers exists until it or the topic is deleted, or the topic is unloaded, as in Pulsar.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from magnetar_broker.cursors.ack_state import AckState
from magnetar_broker.cursors.cursor import Cursor, TransientCursor
from magnetar_broker.cursors.cursor_opener import UnopenedCursor
from magnetar_broker.cursors.durable_cursor import DurableCursor
from magnetar_broker.cursors.subscription_limits import check_properties, check_subscription_name
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.interface import LogPositions
from magnetar_broker.position import Position
from magnetar_broker.settings.managed_ledgers import CursorSettings
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.topic_name import TopicName

__all__ = ["NonPersistentCursors"]


# Subscriptions without consumers use memory: this limit holds if the settings have none.
_MAX_SUBSCRIPTIONS: Final = 10_000


class _NamedCursor(TransientCursor):
    """A cursor that clients find by its name, as a durable one, and that is not stored."""

    __slots__ = ("_unused_ms",)

    is_durable = True

    def __init__(self, name: str, state: AckState, properties: Mapping[str, str]) -> None:
        super().__init__(name, state, properties)
        self._unused_ms = 0

    @property
    def unused_ms(self) -> int:
        return self._unused_ms

    async def set_unused(self, unused_ms: int) -> None:
        self._unused_ms = unused_ms


class NonPersistentCursors:
    """The `TopicCursors` of a non-persistent topic."""

    __slots__ = ("_cursors", "_log", "_name", "_settings", "on_lost")

    def __init__(self, name: TopicName, log: LogPositions, settings: CursorSettings) -> None:
        self.on_lost: Callable[[TopicUnloaded], object] = lambda _: None
        self._name = name
        self._log = log
        self._settings = settings
        self._cursors: dict[str, _NamedCursor] = {}

    def get(self, name: str) -> Cursor | None:
        return self._cursors.get(name)

    def durable_cursors(self) -> Sequence[Cursor]:
        return list(self._cursors.values())

    def names(self) -> list[str]:
        return list(self._cursors)

    def unopened_cursors(self) -> Sequence[UnopenedCursor]:
        return ()

    async def wait_until_listed(self) -> None:
        return

    async def wait_until_open(self, name: str, *, wait_again: bool = True) -> None:
        return

    def find_slowest_position(self) -> Position | None:
        return None

    def check_capacity(self, transient: int = 0) -> None:
        count = len(self._cursors) + transient
        limit = min(self._settings.max_subscriptions_per_topic or _MAX_SUBSCRIPTIONS, _MAX_SUBSCRIPTIONS)
        if count >= limit:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"{self._name} has {count:,} subscriptions, and at most {limit:,} are allowed "
                "(max_subscriptions_per_topic): delete one",
            )

    async def create(self, name: str, mark_delete: Position, properties: Mapping[str, str]) -> Cursor:
        check_subscription_name(name)
        check_properties("subscription", properties)
        self.check_capacity()
        return self._cursors.setdefault(name, _NamedCursor(name, AckState(self._log, mark_delete), dict(properties)))

    async def replace(self, name: str, mark_delete: Position) -> Cursor:
        raise self._no_subscription(name)  # cursors in memory are never damaged

    def create_transient(self, name: str, mark_delete: Position) -> Cursor:
        return TransientCursor(name, AckState(self._log, mark_delete), {})

    async def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        check_properties("subscription", properties)
        self._get(name).properties = dict(properties)

    async def set_unused(self, name: str, unused_ms: int) -> None:
        await self._get(name).set_unused(unused_ms)

    async def delete(self, name: str) -> None:
        if self._cursors.pop(name, None) is None:
            raise self._no_subscription(name)

    def _get(self, name: str) -> _NamedCursor:
        if (cursor := self._cursors.get(name)) is None:
            raise self._no_subscription(name)
        return cursor

    def _no_subscription(self, name: str) -> BrokerError:
        return BrokerError(ErrorCode.SUBSCRIPTION_NOT_FOUND, f"{self._name} has no subscription {name!r}")

    # Internal cursors belong to deduplication, which non-persistent topics do not have.

    def has_internal(self, name: str) -> bool:
        return False

    def get_internal(self, name: str) -> None:
        return None

    async def create_internal(self, name: str, mark_delete: Position) -> DurableCursor:
        raise BrokerError(ErrorCode.UNSUPPORTED, f"{self._name} is non-persistent, and has no cursor {name!r}")

    replace_internal = create_internal

    async def delete_internal(self, name: str) -> None:
        return

    def drop_trimmed_ledgers(self) -> None:
        return

    def tick(self, now: float) -> None:
        return

    async def flush(self) -> None:
        return

    async def close(self) -> None:
        return

    def abandon(self) -> None:
        return
