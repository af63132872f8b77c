"""Clusters and tenants over HTTP and gRPC, with Pulsar's statuses."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar import InvalidArgument, NotAllowedError
from magnetar.admin import Cluster, TenantSettings
from tests.unit.broker.http.admin_scene import running_http

_FLAGS = {
    "brokerClientTlsEnabled": False,
    "tlsAllowInsecureConnection": False,
    "brokerClientTlsEnabledWithKeyStore": False,
}


async def test_clusters_are_stored_and_shown() -> None:
    """ADM-1: clusters, on HTTP and on gRPC."""
    async with running_http() as scene:
        clusters = scene.broker.admin.clusters
        data = {"serviceUrl": "http://west:8080", "brokerServiceUrl": "pulsar://west:6650,west2:6650", "unknown": 1}
        answer = await scene.ask("PUT", "clusters/we:st", data)
        assert (answer.status, "not yet in effect" in answer.headers["warning"]) == (200, True)
        assert await scene.get("clusters") == await clusters.list() == ["standalone", "we:st"]
        found = await scene.get("clusters/we:st")
        assert found == {"serviceUrl": data["serviceUrl"], "brokerServiceUrl": data["brokerServiceUrl"], **_FLAGS}
        east = Cluster(service_url="http://east:8080", peer_cluster_names=["we:st"], broker_client_tls_enabled=True)
        (warning,) = await clusters.create("east", east)
        assert "not yet in effect" in warning
        assert await clusters.get("east") == east
        await clusters.update("east", Cluster(service_url_tls="https://east:8443"))
        assert (await scene.get("clusters/east"))["serviceUrlTls"] == "https://east:8443"
        assert (await scene.ask("DELETE", "clusters/we:st")).status == 204
        await clusters.delete("east")
        assert await clusters.list() == ["standalone"]


async def test_the_own_cluster_is_its_brokers_unless_it_is_set() -> None:
    async with running_http(pulsar=True) as scene:
        found = await scene.get("clusters/standalone")
        assert found["serviceUrl"] == f"http://{scene.address}"
        assert found["brokerServiceUrl"] == f"pulsar://{scene.broker.broker.pulsar_addresses[0]}"
        answer = await scene.ask("POST", "clusters/standalone", {"serviceUrl": "http://balancer"})
        assert (answer.status, "warning" in answer.headers) == (200, False)
        assert (await scene.get("clusters/standalone"))["serviceUrl"] == "http://balancer"


async def test_changes_of_clusters_that_are_refused() -> None:
    async with running_http() as scene:
        url = {"serviceUrl": "http://west:8080"}
        assert (await scene.ask("PUT", "clusters/west", url)).status == 200
        await scene.broker.admin.tenants.create("acme", TenantSettings(allowed_clusters=["west"]))
        for verb, path, body, status in (
            ("PUT", "clusters/west", url, 409),
            ("PUT", "clusters/standalone", url, 409),
            ("POST", "clusters/nope", url, 404),
            ("GET", "clusters/nope", None, 404),
            ("DELETE", "clusters/nope", None, 404),
            ("DELETE", "clusters/standalone", None, 412),
            # A tenant allows it.
            ("DELETE", "clusters/west", None, 412),
            ("PUT", "clusters/no%20name", url, 412),
            ("PUT", "clusters/east", None, 400),
            ("PUT", "clusters/east", {"serviceUrl": "nonsense"}, 400),
            ("PUT", "clusters/east", {"serviceUrl": "http://"}, 400),
            ("PUT", "clusters/east", {"brokerServiceUrl": "http://[::1"}, 400),
            ("PUT", "clusters/east", {"serviceUrl": 7}, 400),
            ("PUT", "clusters/east", {"proxyProtocol": "ABC"}, 400),
        ):
            answer = await scene.ask(verb, path, body)
            assert (answer.status, bool(answer.reason)) == (status, True), (verb, path, answer)
        with pytest.raises(NotAllowedError):
            await scene.broker.admin.clusters.delete("west")
        assert await scene.get("clusters") == ["standalone", "west"]


async def test_tenants_allow_clusters_that_exist() -> None:
    """ADM-1: tenants, on HTTP and on gRPC."""
    async with running_http() as scene:
        allowed = {"adminRoles": ["amy"], "allowedClusters": ["standalone"]}
        creations: list[tuple[str, Any, int]] = [
            ("tenants/acme", {"adminRoles": ["amy"], "allowedClusters": ["nope"]}, 412),
            ("tenants/acme", {"adminRoles": ["amy"], "allowedClusters": []}, 412),
            ("tenants/acme", {"adminRoles": ["amy"]}, 412),
            ("tenants/acme", None, 412),
            ("tenants/no%20name", allowed, 412),
            ("tenants/re=f.x-y_z", allowed, 204),
            ("tenants/acme", allowed, 204),
            ("tenants/acme", allowed, 409),
        ]
        for path, body, status in creations:
            answer = await scene.ask("PUT", path, body)
            assert answer.status == status, (path, body, answer)
        changes: list[tuple[Any, int]] = [
            (None, 412),
            ({"allowedClusters": []}, 412),
            ({"allowedClusters": ["nope"]}, 412),
            ({"adminRoles": ["bob"], "allowedClusters": ["standalone"], "unknownField": 1}, 204),
        ]
        for body, status in changes:
            assert (await scene.ask("POST", "tenants/acme", body)).status == status, body
        assert await scene.get("tenants/acme") == {"adminRoles": ["bob"], "allowedClusters": ["standalone"]}
        assert (await scene.ask("POST", "tenants/nope", allowed)).status == 404
        with pytest.raises(InvalidArgument):
            await scene.broker.admin.tenants.create("other", TenantSettings(allowed_clusters=["nope"]))
        # With the protocol of Magnetar no clusters are all clusters.
        await scene.broker.admin.tenants.create("other")
        await scene.broker.admin.namespaces.create("acme/shop")
        assert (await scene.ask("DELETE", "tenants/acme")).status == 409
        assert (await scene.ask("DELETE", "tenants/other")).status == 204
        assert (await scene.ask("DELETE", "tenants/other")).status == 404


async def test_paths_that_are_not_supported_name_the_missing_part() -> None:
    async with running_http() as scene:
        for verb, path, missing in (
            ("GET", "clusters/standalone/peers", "geo-replication"),
            ("POST", "clusters/standalone/failureDomains/x", "failure domains"),
            ("GET", "clusters/standalone/namespaceIsolationPolicies/brokers/b", "isolating namespaces"),
            ("POST", "brokers/shutdown", "SIGTERM"),
            ("GET", "broker-stats/mbeans", "MBeans"),
            ("POST", "bookies/racks-info/x:1?group=g", "racks"),
            ("POST", "/topics/persistent/public/default/t", "publishing over HTTP"),
            ("PUT", "resourcegroups/x", "resource groups"),
            ("GET", "functions/public/default", "Functions"),
            ("PATCH", "/admin/v3/sinks/public/default/x/y/z", "Pulsar IO"),
            ("GET", "/admin/v3/transactions/coordinators", "transactions"),
        ):
            answer = await scene.ask(verb, path)
            assert (answer.status, missing in answer.reason) == (405, True), answer
        for path in ("functionsx", "/admin/v3/nope", "/admin/v3", "clusters/a/b", "bookies"):
            assert (await scene.ask("GET", path)).status == 404, path
