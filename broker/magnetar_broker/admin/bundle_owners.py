"""What administration asks of ownership."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from magnetar_broker.ownership.interface import Ownership
from magnetar_protos.ownership_pb2 import BrokerRegistration, BundleOwner
from magnetar_wire.bundles import BundleRange
from magnetar_wire.topic_name import NamespaceName

__all__ = ["BundleOwners"]


class Owned(Protocol):
    """A bundle that this broker has."""

    @property
    def namespace(self) -> NamespaceName: ...

    @property
    def bundle(self) -> BundleRange: ...


class BundleOwners(Ownership, Protocol):
    def owned(self) -> Sequence[Owned]:
        """What this broker has."""

    async def brokers(self) -> Sequence[tuple[str, BrokerRegistration]]:
        """All that take topics, by their ids. Raises `BrokerError`."""

    async def bundles(self, namespace: NamespaceName) -> Sequence[tuple[BundleRange, BundleOwner | None]]:
        """Of the namespace, in order, and who has each. Raises `BrokerError`, NOT_FOUND among them."""

    async def owner_of(self, namespace: NamespaceName, bundle: BundleRange) -> BundleOwner | None:
        """Who has that one. Raises `BrokerError`, NOT_FOUND where there is no such bundle."""

    async def claim(self, namespace: NamespaceName, bundle: BundleRange) -> BundleOwner:
        """Who has it then: this broker, or whoever was faster. Raises `BrokerError`."""

    async def unload(self, namespace: NamespaceName, bundle: BundleRange, destination: str = "") -> None:
        """Of one that this broker has. Raises `BrokerError`."""

    async def split(self, namespace: NamespaceName, bundle: BundleRange, at: int | None) -> object:
        """Of one that this broker has; in the middle where `at` is None. Raises `BrokerError`."""
