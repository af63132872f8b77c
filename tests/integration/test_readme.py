"""What README.md shows can be done as it stands there."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from magnetar_cli.__main__ import app
from magnetar_cli.cluster import LocalCluster, NoCluster
from magnetar_cli.local_java import NoJava, find_java
from tests.running_standalone import standalone

PROJECT = Path(__file__).resolve().parents[2]
ALL_EXAMPLES = re.findall(r"```python\n(.*?)```", (PROJECT / "README.md").read_text(), re.DOTALL)
ON_A_CLUSTER = [example for example in ALL_EXAMPLES if "LocalCluster" in example]
ON_A_STANDALONE = [example for example in ALL_EXAMPLES if "localhost:6652" in example]
EXAMPLES = [example for example in ALL_EXAMPLES if example not in ON_A_CLUSTER + ON_A_STANDALONE]


def ran(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110, check=False)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 2
    assert len(ON_A_CLUSTER) == 1
    assert len(ON_A_STANDALONE) == 3


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example: str, tmp_path: Path) -> None:
    ended = ran(tmp_path, "-c", example)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.slow
def test_examples_run_on_a_standalone(tmp_path: Path) -> None:
    with standalone(tmp_path / "data") as server:
        for example in ON_A_STANDALONE:
            ended = ran(tmp_path, "-c", example.replace("magnetar://localhost:6652", server.grpc))
            assert (ended.returncode, ended.stderr) == (0, ""), example


@pytest.mark.slow
def test_the_tour_shows_what_there_is(tmp_path: Path) -> None:
    ended = ran(tmp_path, "-m", "magnetar_cli", "tour")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "come out as they went in" in ended.stdout
    found = re.search(r"(\d+) changes were acknowledged before kill -9; (\d+) are there", ended.stdout)
    assert found is not None
    assert int(found[2]) >= int(found[1]) >= 500
    assert "broker-b owns bundle-1 now" in ended.stdout or "left out: no Java" in ended.stdout


def cluster_commands() -> list[str]:
    return _commands("## A cluster on this machine")


def _commands(heading: str) -> list[str]:
    section = (PROJECT / "README.md").read_text().partition(heading)[2].partition("\n## ")[0]
    return [command.strip() for command in re.findall(r"^magnetar ([^#\n]*)", section, re.MULTILINE)]


def test_there_are_commands() -> None:
    assert len(cluster_commands()) >= 10


@pytest.mark.parametrize("command", [*cluster_commands(), *_commands("## Send and receive")])
def test_a_shown_command_exists_with_its_options(command: str) -> None:
    """It is taken apart as if it were to be run. What commands do is shown by tests of their own."""
    words, here, context = command.split(), get_command(app), None
    while True:
        context = here.make_context(here.name, words, parent=context)
        if not isinstance(here, TyperGroup):
            break
        _, found, words = here.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        here = found


# Of those that are shown: what anybody runs first. Each is a process of its own, which takes a second.
_RUN = ("cluster up", "cluster status", "ledgers write", "ledgers show", "ledgers read", "cluster down")


@pytest.mark.slow
@pytest.mark.timeout(600)  # seconds by itself, minutes on a machine with other work
def test_a_cluster_on_this_machine_does_what_is_shown(tmp_path: Path) -> None:
    """Some commands of that section, as they stand there, and the example before the end; nothing of it is left."""
    said = {}
    try:
        find_java()
        for command in cluster_commands():
            if command.startswith("cluster down"):
                written = ran(tmp_path, "-c", ON_A_CLUSTER[0])
                assert (written.returncode, written.stderr) == (0, "")
            if command.startswith(_RUN):
                ended = ran(tmp_path, "-m", "magnetar_cli", *command.split())
                assert ended.returncode == 0, (command, ended.stdout, ended.stderr)
                said[command] = ended.stdout
    except NoJava as error:
        pytest.skip(str(error))
    finally:
        with contextlib.suppress(NoCluster):
            LocalCluster(tmp_path / ".magnetar").down(wipe=True)
    assert len(said) == len(_RUN)
    assert said["ledgers show 1 --check"].count("holds 5000 of 5000") >= 2  # the third may still be on its way
    assert "5000 entries read" in said["ledgers read 1"]
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
