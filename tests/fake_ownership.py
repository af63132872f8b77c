"""A fake `Ownership` with given answers: of a broker without others, or one that is wrong."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.advertised_addresses import AdvertisedAddresses
from magnetar_broker.ownership.interface import TopicOwner
from magnetar_wire.topic_name import TopicName

__all__ = ["FakeOwnership"]


class FakeOwnership:
    """Returns the owners in order, and the last one from then on. Every check passes."""

    def __init__(self, *owners: TopicOwner | BrokerError) -> None:
        self._left = list(owners)
        # Calls of `find_owner`.
        self.lookups = 0

    @classmethod
    def of_everything(cls, addresses: Sequence[tuple[str, str]], broker_id: str = "") -> FakeOwnership:
        """Make one whose broker owns every topic."""
        return cls(TopicOwner(broker_id, AdvertisedAddresses(tuple(addresses)), is_local=True))

    async def find_owner(self, topic: TopicName) -> TopicOwner:
        self.lookups += 1
        owner = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        if isinstance(owner, BrokerError):
            raise owner
        return owner

    def check_owned(self, topic: TopicName) -> None:
        pass

    async def ensure_owned(self, topic: TopicName) -> None:
        pass

    async def verify_owned(self, topic: TopicName) -> None:
        pass

    def reverify(self, topic: TopicName) -> None:
        pass
