"""What the launcher does to brokers, beside bookies. The processes are stand-ins (stand_in_daemon.py)."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_cli.cluster import (
    ClusterError,
    LocalCluster,
    NoSuchName,
    NotStarted,
    NotThere,
    external_zookeeper,
    members,
)
from magnetar_cli.cluster.state import load
from magnetar_cli.command import app
from tests.running import run, until

pytestmark = pytest.mark.slow

_STAND_IN = (sys.executable, "-S", str(Path(__file__).with_name("stand_in_daemon.py")))
# Nobody is there: stand-ins do not look.
_NO_ZOOKEEPER = "127.0.0.1:1"
_OF_ONE: dict[str, Any] = {
    f"managed_ledger_default_{what}": 1 for what in ("ensemble_size", "write_quorum", "ack_quorum")
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster(tmp_path / "cluster", die_with_parent=True, bookie_command=_STAND_IN, broker_command=_STAND_IN)
    with made:
        made.up(1, 2, zookeeper=_NO_ZOOKEEPER, broker_settings={"cluster_name": "c", **_OF_ONE})
        yield made


def states(cluster: LocalCluster) -> dict[str, str]:
    return {part.name: part.state for part in cluster.status().parts}


def reason(cluster: LocalCluster, name: str) -> str:
    return next(part.reason for part in cluster.status().parts if part.name == name)


def terminated_at(cluster: LocalCluster, name: str) -> float:
    found = re.findall(r"got SIGTERM at (\S+)", cluster.log(name).read_text())
    assert found, f"{name} got no SIGTERM"
    return float(found[-1])


def test_up_adds_brokers_and_reports_service_url(cluster: LocalCluster) -> None:
    assert cluster.broker_names() == ["broker-1", "broker-2"]
    cluster.up(2, 3)
    assert cluster.broker_names() == ["broker-1", "broker-2", "broker-3"]
    assert states(cluster) == dict.fromkeys([*cluster.names(), *cluster.broker_names()], "running")
    cluster.up()
    assert len(cluster.broker_names()) == 3
    addresses = [cluster.broker(name).address for name in cluster.broker_names()]
    assert cluster.service_url == cluster.status().service_url == f"magnetar://{','.join(addresses)}"
    assert cluster.broker("broker-1").url == f"magnetar://{addresses[0]}"
    ports = load(cluster.folder).ports()
    assert len(set(ports)) == len(ports)


def test_without_brokers_there_is_no_service_url(cluster: LocalCluster) -> None:
    for name in cluster.broker_names():
        cluster.remove(name)
    assert cluster.status().service_url == ""
    with pytest.raises(ClusterError, match="add --broker"):
        _ = cluster.service_url
    with pytest.raises(ClusterError, match="add --broker"):
        _ = cluster.pulsar_url


def test_every_act_on_a_broker(cluster: LocalCluster) -> None:
    broker = cluster.broker("broker-1")
    pid, address = broker.pid, broker.address
    broker.pause()
    assert states(cluster)["broker-1"] == "paused"
    broker.resume()
    assert states(cluster)["broker-1"] == "running"
    broker.kill()
    assert (states(cluster)["broker-1"], broker.running, broker.pid) == ("dead", False, None)
    for act in (broker.kill, broker.pause, broker.resume, broker.stop):
        with pytest.raises(NotThere, match="cluster restart broker-1"):
            act()
    broker.start()
    assert broker.pid != pid
    broker.stop()
    assert states(cluster)["broker-1"] == "stopped"
    broker.restart()
    assert (states(cluster)["broker-1"], broker.address) == ("running", address)
    assert "broker-1 begins" in broker.log.read_text()
    assert states(cluster)["broker-2"] == "running"


def test_brokers_and_bookies_are_set_apart(cluster: LocalCluster) -> None:
    cluster.up(settings={"garbage_interval_seconds": 7}, broker_settings={"max_topics_per_namespace": 9})
    added = cluster.add_broker("other", environment={"STAND_IN_WORD": "x"}, max_topics_per_namespace=10)
    _, status = added.ask("/status")
    assert status["environment"]["STAND_IN_WORD"] == "x"
    settings = status["settings"]
    assert (settings["broker_id"], settings["cluster_name"], settings["max_topics_per_namespace"]) == ("other", "c", 10)
    assert settings["listen_addresses"] == [added.address]
    assert settings["pulsar_listen_addresses"] == [added.pulsar_address]
    assert settings["metadata"] == cluster.metadata
    assert "garbage_interval_seconds" not in settings
    added.set(environment={}, advertised_listeners="internal:magnetar://127.0.0.1:0,out:magnetar://h:7")
    added.restart()
    _, status = added.ask("/status")
    assert status["settings"]["advertised_listeners"] == ["internal:magnetar://127.0.0.1:0", "out:magnetar://h:7"]
    assert "STAND_IN_WORD" not in status["environment"]
    cluster.bookie("bookie-1").restart()
    _, status = cluster.bookie("bookie-1").ask("/status")
    assert status["settings"]["garbage_interval_seconds"] == 7
    assert "cluster_name" not in status["settings"]


def test_invalid_settings_are_refused_before_start(cluster: LocalCluster) -> None:
    with pytest.raises(ClusterError, match="max_topics_per_namespac"):
        cluster.add_broker("other", max_topics_per_namespac=1)
    for reserved in ("broker_id", "metadata", "listen_addresses", "pulsar_listen_addresses", "http_address"):
        with pytest.raises(ClusterError, match="chooses it for each broker"):
            cluster.up(broker_settings={reserved: "x"})
    with pytest.raises(ClusterError, match="invalid settings of a bookie"):
        cluster.bookie("bookie-1").set(cluster_name="x")
    with pytest.raises(ClusterError, match="invalid settings of a broker"):
        cluster.broker("broker-1").set(garbage_interval_seconds=1)
    assert cluster.broker_names() == ["broker-1", "broker-2"]


def test_names_are_everybodys(cluster: LocalCluster) -> None:
    for name in ("bookie-1", "bookie-9", "broker-1", "zookeeper", "zookeeper-2", "a/b", "", "x" * 61):
        with pytest.raises(ClusterError):
            cluster.add_broker(name)
    with pytest.raises(ClusterError, match="already has a broker 'broker-1'"):
        cluster.add_broker("broker-1")
    for taken in ("broker-1", "broker-9", "brokers"):
        with pytest.raises(ClusterError, match="names that begin with broker"):
            cluster.add(taken)
    assert "broker-9" not in cluster.names()
    for wrong in (cluster.broker, cluster.kill):
        with pytest.raises(NoSuchName, match="did you mean 'broker-2'"):
            wrong("brokr-2")
    with pytest.raises(NoSuchName):
        cluster.broker("bookie-1")
    with pytest.raises(NoSuchName):
        cluster.bookie("broker-1")


def test_removed_broker_is_deleted_and_its_name_is_reusable(cluster: LocalCluster) -> None:
    broker = cluster.broker("broker-1")
    folder = broker.log.parent
    cluster.remove("broker-1")
    assert not folder.exists()
    assert cluster.broker_names() == ["broker-2"]
    assert cluster.add_broker().name == "broker-1"
    cluster.pause("broker-2")
    cluster.remove("broker-2", force=True)
    assert cluster.broker_names() == ["broker-1"]
    assert cluster.status().well


def test_down_ends_brokers_first(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """They close what they have on bookies."""
    monkeypatch.setattr(external_zookeeper, "CONNECT_S", 0.5)
    cluster.pause("bookie-1")
    cluster.down()
    assert set(states(cluster).values()) == {"stopped"}
    last = max(terminated_at(cluster, name) for name in ("broker-1", "broker-2"))
    assert last < terminated_at(cluster, "bookie-1")
    cluster.up()
    assert cluster.status().well
    cluster.down(wipe=True, force=True)
    assert not cluster.folder.exists()


def test_broker_that_is_not_ready_is_reported_after_timeout(cluster: LocalCluster) -> None:
    broker = cluster.broker("broker-2")
    broker.set(environment={"STAND_IN_NEVER_READY": "1", "STAND_IN_SESSION": "suspended"})
    with pytest.raises(NotStarted, match=r"broker-2 is not ready in time"):
        cluster.restart("broker-2", timeout_s=0.5)
    run(until(lambda: states(cluster)["broker-2"] == "no session", "it reports so"))
    broker.set(environment={"STAND_IN_NEVER_READY": "1"})
    with pytest.raises(NotStarted, match=r"broker-2 is not ready in time"):
        cluster.restart("broker-2", timeout_s=0.5)
    run(until(lambda: "not ready" in reason(cluster, "broker-2"), "it reports so"))
    assert states(cluster)["broker-2"] == "unhealthy"
    broker.set(environment={"STAND_IN_ENDS": "1"})
    with pytest.raises(NotStarted, match=r"broker-2 has ended[^$]*it ends before it is ready"):
        broker.restart()
    broker.set(environment={})
    cluster.up()
    assert cluster.status().well


def test_too_few_bookies_for_ack_quorum_are_reported_at_once(tmp_path: Path) -> None:
    """Brokers would wait for ever."""
    few = LocalCluster(tmp_path / "few", die_with_parent=True, bookie_command=_STAND_IN, broker_command=_STAND_IN)
    with few:
        with pytest.raises(ClusterError, match=r"needs 2 bookies, and the cluster has 1"):
            few.up(1, 2, zookeeper=_NO_ZOOKEEPER)
        few.up(1, zookeeper=_NO_ZOOKEEPER)
        with pytest.raises(ClusterError, match=r"needs 2 bookies"):
            few.add_broker()
        assert few.broker_names() == []
        assert few.add_broker(None, **_OF_ONE).running
        few.up(2, 2)
        assert few.status().well
    assert BrokerServiceSettings().managed_ledger_default_ack_quorum == members.ACK_QUORUM_DEFAULT


def test_an_ensemble_stays_as_it_was_made(cluster: LocalCluster) -> None:
    with pytest.raises(ClusterError, match="can't be changed"):
        cluster.up(zookeepers=3)
    with pytest.raises(ClusterError, match="leave out zookeepers"):
        cluster.up(zookeepers=3, zookeeper=_NO_ZOOKEEPER)


def test_the_commands(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that differ for brokers."""
    stand_ins = partial(LocalCluster, die_with_parent=True, bookie_command=_STAND_IN, broker_command=_STAND_IN)
    monkeypatch.setattr("magnetar_cli.cluster.commands.LocalCluster", stand_ins)

    def magnetar(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["cluster", *arguments, "--folder", str(cluster.folder)])

    shown = magnetar("status")
    assert shown.exit_code == 0, shown.output
    assert f"service URL: {cluster.service_url}" in shown.stdout
    assert f"for Pulsar's clients: {cluster.pulsar_url}" in shown.stdout
    status = json.loads(magnetar("status", "--json").stdout)
    broker = next(part for part in status["parts"] if part["name"] == "broker-1")
    assert (broker["kind"], broker["topics"], broker["bundles"], broker["state"]) == ("broker", 5, 2, "running")
    assert (status["service_url"], status["pulsar_url"]) == (cluster.service_url, cluster.pulsar_url)
    assert cluster.pulsar_url.startswith(f"pulsar://{broker['pulsar']},127.0.0.1:")
    assert magnetar("kill", "broker-1").exit_code == 0
    assert magnetar("status").exit_code == 1
    assert magnetar("remove", "broker-1").stdout == "broker-1 is removed\n"
    for undecided in (("broker-1",), ("--bookie", "--broker"), ()):
        refused = magnetar("add", *undecided)
        assert (refused.exit_code, "--bookie or --broker" in refused.stderr) == (2, True)
    assert "broker-1 is ready at" in magnetar("add", "--broker", "broker-1").stdout
    assert "broker-1" in cluster.broker_names()
    refused = magnetar("add", "--broker", "bookie-7")
    assert (refused.exit_code, "begin with bookie" in refused.stderr) == (1, True)
    changed = magnetar("set", "broker-1", "max_topics_per_namespace=7", "cluster_name=d")
    assert "`magnetar cluster restart broker-1` makes it effective" in changed.stdout
    assert magnetar("restart", "broker-1").exit_code == 0
    settings = cluster.broker("broker-1").ask("/status")[1]["settings"]
    assert (settings["max_topics_per_namespace"], settings["cluster_name"]) == (7, "d")
    assert magnetar("set", "bookie-1", "garbage_interval_seconds=9").exit_code == 0
    before = [cluster.broker(name).pid for name in ("broker-1", "broker-2")]
    assert magnetar("restart", "broker-1", "broker-2").exit_code == 0
    assert not {*before} & {cluster.broker(name).pid for name in ("broker-1", "broker-2")}
    for act, state in (("pause", "paused"), ("resume", "running")):
        assert magnetar(act, "broker-1", "bookie-1").exit_code == 0
        assert (states(cluster)["broker-1"], states(cluster)["bookie-1"]) == (state, state)
    for wrong in (("broker-1", "garbage_interval_seconds=1"), ("broker-1", "x"), ("nobody", "x=1"), ("broker-1",)):
        assert magnetar("set", *wrong).exit_code != 0
    refused = magnetar("remove", "zookeeper-1")
    assert refused.exit_code == 1
    refused = magnetar("add", "--broker", "--set", "brokr_id=x")
    assert (refused.exit_code, "brokr_id" in refused.stderr) == (1, True)
    refused = magnetar("up", "--set-broker", "garbage_interval_seconds=1")
    assert (refused.exit_code, "garbage_interval_seconds" in refused.stderr) == (1, True)
    assert "broker-2 begins" in magnetar("logs", "broker-2").stdout
