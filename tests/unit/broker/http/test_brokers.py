"""Brokers and their bundles, as Pulsar's tools ask for them over HTTP."""

from __future__ import annotations

from magnetar_broker.settings.process import BrokerSettings
from magnetar_cli.maintenance.broker_views import BrokersView
from magnetar_wire.process.version import read_version
from tests.unit.broker.http.admin_scene import running_http


async def test_brokers_are_listed_by_the_addresses_of_their_http_servers() -> None:
    """ADM-1: brokers, on HTTP and on gRPC."""
    async with running_http() as scene, running_http(beside=scene.broker) as other:
        for one in (scene, other):
            addresses = await one.get("brokers")
            assert sorted(addresses) == sorted([scene.address, other.address])
            assert addresses == await one.get("brokers/standalone")
            assert addresses == [broker.http_address for broker in await one.broker.admin.brokers.list()]
            assert await one.get("brokers/leaderBroker") == {
                "serviceUrl": f"http://{scene.address}",
                "brokerId": scene.address,
            }
            assert (await one.broker.admin.brokers.leader()).broker_id == "b/1"
        assert (await scene.ask("GET", "brokers/another")).status == 404
        # Nothing else of a broker is known over HTTP.
        listed = await scene.admin.brokers.list()
        unknown = {(one.version, one.started_ms, one.load) for one in listed}
        assert ([one.broker_id for one in listed], unknown) == (addresses, {(None, None, None)})
        assert BrokersView(listed[:1]).lines() == [f"{addresses[0]}: nothing else is known over HTTP"]
        BrokersView(listed).table()
        info = await scene.admin.brokers.info()
        assert (info.broker_id, info.version, info.cluster) == (None, read_version(), "standalone")


async def test_the_bundles_of_any_broker_are_shown_by_each() -> None:
    async with running_http() as scene, running_http(beside=scene.broker) as other:
        await scene.broker.admin.topics.create("t")
        owner = await scene.broker.admin.topics.lookup("t")
        of_owner, of_another = (scene, other) if owner.broker_id == "b/1" else (other, scene)
        for name in (of_owner.address, of_owner.broker.broker.broker_id.replace("/", "%2F")):
            for one in (scene, other):
                assert await one.get(f"brokers/standalone/{name}/ownedNamespaces") == {
                    f"public/default/{owner.bundle}": {
                        "broker_assignment": "shared",
                        "is_controlled": False,
                        "is_active": True,
                    }
                }
        assert await scene.get(f"brokers/standalone/{of_another.address}/ownedNamespaces") == {}
        for path in ("standalone/nope:1", f"nope/{scene.address}"):
            assert (await scene.ask("GET", f"brokers/{path}/ownedNamespaces")).status == 404


async def test_version_health_and_configuration() -> None:
    async with running_http() as scene:
        assert await scene.get("brokers/version") == read_version().encode()
        assert await scene.get("brokers/health?topicVersion=V2") == await scene.get("brokers/ready") == b"ok"
        assert (await scene.get("brokers/internal-configuration"))["ledgersRootPath"] == "/ledgers"
        assert set(await scene.get("brokers/configuration/runtime")) >= {
            "clusterName",
            "maxMessagePublishBufferSizeInMB",
        }
        session, scene.broker.broker.session = scene.broker.broker.session, None
        answer = await scene.ask("GET", "brokers/health")
        scene.broker.broker.session = session
        assert (answer.status, bool(answer.reason)) == (503, True)


def test_no_setting_of_a_broker_is_shown_under_two_names() -> None:
    settings = BrokerSettings(broker_id="b", metadata="zookeeper://z:2181")
    from magnetar_broker.settings.dynamic import describe_settings

    described = describe_settings(settings, settings)
    assert len(described) == len(BrokerSettings.model_fields)
    assert (described["metadata"], described["broker_id"]) == ("zookeeper://z:2181", "b")
