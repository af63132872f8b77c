"""The Python admin and the commands over HTTP, on a broker of Pulsar and on ours: both do the same.

A broker of Pulsar is started if Java, Maven and the network allow that (tests/peers).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pulsar
import pytest

from magnetar import MessageId, exceptions
from magnetar.admin import Admin, AutoTopicCreation, NamespacePolicies, Persistence, TenantSettings, TopicPolicies
from magnetar.schema import SchemaInfo, SchemaType
from magnetar_testing.standalone_process import StandaloneProcess
from magnetar_wire.schemas import join_key_value
from tests.command_line import CommandLine
from tests.peers import PULSAR_HTTP_URL, PeerUnavailable, running

pytestmark = pytest.mark.slow
# Of the properties of a KEY_VALUE schema.
_UNNAMED = {"name": "", "properties": "{}"}


@pytest.fixture(scope="module", params=["magnetar", pytest.param("pulsar", marks=pytest.mark.soak)])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a REST API."""
    if request.param == "magnetar":
        with StandaloneProcess(tmp_path_factory.mktemp("standalone") / "data") as server:
            yield server.http_url
        return
    try:
        with running("pulsar"):
            yield PULSAR_HTTP_URL
    except PeerUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def admin(url: str) -> Iterator[Admin]:
    with Admin(url) as admin:
        yield admin


@pytest.fixture
def tenant(admin: Admin) -> Iterator[str]:
    name = f"t{uuid.uuid4().hex[:8]}"
    admin.tenants.create(name, TenantSettings(["amy"], admin.tenants.get("public").allowed_clusters))
    yield name
    for namespace in admin.namespaces.list(name):
        # Not by force, which a broker of Pulsar does not allow by default.
        for topic in admin.topics.list_partitioned(namespace):
            admin.topics.delete_partitioned(topic, force=True)
        for topic in admin.topics.list(namespace):
            admin.topics.delete(topic, force=True)
        admin.namespaces.delete(namespace)
    admin.tenants.delete(name)


def test_tenants(admin: Admin, tenant: str) -> None:
    """ADM-1."""
    assert tenant in admin.tenants.list()
    settings = admin.tenants.get(tenant)
    assert list(settings.admin_roles) == ["amy"]
    admin.tenants.update(tenant, TenantSettings(["bob"], settings.allowed_clusters))
    assert list(admin.tenants.get(tenant).admin_roles) == ["bob"]
    with pytest.raises(exceptions.AlreadyExists):
        admin.tenants.create(tenant, settings)
    with pytest.raises(exceptions.NotFound):
        admin.tenants.get(f"{tenant}-missing")
    with pytest.raises(exceptions.NotFound):
        admin.tenants.delete(f"{tenant}-missing")
    with pytest.raises(exceptions.InvalidArgument):
        admin.tenants.create("a b", settings)
    # All clusters, if none is named.
    admin.tenants.create(f"{tenant}-2")
    admin.tenants.delete(f"{tenant}-2")


def test_namespaces_and_policies(admin: Admin, tenant: str) -> None:
    """ADM-1, TOP-4."""
    first, second = f"{tenant}/first", f"{tenant}/second"
    admin.namespaces.create(first)
    admin.namespaces.create(second, NamespacePolicies(persistence=Persistence(1, 1, 1)), 8)
    assert admin.namespaces.list(tenant) == [first, second]
    assert len(admin.namespaces.bundles(second)) == 8
    assert admin.namespaces.policies(second).persistence == Persistence(1, 1, 1)
    with pytest.raises(exceptions.AlreadyExists):
        admin.namespaces.create(first)
    with pytest.raises(exceptions.NotFound):
        admin.namespaces.create(f"{tenant}-missing/x")
    with pytest.raises(exceptions.InvalidArgument):
        admin.namespaces.set_policies(first, NamespacePolicies(persistence=Persistence(1, 2, 1)))
    wanted = NamespacePolicies(
        persistence=Persistence(1, 1, 1), auto_topic_creation=AutoTopicCreation(True, 3), message_ttl_seconds=60
    )
    admin.namespaces.set_policies(first, wanted)
    found = admin.namespaces.policies(first)
    assert (found.persistence, found.auto_topic_creation) == (wanted.persistence, wanted.auto_topic_creation)
    assert found.message_ttl_seconds == 60
    admin.namespaces.change_policies(first, NamespacePolicies(message_ttl_seconds=90), ["persistence"])
    found = admin.namespaces.policies(first)
    assert (found.persistence, found.message_ttl_seconds) == (None, 90)
    # Replaces all.
    admin.namespaces.set_policies(first, NamespacePolicies(persistence=Persistence(1, 1, 1)))
    found = admin.namespaces.policies(first)
    assert (found.persistence, found.auto_topic_creation, found.message_ttl_seconds) == (
        Persistence(1, 1, 1),
        None,
        None,
    )
    topic = f"{first}/t"
    admin.topics.create(topic)
    admin.topics.change_policies(topic, TopicPolicies(message_ttl_seconds=5, max_consumers_per_topic=3))
    assert admin.topics.policies(topic) == TopicPolicies(message_ttl_seconds=5, max_consumers_per_topic=3)
    admin.topics.change_policies(topic, TopicPolicies(), ["message_ttl_seconds"])
    assert admin.topics.policies(topic) == TopicPolicies(max_consumers_per_topic=3)
    with pytest.raises(exceptions.NotAllowedError):
        admin.namespaces.delete(first)
    with pytest.raises(exceptions.NotAllowedError):
        admin.tenants.delete(tenant)
    admin.namespaces.unload(first)
    bundle = admin.namespaces.bundles(first)[0].bundle
    admin.namespaces.unload(first, bundle)
    admin.topics.delete(f"{first}/t")
    admin.namespaces.delete(first)
    with pytest.raises(exceptions.NotFound):
        admin.namespaces.policies(first)


def test_topics(admin: Admin, tenant: str) -> None:
    """ADM-1, TOP-2, TOP-7."""
    namespace = f"{tenant}/shop"
    admin.namespaces.create(namespace)
    topic, parted = f"persistent://{namespace}/orders", f"persistent://{namespace}/placed"
    admin.topics.create(topic)
    with pytest.raises(exceptions.AlreadyExists):
        admin.topics.create(topic)
    admin.topics.create_partitioned(parted, 2)
    assert admin.topics.get_partitioned(parted).partitions == 2
    admin.topics.update_partitioned(parted, 3)
    with pytest.raises(exceptions.NotFound):
        admin.topics.get_partitioned(topic)
    parts = [f"{parted}-partition-{index}" for index in range(3)]
    assert admin.topics.list(namespace) == [topic, *parts]
    assert admin.topics.list_partitioned(namespace) == [parted]
    owners = admin.topics.owners(parted)
    assert [one.topic for one in owners] == parts
    assert all(one.address and one.bundle for one in owners)
    assert admin.topics.lookup(topic).topic == topic
    admin.topics.unload(topic)
    admin.topics.truncate(topic)
    admin.topics.delete(topic)
    for missing in (
        lambda: admin.topics.stats(topic),
        lambda: admin.topics.delete(topic),
        lambda: admin.topics.unload(topic),
        lambda: admin.subscriptions.list(topic),
    ):
        with pytest.raises(exceptions.TopicNotFound):
            missing()
    admin.topics.delete_partitioned(parted)
    assert admin.topics.list(namespace) == []


def test_subscriptions_and_stats(admin: Admin, tenant: str) -> None:
    """ADM-1, SUB-9."""
    namespace = f"{tenant}/shop"
    admin.namespaces.create(namespace)
    topic = f"persistent://{namespace}/orders"
    admin.topics.create(topic)
    admin.subscriptions.create(topic, "billing", MessageId.earliest)
    with pytest.raises(exceptions.AlreadyExists):
        admin.subscriptions.create(topic, "billing")
    assert admin.subscriptions.list(topic) == ["billing"]
    ids = publish(admin, topic, 10)
    assert backlog(admin, topic) == 10
    stats = admin.topics.stats(topic)
    assert (stats.topic, stats.received.messages, stats.stored_entries or 10) == (topic, 10, 10)
    (peeked,) = admin.subscriptions.peek(topic, "billing")
    assert (peeked.payload, peeked.key, peeked.properties) == (b"0", "k0", {"unit": "C"})
    admin.subscriptions.skip(topic, "billing", 3)
    assert backlog(admin, topic) == 7
    admin.subscriptions.reset(topic, "billing", ids[5])
    assert backlog(admin, topic) == 5
    admin.subscriptions.reset(topic, "billing", 1)
    assert backlog(admin, topic) == 10
    admin.subscriptions.skip_all(topic, "billing")
    assert backlog(admin, topic) == 0
    assert admin.topics.internal_stats(topic).ledgers
    for missing in (
        lambda: admin.subscriptions.delete(topic, "missing"),
        lambda: admin.subscriptions.skip_all(topic, "missing"),
    ):
        with pytest.raises(exceptions.SubscriptionNotFound):
            missing()
    admin.subscriptions.delete(topic, "billing")
    assert admin.subscriptions.list(topic) == []


def test_schemas(admin: Admin, tenant: str) -> None:
    """SCH-1, SCH-2."""
    admin.namespaces.create(f"{tenant}/n")
    topic = f"{tenant}/n/rooms"
    admin.topics.create(topic)
    first = '{"type":"record","name":"Reading","fields":[{"name":"celsius","type":"double"}]}'
    other = first.replace("celsius", "kelvin")
    properties = {"key.schema.type": "STRING", "value.schema.type": "AVRO", "kv.encoding.type": "INLINE"}
    properties |= {f"{part}.schema.{name}": value for part in ("key", "value") for name, value in _UNNAMED.items()}
    pair = SchemaInfo(SchemaType.KEY_VALUE, "pair", join_key_value(b"", first.encode()), properties)
    with pytest.raises(exceptions.NotFound):
        admin.schemas.get(topic)
    assert (admin.schemas.list(topic), admin.schemas.metadata(topic)) == ([], [])
    assert admin.schemas.find_version(topic, _avro(first)) is None
    assert admin.schemas.upload(topic, _avro(first)) == admin.schemas.upload(topic, _avro(first)) == 0
    with pytest.raises(exceptions.IncompatibleSchema):
        admin.schemas.upload(topic, _avro(other))
    with pytest.raises(exceptions.InvalidArgument):
        admin.schemas.upload(topic, _avro("nothing"))
    refused = admin.schemas.check(topic, _avro(other))
    assert (refused.is_compatible, refused.strategy, "kelvin" in refused.reason) == (False, "FULL", True)
    assert admin.schemas.check(topic, _avro(first)).is_compatible
    with pytest.raises(exceptions.InvalidArgument):
        admin.schemas.check(topic, _avro("nothing"))
    admin.namespaces.change_policies(f"{tenant}/n", NamespacePolicies(schema_compatibility="ALWAYS_COMPATIBLE"))
    assert admin.schemas.upload(topic, _avro(other)) == 1
    assert admin.schemas.upload(topic, pair) == 2
    assert [one.version for one in admin.schemas.list(topic)] == [0, 1, 2]
    assert admin.schemas.get(topic, 0).schema.definition == first.encode()
    latest = admin.schemas.get(topic).schema
    assert (latest.type, latest.definition, dict(latest.properties)) == (pair.type, pair.definition, properties)
    assert admin.schemas.find_version(topic, pair) == 2
    assert [one.version for one in admin.schemas.metadata(topic)] == [0, 1, 2]
    with pytest.raises(exceptions.NotFound):
        admin.schemas.get(topic, 3)
    assert admin.schemas.delete(topic) == 3
    assert admin.schemas.list(topic) == []
    assert admin.schemas.delete(topic, force=True) is None


def _avro(definition: str) -> SchemaInfo:
    return SchemaInfo(SchemaType.AVRO, "Reading", definition.encode())


def test_brokers(admin: Admin) -> None:
    """ADM-1."""
    (broker,) = admin.brokers.list()
    assert broker.broker_id
    assert admin.brokers.health().healthy
    assert admin.brokers.info().version


def test_commands_print_the_same(url: str, tenant: str) -> None:
    """ADM-1: the commands, too."""
    magnetar_of = CommandLine(url)
    namespace = f"{tenant}/n"
    topic = f"persistent://{namespace}/t"
    for words, output in (
        (("namespaces", "create", namespace), f"{namespace}: created"),
        (("namespaces", "list", tenant), f"namespace\n{namespace}"),
        (("topics", "create", topic, "-p", "2"), f"{topic}: created, with 2 partitions"),
        (("topics", "update", topic, "-p", "3"), f"{topic}: has 3 partitions now"),
        (("subscriptions", "create", topic, "s"), f"s of {topic}: created, at latest"),
        (("subscriptions", "list", topic), "subscription\ns"),
        (("topics", "unload", topic), f"{topic}: unloaded"),
        (("topics", "truncate", topic, "--yes"), f"{topic}: empty"),
        (("subscriptions", "reset", topic, "s", "--to", "earliest", "--yes"), f"s of {topic}: moved to earliest"),
        (("subscriptions", "delete", topic, "s", "--yes"), f"s of {topic}: deleted"),
        (("topics", "delete", topic, "--yes"), f"{topic}: deleted"),
        (("bundles", "unload", namespace), f"all bundles of {namespace}: unloaded"),
        (("namespaces", "delete", namespace, "--yes"), f"{namespace}: deleted"),
    ):
        printed = magnetar_of.output_of(*words)
        assert "\n".join(line.rstrip() for line in printed.splitlines()) == output, words
    missing = magnetar_of.run("topics", "stats", topic)
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert magnetar_of.json_of("brokers", "list")


def backlog(admin: Admin, topic: str) -> int:
    return admin.topics.stats(topic).subscription("billing").backlog_messages


def publish(admin: Admin, topic: str, count: int) -> list[MessageId]:
    """Publish with Pulsar's own client, which works with both brokers. Return the messages' ids."""
    address = admin.topics.lookup(topic).address
    client = pulsar.Client(f"pulsar://{address}", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [producer.send(b"%d" % number, {"unit": "C"}, f"k{number}") for number in range(count)]
    client.close()
    return [MessageId(-1, one.ledger_id(), one.entry_id()) for one in ids]
