"""The cluster that commands of maintenance use. None of them creates a metadata store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.text import Text
from typer.testing import CliRunner

from magnetar_cli import service
from magnetar_cli.cluster import ClusterStatus, LocalCluster, PartStatus
from magnetar_cli.command import app
from magnetar_cli.exit_codes import ExitCode
from magnetar_cli.maintenance.views import show, watch
from magnetar_cli.messages import tail

_COMMANDS = [
    ("bookies", "list"),
    ("bookies", "read-only", "bookie-1", "on"),
    ("bookies", "decommission", "bookie-1"),
    ("ledgers", "list"),
    ("ledgers", "show", "1"),
    ("ledgers", "repairs"),
    ("ledgers", "orphans"),
    ("ledgers", "recover", "1"),
    ("ledgers", "delete", "1", "--yes"),
    ("ledgers", "write"),
    ("ledgers", "read", "1"),
]


@pytest.mark.parametrize("words", _COMMANDS, ids=" ".join)
def test_a_mistyped_location_is_an_error_and_creates_nothing(words: tuple[str, ...], tmp_path: Path) -> None:
    typo = tmp_path / "typo"
    ended = CliRunner().invoke(app, [*words, "--metadata", f"embedded://{typo}"])
    assert ended.exit_code == 1, ended.output
    assert f"there is no metadata store in {typo}" in ended.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", _COMMANDS, ids=" ".join)
def test_command_without_a_cluster_names_the_options_that_select_one(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, [*words])
    assert ended.exit_code == 1, ended.output
    assert "--metadata zookeeper://host:port" in ended.stderr
    assert "--folder" in ended.stderr


_OF_BROKERS = [
    ("brokers", "list"),
    ("bundles", "list", "public/default"),
    ("bundles", "find", "orders"),
    ("bundles", "unload", "public/default"),
    ("bundles", "split", "public/default", "0x00000000_0x40000000"),
]


@pytest.fixture
def no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder has no cluster, and nobody waits for brokers that do not exist."""
    monkeypatch.chdir(tmp_path)
    for module in (service, tail):
        monkeypatch.setattr(module, "OPERATION_TIMEOUT_S", 0.2)
    monkeypatch.delenv("MAGNETAR_URL", raising=False)
    return tmp_path


@pytest.mark.usefixtures("no_cluster")
@pytest.mark.parametrize("words", _OF_BROKERS, ids=" ".join)
def test_commands_of_brokers_take_a_url_as_all_commands_of_clients(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_option = CliRunner().invoke(app, [*words, "--url", "ftp://by-option"])
    assert (by_option.exit_code, "'ftp://by-option' does not begin" in by_option.stderr) == (ExitCode.USAGE, True)
    by_variable = CliRunner().invoke(app, [*words], env={"MAGNETAR_URL": "ftp://by-variable"})
    assert (by_variable.exit_code, "'ftp://by-variable' does not" in by_variable.stderr) == (ExitCode.USAGE, True)
    # Neither, and no cluster here: the default of all commands of clients.
    monkeypatch.setattr("magnetar_cli.maintenance.broker_target.DEFAULT_URL", "magnetar://127.0.0.1:1")
    default = CliRunner().invoke(app, [*words])
    assert (default.exit_code, "127.0.0.1:1" in default.stderr) == (ExitCode.UNREACHABLE, True)
    missing = CliRunner().invoke(app, [*words, "--folder", "nowhere"])
    assert (missing.exit_code, "there is no cluster in" in missing.stderr) == (ExitCode.FAILED, True)


@pytest.fixture
def cluster(no_cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster in `.magnetar` as these commands see it."""
    folder = no_cluster / ".magnetar"
    folder.mkdir()
    (folder / "cluster.json").write_text("{}")
    status = ClusterStatus(str(folder), "zookeeper://h", parts=[PartStatus("bookie-1", "bookie", "running")] * 2)
    monkeypatch.setattr(LocalCluster, "service_url", "magnetar://127.0.0.1:1,127.0.0.1:2")
    monkeypatch.setattr(LocalCluster, "pulsar_url", "pulsar://127.0.0.1:3")
    monkeypatch.setattr(LocalCluster, "broker_names", lambda _: ["broker-1"])
    monkeypatch.setattr(LocalCluster, "running", lambda _, name: name == "broker-1")
    monkeypatch.setattr(LocalCluster, "status", lambda _: status)


@pytest.mark.usefixtures("cluster")
def test_commands_of_brokers_ask_the_cluster_of_this_folder_without_a_url() -> None:
    ended = CliRunner().invoke(app, ["brokers", "list"])
    assert (ended.exit_code, "127.0.0.1:1, 127.0.0.1:2" in ended.stderr) == (ExitCode.UNREACHABLE, True)


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("words", _OF_BROKERS, ids=" ".join)
def test_commands_of_brokers_ask_the_default_beside_a_cluster_that_is_down(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As all commands of clients do."""
    monkeypatch.setattr(LocalCluster, "running", lambda _, name: False)
    monkeypatch.setattr("magnetar_cli.maintenance.broker_target.DEFAULT_URL", "magnetar://127.0.0.1:5")
    ended = CliRunner().invoke(app, [*words])
    assert (ended.exit_code, "127.0.0.1:5" in ended.stderr) == (ExitCode.UNREACHABLE, True)
    assert "127.0.0.1:1" not in ended.stderr
    assert "`magnetar cluster up` starts it" in ended.stderr


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("words", _OF_BROKERS, ids=" ".join)
def test_a_url_and_a_folder_together_are_wrong_usage(words: tuple[str, ...]) -> None:
    url, folder = ("--url", "magnetar://127.0.0.1:4"), ("--folder", ".magnetar")
    for both in ([*words, *url, *folder], [*words, *folder, *url], [*url, *words, *folder]):
        ended = CliRunner().invoke(app, both, env={"MAGNETAR_URL": "", "COLUMNS": "200"})
        assert (ended.exit_code, "use one of them" in ended.stderr) == (ExitCode.USAGE, True), both
    # The variable is a default for all commands.
    ended = CliRunner().invoke(app, [*words, *folder], env={"MAGNETAR_URL": "magnetar://127.0.0.1:4"})
    assert (ended.exit_code, "127.0.0.1:1, 127.0.0.1:2" in ended.stderr) == (ExitCode.UNREACHABLE, True)


@pytest.mark.usefixtures("cluster")
def test_env_of_a_stopped_cluster_warns_that_no_broker_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    up = CliRunner().invoke(app, ["cluster", "env"])
    monkeypatch.setattr(LocalCluster, "running", lambda _, name: False)
    down = CliRunner().invoke(app, ["cluster", "env"])
    assert (down.exit_code, down.stdout) == (0, up.stdout)
    assert up.stderr == ""
    assert down.stderr == "magnetar: no broker of this cluster runs: `magnetar cluster up` starts it\n"


@pytest.mark.usefixtures("cluster")
def test_env_prints_shell_export_lines() -> None:
    ended = CliRunner().invoke(app, ["cluster", "env"])
    assert ended.exit_code == 0
    assert ended.stdout.splitlines() == [
        "export MAGNETAR_URL=magnetar://127.0.0.1:1,127.0.0.1:2",
        "# Pulsar's clients: pulsar://127.0.0.1:3",
    ]


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("words", [("topics", "list"), ("produce", "t", "x"), ("tail", "t")], ids=" ".join)
def test_unreachable_broker_error_suggests_env_of_a_running_cluster(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"MAGNETAR_URL": "magnetar://127.0.0.1:4"}
    ended = CliRunner().invoke(app, [*words], env=environment)
    assert (ended.exit_code, 'eval "$(magnetar cluster env)"' in ended.stderr) == (ExitCode.UNREACHABLE, True)
    monkeypatch.setattr(LocalCluster, "running", lambda _, name: False)
    ended = CliRunner().invoke(app, [*words], env=environment)
    assert (ended.exit_code, "cluster env" in ended.stderr) == (ExitCode.UNREACHABLE, False)


class View:
    is_final = True

    def table(self) -> Text:
        return Text("table")

    def lines(self) -> list[str]:
        return ["line"]

    def json_objects(self) -> list[dict[str, object]]:
        return [{"parts": [{"name": "one"}, {"name": "two\n"}], "payload": b"\xff"}]


@pytest.mark.usefixtures("cluster")
async def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """As deploy/command_line.md documents for every --json."""

    async def take_view() -> View:
        return View()

    show(View(), as_json=True)
    await watch(take_view, as_json=True)
    first, second = capsys.readouterr().out.splitlines()
    assert json.loads(first) == json.loads(second)
    assert json.loads(first) == {"parts": [{"name": "one"}, {"name": "two\n"}], "payload": "ff"}
    (status,) = CliRunner().invoke(app, ["cluster", "status", "--json"]).stdout.splitlines()
    assert len(json.loads(status)["parts"]) == 2
