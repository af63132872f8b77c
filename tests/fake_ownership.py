"""An `Ownership` whose answers are known beforehand: a broker's without others, or one that is wrong."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.interface import Advertised, Home
from magnetar_wire.topic_name import TopicName

__all__ = ["FakeOwnership"]


class FakeOwnership:
    """Names the owners in order, and the last one again and again. Every check passes."""

    def __init__(self, *homes: Home | BrokerError) -> None:
        self._left = list(homes)
        # Calls of `home`.
        self.asked = 0

    @classmethod
    def of_everything(cls, addresses: Sequence[tuple[str, str]], broker_id: str = "") -> FakeOwnership:
        """Make one whose broker owns every topic."""
        return cls(Home(broker_id, Advertised(tuple(addresses)), here=True))

    async def home(self, topic: TopicName) -> Home:
        self.asked += 1
        home = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        if isinstance(home, BrokerError):
            raise home
        return home

    def check(self, topic: TopicName) -> None:
        pass

    async def admit(self, topic: TopicName) -> None:
        pass

    async def confirm(self, topic: TopicName) -> None:
        pass

    def doubt(self, topic: TopicName) -> None:
        pass
