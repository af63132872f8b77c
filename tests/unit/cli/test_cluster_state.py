"""The stored state of a local cluster, also in its first format, without brokers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from magnetar_cli.cluster.errors import ClusterError, NoSuchName
from magnetar_cli.cluster.members import Members
from magnetar_cli.cluster.process import ProcessId
from magnetar_cli.cluster.state import (
    BookieState,
    BrokerState,
    ClusterState,
    ServerState,
    ZooKeeperState,
    load,
    save,
)

_RECORD = {"process": None, "launching": False, "settled": True, "stopped": False, "log_from": 7}


def before_brokers(**zookeeper: Any) -> dict[str, Any]:
    """Return a state in the first format."""
    process = {"pid": 5, "started": "77", "boot": "b"}
    return {
        "format": 1,
        "zookeeper": {
            **_RECORD,
            "process": process,
            "port": 2222,
            "outside": "",
            "chroot": "",
            "session_timeout_s": 4.0,
            **zookeeper,
        },
        "bookies": {
            "bookie-1": {**_RECORD, "port": 1, "http_port": 2, "settings": {"a": 1}, "environment": {"b": "c"}}
        },
        "settings": {"d": 2},
        "removed": ["bookie-2"],
    }


def test_a_cluster_from_before_there_were_brokers_is_read(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text(json.dumps(before_brokers()))
    state = load(tmp_path)
    server = state.zookeeper.servers["zookeeper"]
    assert (server.process, server.port, server.settled) == (ProcessId(5, "77", "b"), 2222, True)
    assert state.zookeeper.location == "zookeeper://127.0.0.1:2222?session_timeout_seconds=4"
    assert state.bookies["bookie-1"].settings == {"a": 1}
    assert (state.brokers, state.broker_settings, state.removed) == ({}, {}, ["bookie-2"])
    save(tmp_path, state)
    assert load(tmp_path) == state


def test_one_with_a_zookeeper_from_outside_is_read(tmp_path: Path) -> None:
    stored = before_brokers(outside="h:1,g:2", chroot="/c", process=None)
    (tmp_path / "cluster.json").write_text(json.dumps(stored))
    state = load(tmp_path)
    assert state.zookeeper.servers == {}
    assert state.zookeeper.location == "zookeeper://h:1,g:2/c?session_timeout_seconds=4"


def test_all_that_is_written_is_read(tmp_path: Path) -> None:
    state = ClusterState(
        ZooKeeperState({f"zookeeper-{n}": ServerState(port=n, peer_port=n + 10, election_port=n + 20) for n in (1, 2)}),
        {"bookie-1": BookieState(port=5, http_port=6)},
        {"broker-1": BrokerState(ProcessId(1, "2", "3"), port=7, http_port=8, pulsar_port=9, settings={"x": [1]})},
        {"y": 1},
        {"z": 2},
        ["bookie-0"],
    )
    save(tmp_path, state)
    assert load(tmp_path) == state
    assert sorted(state.ports()) == [1, 2, 5, 6, 7, 8, 9, 11, 12, 21, 22]
    assert list(state.processes()) == ["zookeeper-1", "zookeeper-2", "bookie-1", "broker-1"]
    assert state.zookeeper.location.startswith("zookeeper://127.0.0.1:1,127.0.0.1:2?")


def test_zookeeper_is_not_removed(tmp_path: Path) -> None:
    members, state = Members(tmp_path), ClusterState()
    members.add_zookeepers(state, 3)
    assert list(state.zookeeper.servers) == ["zookeeper-1", "zookeeper-2", "zookeeper-3"]
    assert len(set(state.ports())) == 9
    with pytest.raises(ClusterError, match="zookeeper-2 can't be removed"):
        members.find_removable(state, "zookeeper-2")
    with pytest.raises(NoSuchName, match=r"has no .zookeeper-7."):
        members.find_removable(state, "zookeeper-7")


def test_broker_stored_without_pulsar_port_is_assigned_one(tmp_path: Path) -> None:
    """An earlier version stored none. The port stays the same from then on."""
    state = ClusterState(brokers={"broker-1": BrokerState(port=7, http_port=8, settled=True)})
    save(tmp_path, state)
    stored = json.loads((tmp_path / "cluster.json").read_text())
    del stored["brokers"]["broker-1"]["pulsar_port"]
    (tmp_path / "cluster.json").write_text(json.dumps(stored))
    state = load(tmp_path)
    part = Members(tmp_path).broker(state, "broker-1")
    part.configure(state)
    port = state.brokers["broker-1"].pulsar_port
    assert port not in (0, 7, 8)
    part.configure(state)
    assert state.brokers["broker-1"].pulsar_port == port
    assert f'pulsar_listen_addresses = ["127.0.0.1:{port}"]' in part.settings_file.read_text()


@pytest.mark.parametrize(
    "stored",
    [
        {"format": 1},
        {"format": 3},
        {**before_brokers(), "zookeeper": {}},
        {**before_brokers(), "format": 2},
        {**before_brokers(), "bookies": {"x": {}}},
        {**before_brokers(), "more": 1, "format": "1"},
        [],
    ],
)
def test_unrecognized_cluster_state_is_refused(tmp_path: Path, stored: Any) -> None:
    (tmp_path / "cluster.json").write_text(json.dumps(stored))
    with pytest.raises(ClusterError, match=r"cluster\.json"):
        load(tmp_path)
