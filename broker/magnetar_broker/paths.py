"""Paths of a broker's nodes in the metadata store.

    /clusters/<cluster>                                   ClusterNode: data of another cluster, or set for this one
    /tenants/<tenant>                                     TenantNode
    /namespaces/<tenant>/<namespace>                      NamespaceNode
    /namespace-incarnations/<hex>                         empty: the namespace still has this incarnation
    /partitioned/<tenant>/<namespace>/<domain>            changes when a topic below it grows or is deleted
    /partitioned/<tenant>/<namespace>/<domain>/<topic>    PartitionedTopicNode
    /topics/<tenant>/<namespace>/<domain>/<topic>         ManagedLedgerNode: the topic's incarnation and ledgers
    /topics/…/<topic>/incarnation-<uuid>                  empty: the topic still has this incarnation
    /topics/…/<topic>/pages/<number>                      LedgerPage: older parts of that list
    /topics/…/<topic>/cursors                             CursorTableNode: the owner of the topic's cursors
    /topics/…/<topic>/cursors/<subscription>              CursorNode
    /schemas/<tenant>/<namespace>/<domain>/<topic>        SchemaNode: the versions of the topic's schema
    /schemas/…/<topic>/incarnation-<hex>                  empty: that node still has this incarnation
    /leased-remains/<incarnation>-<number>                LeasedRemains: leased ledgers of a deleted topic
    /namespace-leases/<tenant>%2F<namespace>              NamespaceLeases: leases that topics created later get

    /dynamic-configuration                                DynamicConfigurationNode

    /brokers/<broker id>                                  BrokerRegistration, ephemeral
    /owners/<tenant>/<namespace>/<bundle>                 BundleOwner, ephemeral

Names of topics and subscriptions and ids of brokers are encoded as path components. All nodes but the ephemeral ones
are changed by magnetar_metadata.compare_and_set.
"""

from __future__ import annotations

from typing import Final

from magnetar_wire.bundles import BundleRange
from magnetar_wire.path_component import encode_path_component
from magnetar_wire.topic_name import NamespaceName, TopicDomain, TopicName

__all__ = ["BROKERS", "LEASED_LEDGERS", "NAMESPACES", "NAMESPACE_LEASES", "OWNERS", "PARTITIONED", "TENANTS", "TOPICS"]

CLUSTERS: Final = "/clusters"
TENANTS: Final = "/tenants"
NAMESPACES: Final = "/namespaces"
NAMESPACE_INCARNATIONS: Final = "/namespace-incarnations"
PARTITIONED: Final = "/partitioned"
TOPICS: Final = "/topics"
SCHEMAS: Final = "/schemas"
LEASED_LEDGERS: Final = "/leased-remains"
NAMESPACE_LEASES: Final = "/namespace-leases"
DYNAMIC_CONFIGURATION: Final = "/dynamic-configuration"
BROKERS: Final = "/brokers"
OWNERS: Final = "/owners"


def cluster(name: str) -> str:
    return f"{CLUSTERS}/{encode_path_component(name)}"


def tenant(name: str) -> str:
    return f"{TENANTS}/{name}"


def namespace(name: NamespaceName) -> str:
    return f"{NAMESPACES}/{name}"


def namespace_incarnation(incarnation: bytes) -> str:
    return f"{NAMESPACE_INCARNATIONS}/{incarnation.hex()}"


def folder(root: str, name: NamespaceName, domain: TopicDomain) -> str:
    """The parent of a namespace's nodes below `TOPICS` or `PARTITIONED`."""
    return f"{root}/{name}/{domain}"


def partitioned(topic: TopicName) -> str:
    return f"{folder(PARTITIONED, topic.namespace_name, topic.domain)}/{topic.encoded_local_name}"


def topic(name: TopicName) -> str:
    return f"{folder(TOPICS, name.namespace_name, name.domain)}/{name.encoded_local_name}"


def incarnation(name: TopicName, uuid: str) -> str:
    return f"{topic(name)}/incarnation-{uuid}"


def pages(name: TopicName) -> str:
    return f"{topic(name)}/pages"


def cursors(name: TopicName) -> str:
    return f"{topic(name)}/cursors"


def cursor(name: TopicName, subscription: str) -> str:
    return f"{cursors(name)}/{encode_path_component(subscription)}"


def schema(topic: TopicName) -> str:
    """The path of the schema of a topic that is no partition."""
    return f"{SCHEMAS}/{topic.namespace_name}/{topic.domain}/{topic.encoded_local_name}"


def schema_incarnation(topic: TopicName, incarnation: bytes) -> str:
    return f"{schema(topic)}/incarnation-{incarnation.hex()}"


def leased_ledgers(incarnation: str, number: int) -> str:
    return f"{LEASED_LEDGERS}/{incarnation}-{number}"


def namespace_leases(name: NamespaceName) -> str:
    return f"{NAMESPACE_LEASES}/{encode_path_component(str(name))}"


def broker(broker_id: str) -> str:
    return f"{BROKERS}/{encode_path_component(broker_id)}"


def owners(name: NamespaceName) -> str:
    return f"{OWNERS}/{name}"


def owner(name: NamespaceName, bundle: BundleRange) -> str:
    return f"{owners(name)}/{bundle}"
