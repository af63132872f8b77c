"""What the launcher does to processes: every act, by itself and after something went wrong half way.

The processes are stand-ins (stand_in_daemon.py): they start within milliseconds, and misbehave on demand. Brokers are
in test_local_brokers.py, real processes in test_real_cluster.py and test_broker_cluster.py.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from magnetar_cli.cluster import (
    ClusterBusy,
    ClusterError,
    LocalCluster,
    NoCluster,
    NoSuchName,
    NotStarted,
    NotThere,
    external_zookeeper,
)
from magnetar_cli.cluster.process import ProcessId, is_running, send
from magnetar_cli.cluster.state import load, locked, save
from magnetar_cli.command import app
from tests.child_process import ChildProcess
from tests.running import run, until

pytestmark = pytest.mark.slow

_STAND_IN = (sys.executable, "-S", str(Path(__file__).with_name("stand_in_daemon.py")))
# Nobody is there: stand-ins do not look.
_NO_ZOOKEEPER = "127.0.0.1:1"


def cluster_in(folder: Path, **options: float) -> LocalCluster:
    return LocalCluster(folder, die_with_parent=True, bookie_command=_STAND_IN, **options)  # type: ignore[arg-type]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = cluster_in(tmp_path / "cluster")
    with made:
        yield made


@pytest.fixture
def three(cluster: LocalCluster) -> LocalCluster:
    cluster.up(3, zookeeper=_NO_ZOOKEEPER)
    return cluster


def pid(cluster: LocalCluster, name: str) -> int:
    found = cluster.bookie(name).pid
    assert found is not None, f"{name} does not run"
    return found


def states(cluster: LocalCluster) -> dict[str, str]:
    return {part.name: part.state for part in cluster.status().parts}


def has_ended(process: int) -> bool:
    """Whether it has ended; a zombie has, whichever process is to reap it."""
    try:
        return psutil.Process(process).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_up_creates_requested_bookies_and_starts_only_those_down(three: LocalCluster) -> None:
    assert three.names() == ["bookie-1", "bookie-2", "bookie-3"]
    assert states(three) == dict.fromkeys(three.names(), "running")
    assert three.status().well
    before = {name: (pid(three, name), three.bookie(name).address) for name in three.names()}
    three.kill("bookie-1")
    three.pause("bookie-2")
    three.stop("bookie-3")
    assert states(three) == {"bookie-1": "dead", "bookie-2": "paused", "bookie-3": "stopped"}
    assert not three.status().well
    three.up(4)
    assert states(three) == dict.fromkeys(three.names(), "running")
    assert len(three.names()) == 4
    assert pid(three, "bookie-1") != before["bookie-1"][0]
    assert pid(three, "bookie-2") == before["bookie-2"][0]
    assert {name: three.bookie(name).address for name in before} == {
        name: address for name, (_, address) in before.items()
    }


def test_bookie_receives_its_own_settings_and_not_the_launchers(
    three: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGNETAR_BOOKIE_ID", "everybody")
    bookie = three.add("extra", environment={"STAND_IN_WORD": "x"}, garbage_interval_seconds=7)
    _, status = bookie.ask("/status")
    assert status["environment"]["STAND_IN_WORD"] == "x"
    assert "MAGNETAR_BOOKIE_ID" not in status["environment"]
    settings = status["settings"]
    assert settings["bookie_id"] == "extra"
    assert settings["garbage_interval_seconds"] == 7
    assert settings["listen_address"] == bookie.address
    assert settings["metadata"] == three.metadata
    bookie.set(environment={}, garbage_interval_seconds=8.5)
    bookie.restart()
    _, status = bookie.ask("/status")
    assert "STAND_IN_WORD" not in status["environment"]
    assert status["settings"]["garbage_interval_seconds"] == 8.5


def test_invalid_settings_are_refused_before_start(three: LocalCluster) -> None:
    with pytest.raises(ClusterError, match="garbage_interval"):
        three.add("extra", garbage_intervall_s=7)
    with pytest.raises(ClusterError, match="chooses it"):
        three.add("extra", bookie_id="x")
    assert "extra" not in three.names()


def test_invalid_zookeeper_address_is_refused_before_folder_is_created(cluster: LocalCluster) -> None:
    for hosts in (
        "",
        "a b:1",
        "127.0.0.1:99999",
        "127.0.0.1:2181/chroot",
        "127.0.0.1:1?session_timeout_seconds=1",
        "a,,b",
    ):
        with pytest.raises(ClusterError, match="host:port"):
            cluster.up(1, zookeeper=hosts)
    assert not cluster.folder.exists()


def test_names(three: LocalCluster) -> None:
    with pytest.raises(NoSuchName, match="did you mean 'bookie-2'"):
        three.kill("boookie-2")
    for name in ("bookie-1", "zookeeper", "a/b", "", "x" * 61):
        with pytest.raises(ClusterError):
            three.add(name)
    assert len(three.names()) == 3


def test_acts_on_one_that_does_not_run_say_so(three: LocalCluster) -> None:
    three.kill("bookie-1")
    for act in (three.kill, three.pause, three.resume, three.stop):
        with pytest.raises(NotThere, match="bookie-1"):
            act("bookie-1")
    three.restart("bookie-1")
    assert states(three)["bookie-1"] == "running"


def test_there_is_no_cluster_until_up_and_none_after_wipe(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    cluster = cluster_in(folder)
    for act in (cluster.down, cluster.status, cluster.names, lambda: cluster.kill("bookie-1")):
        with pytest.raises(NoCluster, match="up"):
            act()
    assert not folder.exists()
    cluster.up(1, zookeeper=_NO_ZOOKEEPER)
    (folder / "somebody else's").touch()
    cluster.down()
    assert states(cluster) == {"bookie-1": "stopped"}
    assert (folder / "bookies" / "bookie-1" / "data").exists()


def test_down_ends_all_the_paused_and_the_deaf_too(cluster: LocalCluster) -> None:
    cluster.up(2, zookeeper=_NO_ZOOKEEPER)
    cluster.add("deaf", environment={"STAND_IN_DEAF": "1"})
    pids = [pid(cluster, name) for name in cluster.names()]
    cluster.pause("bookie-1")
    cluster.down(timeout_s=0.5)
    assert all(has_ended(one) for one in pids)
    assert set(states(cluster).values()) == {"stopped"}


def test_a_pid_that_is_another_process_now_is_left_alone(three: LocalCluster) -> None:
    """The number of a dead bookie is given to somebody else: neither kill nor down hits that one."""
    three.kill("bookie-1")
    with ChildProcess([sys.executable, "-S", "-c", "import time; time.sleep(600)"]) as bystander:
        state = load(three.folder)
        written = state.bookies["bookie-1"].process
        assert written is not None
        for process in (
            ProcessId(bystander.pid, written.started, written.boot),
            ProcessId(bystander.pid, _started(bystander.pid), "another boot"),
        ):
            assert not is_running(process)
            assert not send(process, signal.SIGKILL)
        state.bookies["bookie-1"].process = ProcessId(bystander.pid, written.started, written.boot)
        save(three.folder, state)
        assert states(three)["bookie-1"] == "dead"
        with pytest.raises(NotThere):
            three.kill("bookie-1")
        three.down()
        assert bystander.poll() is None
        bystander.kill()


def test_process_with_unrecorded_start_is_found(three: LocalCluster) -> None:
    """As after a command that was killed between the start and its note of it."""
    forgotten = pid(three, "bookie-2")
    state = load(three.folder)
    state.bookies["bookie-2"].process = None
    state.bookies["bookie-2"].launching = True
    save(three.folder, state)
    three.up()
    assert pid(three, "bookie-2") == forgotten
    three.down()
    assert has_ended(forgotten)


def test_two_commands_at_once_take_turns(three: LocalCluster) -> None:
    with ThreadPoolExecutor(4) as commands:
        added = list(commands.map(lambda _: cluster_in(three.folder).add().name, range(4)))
    assert sorted(added) == [f"bookie-{number}" for number in range(4, 8)]
    assert three.names() == [f"bookie-{number}" for number in range(1, 8)]
    assert states(three) == dict.fromkeys(three.names(), "running")
    ports = load(three.folder).ports()
    assert len(set(ports)) == len(ports)


def test_a_command_that_waits_too_long_names_the_other(three: LocalCluster) -> None:
    with locked(three.folder, 0), pytest.raises(ClusterBusy, match=f"process {os.getpid()}"):
        cluster_in(three.folder, lock_timeout_s=0.1).kill("bookie-1")
    assert three.status().well  # that one only looks
    three.kill("bookie-1")


def test_failed_up_reports_cause_and_can_be_retried(three: LocalCluster) -> None:
    three.bookie("bookie-2").set(environment={"STAND_IN_ENDS": "1"})
    three.down()
    with pytest.raises(NotStarted, match=r"bookie-2 has ended[^$]*it ends before it is ready"):
        three.up()
    assert states(three)["bookie-2"] == "dead"
    three.bookie("bookie-2").set(environment={})
    three.up()
    assert three.status().well
    three.bookie("bookie-3").set(environment={"STAND_IN_NEVER_READY": "1"})
    with pytest.raises(NotStarted, match=r"bookie-3 is not ready in time"):
        three.bookie("bookie-3").stop()
        three.up(timeout_s=0.5)
    assert states(three)["bookie-3"] == "starting"
    pids = [pid(three, name) for name in three.names()]
    three.down()
    assert all(has_ended(one) for one in pids)


def test_start_failure_shows_cause_first_and_only_latest_run(three: LocalCluster) -> None:
    bookie = three.bookie("bookie-2")
    bookie.set(environment={"STAND_IN_ENDS": "1"})
    for _ in range(2):
        with pytest.raises(NotStarted) as refused:
            bookie.restart()
        lines = str(refused.value).splitlines()
        assert "bookie-2 has ended" in lines[0]
        assert "CRITICAL stand_in it ends before it is ready" in lines[1]
        assert "begins, as process" in lines[2]
        assert lines[3:] == ["what comes behind matters less"]
    assert bookie.log.read_text().count("begins, as process") == 3


def test_one_that_lost_its_metadata_session_is_not_called_starting(three: LocalCluster) -> None:
    bookie = three.bookie("bookie-1")
    bookie.set(environment={"STAND_IN_NEVER_READY": "1", "STAND_IN_SESSION": "suspended"})
    with pytest.raises(NotStarted, match="bookie-1 is not ready in time"):
        three.restart("bookie-1", timeout_s=0.5)
    assert states(three)["bookie-1"] == "no session"
    bookie.set(environment={"STAND_IN_NEVER_READY": "1", "STAND_IN_SESSION": "connected"})
    with pytest.raises(NotStarted):
        three.restart("bookie-1", timeout_s=0.5)
    assert states(three)["bookie-1"] == "starting"


def test_forced_wipe_works_without_external_zookeeper(
    three: LocalCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(external_zookeeper, "CONNECT_S", 0.5)
    down = ["cluster", "down", "--wipe", "--folder", str(three.folder)]
    refused = CliRunner().invoke(app, down)
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (1, 1), refused.stderr
    assert _NO_ZOOKEEPER in refused.stderr
    assert "--force" in refused.stderr
    assert set(states(three).values()) == {"stopped"}
    assert (three.folder / "bookies" / "bookie-1" / "data").exists()
    wiped = CliRunner().invoke(app, [*down, "--force"])
    assert (wiped.exit_code, wiped.stderr) == (0, "")
    assert not three.folder.exists()
    assert [record for record in caplog.records if record.name.startswith("kazoo")] == []


class _Reported(Exception):
    pass


def test_progress_is_reported_while_waiting(tmp_path: Path) -> None:
    def report(progress: str) -> None:
        raise _Reported(progress)

    with LocalCluster(tmp_path, die_with_parent=True, bookie_command=_STAND_IN, on_progress=report) as cluster:
        cluster.up(0, zookeeper=_NO_ZOOKEEPER)
        with pytest.raises(_Reported, match=r"^slow: "):
            cluster.add("slow", environment={"STAND_IN_NEVER_READY": "1"})


def test_port_taken_before_first_start_is_replaced(three: LocalCluster) -> None:
    """A port that was in use once stays the same, and it is an error if another process has it."""
    state = load(three.folder)
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        taken = somebody.getsockname()[1]
        three.kill("bookie-1")
        three.kill("bookie-2")
        state = load(three.folder)
        state.bookies["bookie-1"].port = state.bookies["bookie-2"].port = taken
        state.bookies["bookie-1"].settled = False
        save(three.folder, state)
        three.start("bookie-1")
        assert three.bookie("bookie-1").address != f"127.0.0.1:{taken}"
        with pytest.raises(NotStarted, match="in use"):
            three.start("bookie-2")
    three.start("bookie-2")
    assert three.bookie("bookie-2").address == f"127.0.0.1:{taken}"


_STARTER = """
import sys, time
from pathlib import Path
from magnetar_cli.cluster import LocalCluster
bound = sys.argv[2] == "bound"
cluster = LocalCluster(Path(sys.argv[1]), die_with_parent=bound, bookie_command=sys.argv[3:])
cluster.up(1, zookeeper="127.0.0.1:1")
print(cluster.bookie("bookie-1").pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("bound", [True, False])
def test_processes_die_with_a_test_and_outlive_a_command(tmp_path: Path, bound: bool) -> None:
    path = os.pathsep.join(entry or "." for entry in sys.path)
    command = [sys.executable, "-c", _STARTER, str(tmp_path), "bound" if bound else "free", *_STAND_IN]
    with (
        cluster_in(tmp_path) as cluster,
        ChildProcess(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}) as parent,
    ):
        assert parent.stdout is not None
        started = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        if bound:
            run(until(lambda: has_ended(started), "the bookie has died with the one who started it"))
            assert states(cluster) == {"bookie-1": "dead"}
        else:
            assert pid(cluster, "bookie-1") == started
            assert os.getsid(started) == started  # a terminal's Ctrl-C does not reach it
            cluster.down()
            assert has_ended(started)


def test_a_state_that_is_not_ours_is_not_guessed_at(three: LocalCluster) -> None:
    three.down()
    file = three.folder / "cluster.json"
    for content in ("{", json.dumps({"format": 99}), json.dumps({"format": 1, "bookies": 5})):
        file.write_text(content)
        with pytest.raises(ClusterError, match=r"cluster\.json"):
            three.status()
    file.unlink()


def _started(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
