"""What `Topics` needs from elsewhere: where topics are stored, and whether they may exist."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from magnetar_broker.managed_ledger.topic_node import NewTopic
from magnetar_broker.topics.topic import Topic
from magnetar_metadata.store import Change
from magnetar_protos.catalog_pb2 import Policies
from magnetar_wire.topic_name import TopicName

__all__ = ["TopicCatalog", "TopicStorage"]


class TopicStorage(Protocol):
    async def prefetch(self, name: TopicName) -> Any:
        """Read ahead what `open` needs. Raises `BrokerError`."""

    async def open(
        self,
        name: TopicName,
        *,
        policies: Policies,
        if_absent: NewTopic | None = None,
        own_policies: Awaitable[Policies] | None = None,
        prefetched: Any = None,
        log_opened: Callable[[Topic], object] = lambda _: None,
    ) -> Topic:
        """Open the topic. `policies`: its namespace's; `own_policies` override them, and are waited for as late as
        possible. `if_absent`: create the topic so if it does not exist; None: it must exist. `prefetched`: what
        `prefetch` returned. `log_opened` is called with the topic as soon as it accepts messages; if its cursors can't
        be opened, it is abandoned.

        Raises `BrokerError`, TOPIC_NOT_FOUND among them. If it is cancelled, nothing stays open.
        """

    async def claim(self, name: TopicName) -> bytes:
        """Claim the topic without opening it, and return its new owner epoch. Finishes a deletion that was begun.
        Raises `BrokerError`, TOPIC_NOT_FOUND among them."""

    async def delete(self, name: TopicName, owner_epoch: bytes | None = None, incarnation: str = "") -> None:
        """Delete the topic with its ledgers and cursors. `owner_epoch`: raise `RequestNotStarted` if the topic has
        another one. `incarnation`: leave a later topic of that name alone. Raises `BrokerError`; may be repeated."""


class TopicCatalog(Protocol):
    async def check_topic(self, name: TopicName) -> Policies:
        """Return the policies of its namespace. Raises `BrokerError` if the tenant or namespace does not exist."""

    def creation_turn(self, name: TopicName, policies: Policies) -> AbstractAsyncContextManager[None]:
        """Return the turn of a topic's creation, which `prepare_creation` and the creation are in. `policies`: its
        namespace's."""

    async def prepare_creation(self, name: TopicName, *, explicit: bool = False) -> Sequence[Change]:
        """Return the checks of the transaction that creates the topic. `explicit`: a request creates it; else it is
        created on first use. Raises `BrokerError` if it must not be created."""
