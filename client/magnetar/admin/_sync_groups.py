"""The same for those who wait: each method has that of the asynchronous group run, and its documentation."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from magnetar.admin._groups import (
    ActiveBrokers,
    AsyncBrokers,
    AsyncNamespaces,
    AsyncSubscriptions,
    AsyncTenants,
    AsyncTopics,
    Bundles,
    Homes,
    Names,
    OwnedBundles,
    Peeked,
)
from magnetar.admin._values import StartPoint
from magnetar.admin.models import (
    BrokerInfo,
    Health,
    InternalStats,
    NamespacePolicies,
    PartitionedTopic,
    TenantSettings,
    TopicHome,
    TopicStats,
)
from magnetar_wire.message_id import MessageId

__all__ = ["Brokers", "Namespaces", "Run", "Subscriptions", "Tenants", "Topics", "documented_as"]

T = TypeVar("T")
C = TypeVar("C", bound=type[Any])


class Run(Protocol):
    def __call__(self, work: Coroutine[Any, Any, T]) -> T: ...


def documented_as(other: type[Any]) -> Callable[[C], C]:
    """Gives a group that waits the documentation of the asynchronous one."""

    def document(kind: C) -> C:
        kind.__doc__ = kind.__doc__ or other.__doc__
        for name, method in vars(kind).items():
            if callable(method) and not name.startswith("_"):
                method.__doc__ = getattr(other, name).__doc__
        return kind

    return document


@documented_as(AsyncTenants)
class Tenants:
    def __init__(self, group: AsyncTenants, run: Run) -> None:
        self._group = group
        self._run = run

    def list(self) -> Names:
        return self._run(self._group.list())

    def get(self, tenant: str) -> TenantSettings:
        return self._run(self._group.get(tenant))

    def create(self, tenant: str, settings: TenantSettings | None = None) -> None:
        self._run(self._group.create(tenant, settings))

    def update(self, tenant: str, settings: TenantSettings) -> None:
        self._run(self._group.update(tenant, settings))

    def delete(self, tenant: str, force: bool = False) -> None:
        self._run(self._group.delete(tenant, force))


@documented_as(AsyncNamespaces)
class Namespaces:
    def __init__(self, group: AsyncNamespaces, run: Run) -> None:
        self._group = group
        self._run = run

    def list(self, tenant: str) -> Names:
        return self._run(self._group.list(tenant))

    def policies(self, namespace: str) -> NamespacePolicies:
        return self._run(self._group.policies(namespace))

    def create(
        self, namespace: str, policies: NamespacePolicies | None = None, bundles: int | None = None
    ) -> tuple[str, ...]:
        return self._run(self._group.create(namespace, policies, bundles))

    def set_policies(self, namespace: str, policies: NamespacePolicies) -> tuple[str, ...]:
        return self._run(self._group.set_policies(namespace, policies))

    def delete(self, namespace: str, force: bool = False) -> None:
        self._run(self._group.delete(namespace, force))

    def bundles(self, namespace: str) -> Bundles:
        return self._run(self._group.bundles(namespace))

    def unload(self, namespace: str, bundle: str | None = None, destination: str | None = None) -> None:
        self._run(self._group.unload(namespace, bundle, destination))

    def split_bundle(
        self, namespace: str, bundle: str, algorithm: str | None = None, at: int | None = None
    ) -> tuple[str, str]:
        return self._run(self._group.split_bundle(namespace, bundle, algorithm, at))


@documented_as(AsyncTopics)
class Topics:
    def __init__(self, group: AsyncTopics, run: Run) -> None:
        self._group = group
        self._run = run

    def list(self, namespace: str, include_system_topic: bool = False) -> Names:
        return self._run(self._group.list(namespace, include_system_topic))

    def list_partitioned(self, namespace: str, include_system_topic: bool = False) -> Names:
        return self._run(self._group.list_partitioned(namespace, include_system_topic))

    def create(self, topic: str) -> None:
        self._run(self._group.create(topic))

    def delete(self, topic: str, force: bool = False) -> None:
        self._run(self._group.delete(topic, force))

    def truncate(self, topic: str) -> None:
        self._run(self._group.truncate(topic))

    def unload(self, topic: str) -> None:
        self._run(self._group.unload(topic))

    def lookup(self, topic: str, listener_name: str = "") -> TopicHome:
        return self._run(self._group.lookup(topic, listener_name))

    def lookup_partitioned(self, topic: str, listener_name: str = "") -> dict[str, TopicHome]:
        return self._run(self._group.lookup_partitioned(topic, listener_name))

    def homes(self, topic: str, listener_name: str = "") -> Homes:
        return self._run(self._group.homes(topic, listener_name))

    def stats(self, topic: str) -> TopicStats:
        return self._run(self._group.stats(topic))

    def internal_stats(self, topic: str) -> InternalStats:
        return self._run(self._group.internal_stats(topic))

    def create_partitioned(self, topic: str, partitions: int, properties: Mapping[str, str] | None = None) -> None:
        self._run(self._group.create_partitioned(topic, partitions, properties))

    def get_partitioned(self, topic: str) -> PartitionedTopic:
        return self._run(self._group.get_partitioned(topic))

    def update_partitioned(self, topic: str, partitions: int) -> None:
        self._run(self._group.update_partitioned(topic, partitions))

    def delete_partitioned(self, topic: str, force: bool = False) -> None:
        self._run(self._group.delete_partitioned(topic, force))


@documented_as(AsyncSubscriptions)
class Subscriptions:
    def __init__(self, group: AsyncSubscriptions, run: Run) -> None:
        self._group = group
        self._run = run

    def list(self, topic: str) -> Names:
        return self._run(self._group.list(topic))

    def create(
        self,
        topic: str,
        subscription: str,
        start: StartPoint = MessageId.latest,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self._run(self._group.create(topic, subscription, start, properties))

    def delete(self, topic: str, subscription: str, force: bool = False) -> None:
        self._run(self._group.delete(topic, subscription, force))

    def reset(self, topic: str, subscription: str, to: StartPoint) -> None:
        self._run(self._group.reset(topic, subscription, to))

    def skip(self, topic: str, subscription: str, entries: int) -> int:
        return self._run(self._group.skip(topic, subscription, entries))

    def skip_all(self, topic: str, subscription: str) -> int:
        return self._run(self._group.skip_all(topic, subscription))

    clear_backlog = skip_all

    def expire(self, topic: str, subscription: str, older_than_s: int) -> int:
        return self._run(self._group.expire(topic, subscription, older_than_s))

    def peek(self, topic: str, subscription: str, entries: int = 1) -> Peeked:
        return self._run(self._group.peek(topic, subscription, entries))


@documented_as(AsyncBrokers)
class Brokers:
    def __init__(self, group: AsyncBrokers, run: Run) -> None:
        self._group = group
        self._run = run

    def list(self) -> ActiveBrokers:
        return self._run(self._group.list())

    def bundles(self, broker_id: str | None = None) -> OwnedBundles:
        return self._run(self._group.bundles(broker_id))

    def info(self) -> BrokerInfo:
        return self._run(self._group.info())

    def health(self) -> Health:
        return self._run(self._group.health())
