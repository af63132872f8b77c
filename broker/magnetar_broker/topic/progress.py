"""How far a reader has come that reads a topic's log past the broker, as a durable subscription, so that the rest is
kept for it.

The subscription is that reader's alone. Nothing is delivered by it, so one that has consumers is refused: what is
acknowledged here would never come to them. Of two readers the slower one would lose what the faster one has
acknowledged, so the subscription has an owner: an id that the reader drew at random and keeps with its own position.
The subscription's properties name the owner; the first reader that says who it is becomes the owner, and another one is
refused. A reader that only makes the subscription, before it has kept its id anywhere, need not say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import CursorTable, Log
from magnetar_broker.topic.start_place import find_start
from magnetar_broker.topic.subscription import Subscription
from magnetar_protos.broker_pb2 import ErrorCode, StartAt

__all__ = ["NO_OWNER", "ProgressOwner", "advance"]

_OWNER: Final = "magnetar.progress-owner"
_OWNER_NAME: Final = "magnetar.progress-owner-name"
_MAX_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class ProgressOwner:
    """`owner_id` empty: the reader does not say who it is. `name` is for people."""

    owner_id: str = ""
    name: str = ""

    def check(self) -> None:
        """Raises `BrokerError`."""
        for what, size in (("id", len(self.owner_id.encode())), ("name", len(self.name.encode()))):
            if size > _MAX_BYTES:
                raise BrokerError(
                    ErrorCode.INVALID_ARGUMENT, f"the {what} of a progress's owner has {size} bytes, above {_MAX_BYTES}"
                )

    @property
    def properties(self) -> dict[str, str]:
        return {_OWNER: self.owner_id, _OWNER_NAME: self.name} if self.owner_id else {}

    def __str__(self) -> str:
        shown = self.owner_id or "a reader that does not say who it is"
        return f"{shown} ({self.name})" if self.name else shown


NO_OWNER: Final = ProgressOwner()


async def advance(
    subscription: Subscription, cursors: CursorTable, log: Log, to: StartAt | None, owner: ProgressOwner
) -> None:
    """Acknowledges everything in front of `to`, durably. It never goes back, so it may be repeated. `None`: only checks
    whether that could be done. The owner becomes the subscription's, if that has none. The caller runs it as a change.
    Raises `BrokerError`."""
    if subscription.consumers:
        raise BrokerError(
            ErrorCode.CONSUMER_BUSY,
            f"subscription {subscription.name} has {len(subscription.consumers)} consumer(s), who would miss what "
            "is acknowledged as read elsewhere: use another subscription for the progress, or close them",
        )
    properties = subscription.cursor.properties
    known = _owner_in(properties)
    says_who = bool(owner.owner_id) or to is not None
    if known.owner_id and known.owner_id != owner.owner_id and says_who:
        raise BrokerError(
            ErrorCode.CONSUMER_BUSY,
            f"subscription {subscription.name} keeps the progress of {known}, and not of {owner}: use another one, or "
            "delete it if that reader is gone for good",
        )
    if owner.owner_id and not known.owner_id:
        await cursors.set_properties(subscription.name, {**properties, **owner.properties})
    if to is None:
        return
    place = await find_start(log, to)
    if place.passed_over is not None:
        subscription.cursor.acknowledge((), [place.passed_over])
    await subscription.skip_to(place.mark_delete)


def _owner_in(properties: Mapping[str, str]) -> ProgressOwner:
    return ProgressOwner(properties[_OWNER], properties.get(_OWNER_NAME, "")) if properties.get(_OWNER) else NO_OWNER
