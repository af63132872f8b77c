"""What README.md shows can be done as it stands there."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar_cli.cluster import LocalCluster, NoCluster
from magnetar_cli.local_java import NoJava, find_java

PROJECT = Path(__file__).resolve().parents[2]
ALL_EXAMPLES = re.findall(r"```python\n(.*?)```", (PROJECT / "README.md").read_text(), re.DOTALL)
ON_A_CLUSTER = [example for example in ALL_EXAMPLES if "LocalCluster" in example]
EXAMPLES = [example for example in ALL_EXAMPLES if example not in ON_A_CLUSTER]


def ran(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110, check=False)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 2
    assert len(ON_A_CLUSTER) == 1


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example: str, tmp_path: Path) -> None:
    ended = ran(tmp_path, "-c", example)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.slow
def test_the_tour_shows_what_there_is(tmp_path: Path) -> None:
    ended = ran(tmp_path, "-m", "magnetar_cli", "tour")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "come out as they went in" in ended.stdout
    found = re.search(r"(\d+) changes were acknowledged before kill -9; (\d+) are there", ended.stdout)
    assert found is not None
    assert int(found[2]) >= int(found[1]) >= 500
    assert "broker-b owns bundle-1 now" in ended.stdout or "left out: no Java" in ended.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)  # a dozen commands, each a process; seconds by itself, minutes on a machine with other work
def test_a_cluster_on_this_machine_does_what_is_shown(tmp_path: Path) -> None:
    """Every command of that section, as it stands there, and the example before the end; nothing of it is left."""
    section = (PROJECT / "README.md").read_text().partition("## A cluster on this machine")[2].partition("\n## ")[0]
    commands = re.findall(r"^magnetar ([^#\n]*)", section, re.MULTILINE)
    assert len(commands) >= 10
    assert commands[-1].startswith("cluster down")
    said = {}
    try:
        find_java()
        for command in commands:
            if command is commands[-1]:
                written = ran(tmp_path, "-c", ON_A_CLUSTER[0])
                assert (written.returncode, written.stderr) == (0, "")
            ended = ran(tmp_path, "-m", "magnetar_cli", *command.split())
            assert ended.returncode == 0, (command, ended.stdout, ended.stderr)
            said[command.strip()] = ended.stdout
    except NoJava as error:
        pytest.skip(str(error))
    finally:
        with contextlib.suppress(NoCluster):
            LocalCluster(tmp_path / ".magnetar").down(wipe=True)
    assert "nothing lacks a replica" in said["ledgers repairs --watch"]
    assert said["ledgers show 1 --check"].count("holds 5000 of 5000") >= 2  # the third may still be on its way
    assert "5000 entries read" in said["ledgers read 1"]
    assert "bookie-2: struck off" in said["bookies list"]
    assert list(tmp_path.iterdir()) == []


def test_the_command_without_an_act_says_what_there_is(tmp_path: Path) -> None:
    ended = ran(tmp_path, "-m", "magnetar_cli")
    assert ended.returncode == 2
    assert "tour" in ended.stdout
    assert "tour" in ran(tmp_path, "-m", "magnetar_cli", "--help").stdout


def test_the_help_is_there_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys, magnetar_cli.__main__ as command\n"
        "sys.argv = ['magnetar', '--help']\n"
        "try:\n    command.main()\n"
        "except SystemExit as ended:\n    assert ended.code == 0\n"
        "heavy = ('grpc', 'google.protobuf', 'rocksdict', 'kazoo', 'uvicorn', 'pydantic', 'magnetar_bookie')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    ended = ran(tmp_path, "-c", code)
    assert ended.stdout.splitlines()[-1] == "[]", ended.stderr
