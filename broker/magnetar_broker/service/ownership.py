"""Which broker serves a topic. One broker owns everything for now."""

from __future__ import annotations

from typing import Protocol

from magnetar_wire.topic_name import TopicName

__all__ = ["Ownership", "OwnsEverything"]


class Ownership(Protocol):
    async def owner(self, topic: TopicName) -> str:
        """The address at which clients reach its broker. Raises `BrokerError` where nobody has it."""


class OwnsEverything:
    def __init__(self, address: str) -> None:
        self.address = address

    async def owner(self, topic: TopicName) -> str:
        return self.address
