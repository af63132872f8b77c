"""`magnetar tour`, and `make run`, which is the same: all of it for real."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import magnetar
from magnetar_cli.local_java import NoJava, find_java
from tests.child_process import ChildProcess
from tests.guide import PROJECT
from tests.shell import Shell

pytestmark = pytest.mark.slow

_LONGEST_S = 240.0
# Its Spark takes ten seconds or more, and is shown once.
_WITHOUT_SPARK = (
    "from magnetar_cli.tour import command, steps\nsteps._Tour._run_spark = lambda self, server: None\ncommand.app()"
)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Temporary folders are in one that is looked at in the end."""
    pytest.importorskip("pyspark")
    try:
        find_java()
    except NoJava as error:
        pytest.skip(str(error))
    (tmp_path / "temporary").mkdir()
    paths = os.pathsep.join(path for path in sys.path if path)
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("MAGNETAR_")}
    return {**surroundings, "PYTHONPATH": paths, "TMPDIR": str(tmp_path / "temporary"), "MAKEFLAGS": ""}


@contextlib.contextmanager
def taken(ports: tuple[int, ...]) -> Iterator[None]:
    """By this process, if nobody else has them."""
    with contextlib.ExitStack() as stack:
        for port in ports:
            listening = stack.enter_context(socket.socket())
            # As a server does: connections of one that ended a moment ago hinder nobody.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                listening.bind(("127.0.0.1", port))
                listening.listen()
        yield


@pytest.mark.soak
@pytest.mark.timeout(2 * _LONGEST_S)
def test_make_run_once_shows_all_of_it_and_ends(tmp_path: Path, environment: dict[str, str]) -> None:
    """In an environment where everything is installed, so that nothing is."""
    shell = Shell(tmp_path)
    venv = tmp_path / "venv"
    venv.mkdir()
    shell.commands.rename(venv / "bin")
    (venv / ".can-run").touch()
    # Two micro-batches.
    command = venv / "bin" / "magnetar"
    command.write_text(command.read_text().replace('"$@"', '"$@" --messages 60000'))
    ended = subprocess.run(
        ["make", "-C", PROJECT, "run", "ONCE=1", f"VENV={venv}"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_LONGEST_S,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    output = ended.stdout
    assert re.search(r"ready after [0-9.]+ s at magnetar://127\.0\.0\.1:\d+", output), output
    assert re.search(r"all on disk after [0-9.]+ s: [0-9,]+ a second", output), output
    assert re.search(r"worker-1 [0-9,]+ and worker-2 [0-9,]+: all in [0-9.]+ s, none twice", output), output
    assert re.search(r"leader [0-9,]+, then it left; standby the other [0-9,]+; in order, none twice", output), output
    assert re.search(r"60,000 messages in [0-9.]+ s, each counted once", output), output
    assert re.search(r"all .*60,000 ", output), output
    assert max(len(line) for line in output.splitlines()) <= 100
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.timeout(2 * _LONGEST_S)
def test_it_leaves_the_broker_running_where_others_have_its_ports(tmp_path: Path, environment: dict[str, str]) -> None:
    with (
        taken((6652, 6650, 8080)),
        ChildProcess(
            [sys.executable, "-W", "error", "-c", _WITHOUT_SPARK, "--messages=2000"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as tour,
    ):
        try:
            assert tour.stdout is not None
            assert tour.stderr is not None
            output = []
            for line in tour.stdout:
                output.append(line)
                if "README.md" in line:
                    break
            whole = "".join(output)
            assert "Ports 6652, 6650 and 8080 are in use" in whole
            (url,) = re.findall(r"clients +(magnetar://\S+)", whole)
            with magnetar.Client(url) as client:
                client.create_producer("readings").send(b"one more")
            tour.send_signal(signal.SIGINT)
            assert tour.wait(_LONGEST_S) == 0
            assert tour.stderr.read() == ""
            assert list((tmp_path / "temporary").iterdir()) == []
        finally:
            tour.kill()


@pytest.mark.timeout(2 * _LONGEST_S)
def test_failure_reports_the_cause_and_the_log_folder(tmp_path: Path, environment: dict[str, str]) -> None:
    """A Java that prints its version, and does not start."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "17.0.1"\' && exit 0\n')
    with java.open("a") as script:
        script.write("echo 'the heap does not fit' >&2\nexit 3\n")
    java.chmod(0o755)
    ended = subprocess.run(
        [sys.executable, "-m", "magnetar_cli", "tour", "--once", "--messages=1000"],
        cwd=tmp_path,
        env={**environment, "JAVA_HOME": str(java.parents[1])},
        capture_output=True,
        text=True,
        timeout=_LONGEST_S,
        check=False,
    )
    assert ended.returncode == 1
    assert "standby" in ended.stdout
    assert "Spark ended with the status 1: " in ended.stderr
    assert "the heap does not fit" in ended.stderr
    (folder,) = re.findall(r"The logs are in (\S+)\.$", ended.stderr, re.MULTILINE)
    assert (Path(folder) / "spark.log").exists()
    assert (Path(folder) / "standalone.log").exists()


def test_killed_tour_stops_its_child_processes(tmp_path: Path, environment: dict[str, str]) -> None:
    with ChildProcess(
        [sys.executable, "-m", "magnetar_cli", "tour", "--messages=1000"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as tour:
        try:
            assert tour.stdout is not None
            url = next(found[1] for line in tour.stdout if (found := re.search(r"(magnetar://\S+)", line)))
        finally:
            tour.kill()
    address = url.removeprefix("magnetar://").split(":")
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection((address[0], int(address[1])), timeout=5).close()
        except OSError:
            return
        assert time.monotonic() < deadline, f"{url} is still served"
        time.sleep(0.05)
