"""An `Ownership` without others: of a broker alone, or of brokers that are wrong about it."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_broker.ownership.interface import Advertised, Home
from magnetar_wire.topic_name import TopicName

__all__ = ["OwnsEverything"]


class OwnsEverything:
    """One broker alone."""

    def __init__(self, addresses: Sequence[tuple[str, str]], broker_id: str = "") -> None:
        self._home = Home(broker_id, Advertised(tuple(addresses)), here=True)

    async def home(self, topic: TopicName) -> Home:
        return self._home

    def check(self, topic: TopicName) -> None:
        pass

    async def admit(self, topic: TopicName) -> None:
        pass

    async def confirm(self, topic: TopicName) -> None:
        pass

    def doubt(self, topic: TopicName) -> None:
        pass
