"""Progress subscriptions: durable subscriptions that retain the messages which a reader of a topic's log has not read.

Such a reader reads ledgers directly from bookies. It moves its progress subscription forward as it reads.

1. **A subscription either delivers to consumers or keeps progress.** A progress subscription is created with the
   property `magnetar.progress-owner`, and keeps it. `advance` refuses a subscription without it: consumers would never
   get the messages that are acknowledged for them, also while none of them is connected. `check_consumable` refuses
   consumers on one that has it: they would acknowledge messages that the reader has not read. Administrators may reset,
   skip and delete both kinds.
2. **It belongs to one reader.** Of two readers, the slower one would lose what the faster one acknowledges. The value
   of the property is the owner's id, which the reader draws at random and stores with its own position. It is empty
   until a reader names its id: a reader creates the subscription before it has stored its id anywhere. The first reader
   that names an id becomes the owner, and other readers are refused.
3. **Without an owner it is never ahead of a reader that wants it.** The reader that created it may have ended before it
   stored its id. The next reader may begin at an earlier position: the subscription is moved back there. It is not
   moved forward until messages were read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from magnetar_broker.cursors.interface import TopicCursors
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.topics.client_positions import find_start
from magnetar_broker.topics.subscription import Subscription
from magnetar_protos.broker_pb2 import ErrorCode, StartAt

__all__ = ["NO_OWNER", "ProgressOwner", "advance", "check_consumable", "check_settable", "describe_owner"]

_OWNER: Final = "magnetar.progress-owner"
_OWNER_NAME: Final = "magnetar.progress-owner-name"
_MAX_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class ProgressOwner:
    """`owner_id` is empty where the reader does not say who it is. `name` is for people."""

    owner_id: str = ""
    name: str = ""

    def check(self) -> None:
        """Raises `BrokerError`."""
        for what, size in (("id", len(self.owner_id.encode())), ("name", len(self.name.encode()))):
            if size > _MAX_BYTES:
                raise BrokerError(
                    ErrorCode.INVALID_ARGUMENT,
                    f"the {what} of a progress subscription's owner has {size} bytes, above the limit of {_MAX_BYTES}",
                )

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a progress subscription that has this owner."""
        return {_OWNER: self.owner_id, _OWNER_NAME: self.name} if self.owner_id else {_OWNER: ""}


NO_OWNER: Final = ProgressOwner()


def check_consumable(name: str, properties: Mapping[str, str]) -> None:
    """Refuse consumers on a progress subscription. Raises `BrokerError`."""
    if _OWNER not in properties:
        return
    owner = properties.get(_OWNER_NAME)
    raise BrokerError(
        ErrorCode.NOT_ALLOWED,
        f"subscription {name} stores the progress of a reader{f' ({owner})' if owner else ''}, and can't "
        "have consumers, which would acknowledge messages that it has not read: subscribe with another "
        "name",
    )


def describe_owner(properties: Mapping[str, str]) -> str:
    """Return the reader that a progress subscription belongs to; empty: it is for consumers."""
    if _OWNER not in properties:
        return ""
    return properties.get(_OWNER_NAME) or properties[_OWNER] or "which has not named itself yet"


def check_settable(name: str, properties: Mapping[str, str], new: Mapping[str, str]) -> None:
    """Refuse that properties are replaced which say whose progress a subscription stores. Raises `BrokerError`."""
    if any(properties.get(key) != new.get(key) for key in (_OWNER, _OWNER_NAME)):
        raise BrokerError(
            ErrorCode.NOT_ALLOWED,
            f"the properties {_OWNER} and {_OWNER_NAME} of subscription {name} can't be changed: a reader sets them "
            "when it stores its progress",
        )


async def advance(
    subscription: Subscription, cursors: TopicCursors, log: Log, to: StartAt, only_make: bool, owner: ProgressOwner
) -> None:
    """Acknowledge everything before `to`, durably; with `only_make` only check that this is allowed. The owner becomes
    the subscription's, if that has none. It may be repeated. The caller runs it as a change. Raises `BrokerError`."""
    properties = subscription.cursor.properties
    if _OWNER not in properties:
        raise BrokerError(
            ErrorCode.NOT_ALLOWED,
            f"subscription {subscription.name} belongs to consumers, which would never get the messages "
            "that a reader acknowledges: choose another name for the progress subscription",
        )
    owner_id = properties[_OWNER]
    is_named = bool(owner.owner_id)
    if owner_id and owner_id != owner.owner_id and (is_named or not only_make):
        raise BrokerError(
            ErrorCode.CONSUMER_BUSY,
            f"subscription {subscription.name} stores the progress of another reader "
            f"({properties.get(_OWNER_NAME) or owner_id})",
        )
    if not owner_id and (is_named or only_make):
        await _move_back(subscription, log, to)
        # The owner is stored last: a repetition after a failure moves the subscription, too.
        if is_named:
            await cursors.set_properties(subscription.name, {**properties, **owner.properties})
    if only_make:
        return
    start = await find_start(log, to)
    if start.skipped is not None:
        subscription.cursor.acknowledge((), [start.skipped])
    await subscription.skip_to(start.mark_delete)


async def _move_back(subscription: Subscription, log: Log, to: StartAt) -> None:
    """Move the subscription to `to` if it is ahead of that."""
    start = await find_start(log, to)
    first = log.first_after(start.mark_delete)
    skipped = start.skipped[1] if start.skipped is not None else 0
    cursor = subscription.cursor
    if cursor.is_acknowledged(first) or cursor.get_acknowledged_messages(first) & ~skipped:
        await subscription.seek(to)
