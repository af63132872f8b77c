"""What all client commands have in common: fast help, a help for each, one table of exit statuses."""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

import magnetar
from magnetar_cli import service
from magnetar_cli.command import app
from magnetar_cli.exit_codes import ExitCode
from tests.command_line import CommandLine
from tests.running import GENEROUS_S

PROJECT = Path(__file__).resolve().parents[3]
_OF_CLIENTS = (
    *("produce", "consume", "tail", "topics", "subscriptions", "namespaces", "tenants", "perf"),
    *("brokers", "bundles", "clusters", "schemas"),
)
_OF_SERVERS = ("standalone", "cluster", "bookies", "ledgers", "bookie", "broker", "tour")


def commands(groups: Sequence[str] = _OF_CLIENTS) -> list[list[str]]:
    found = []
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    for name in groups:
        context = group.make_context("magnetar", [], resilient_parsing=True)
        _, part, _ = group.resolve_command(context, [name])
        assert part is not None
        within = part.list_commands(context) if isinstance(part, TyperGroup) else [""]
        found += [[name, *([one] if one else [])] for one in within]
    return found


def test_each_has_a_help_and_no_option_of_the_whole() -> None:
    for words in commands():
        shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200"})
        assert shown.exit_code == 0, words
        assert "--url" in shown.stdout, words
        assert "completion" not in shown.stdout, words


def test_a_help_breaks_no_line_within_a_paragraph() -> None:
    """In a wide terminal each paragraph is one line."""
    for words in commands([*_OF_CLIENTS, *_OF_SERVERS]):
        shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "400"}).stdout
        if "╭" not in shown:  # without a table: CliRunner sets the width to 80
            continue
        text = shown.partition("Usage:")[2].partition("╭")[0].splitlines()[1:]
        for line, following in itertools.pairwise(map(str.strip, text)):
            assert not (line and following), (words, line, following)


def test_a_help_shows_no_value_for_a_flag() -> None:
    """A reader would pass one: `--json true` is refused."""
    flags = 0
    for words in [[], *([group] for group in (*_OF_CLIENTS, *_OF_SERVERS)), *commands([*_OF_CLIENTS, *_OF_SERVERS])]:
        shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200"}).stdout
        assert "bool" not in shown.lower(), words
        flags += len(re.findall(r"--(help|json|ephemeral|options|yes|version) +(-y +)?[A-Z]", shown))
    assert flags > len(commands([*_OF_CLIENTS, *_OF_SERVERS])), "the help of each command has at least one flag"


def test_nothing_heavy_is_imported_before_one_runs() -> None:
    """Help and completion are fast."""
    modules = [
        *(f"magnetar_cli.messages.{name}" for name in ("produce", "consume", "tail")),
        *(f"magnetar_cli.administration.{name}" for name in ("topics", "subscriptions", "namespaces", "tenants")),
        "magnetar_cli.perf.commands",
    ]
    code = (
        f"import sys, {', '.join(modules)}\n"
        "heavy = ('magnetar', 'grpc', 'rich', 'google.protobuf', 'pydantic', 'asyncio', 'pyarrow', 'numpy')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"


def test_the_statuses_that_are_documented_are_those_that_there_are() -> None:
    section = (PROJECT / "deploy" / "command_line.md").read_text().partition("## Exit status")[2]
    documented = {int(number) for row in re.findall(r"^\| ([\d, ]+) \|", section, re.M) for number in row.split(",")}
    assert documented == set(map(int, ExitCode))
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "300"}).stdout
    assert all(re.search(rf"\b{int(code)} \w", shown) for code in ExitCode)


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "delete", "good", "bad//name", "--yes"),
        ("produce", "bad//name", "x"),
        ("consume", "bad//name", "-s", "s"),
        ("topics", "list", "--url", "pulsar://localhost:6650"),
    ],
    ids=" ".join,
)
def test_invalid_topic_names_and_urls_are_usage_errors(words: tuple[str, ...]) -> None:
    """They are detected before a broker is requested: there is none at this address."""
    ended = CliRunner().invoke(app, list(words), env={"MAGNETAR_URL": "magnetar://127.0.0.1:1"})
    assert ended.exit_code == ExitCode.USAGE
    assert "Invalid topic name" in ended.stderr or "does not begin with magnetar://" in ended.stderr


@pytest.mark.parametrize("module", ["messages.consume", "perf.commands"])
def test_consume_knows_all_types_and_patterns(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SUB-5, SUB-8"""
    found: list[tuple[tuple[object, ...], dict[str, object]]] = []

    class Client(contextlib.nullcontext[object]):
        def __enter__(self) -> object:
            return self

        def subscribe(self, *arguments: object, **options: object) -> None:
            found.append((arguments, options))
            raise magnetar.Timeout("enough")

    monkeypatch.setattr(f"magnetar_cli.{module}.connect_client", lambda *_: Client())
    words = ["consume"] if module == "messages.consume" else ["perf", "consume"]
    for kind in magnetar.ConsumerType:
        name = re.sub("(?<=.)([A-Z])", r"_\1", kind.name).lower()
        CliRunner().invoke(app, [*words, "t", "-s", "s", "--type", name])
        assert found.pop()[0] == ("t", "s", kind)
    if module == "messages.consume":
        CliRunner().invoke(app, [*words, "a.*", "-s", "s", "--regex"])
        assert found.pop()[1]["is_pattern_topic"] is True
        several = CliRunner().invoke(app, [*words, "a", "b", "-s", "s", "--regex"])
        assert (several.exit_code, found) == (ExitCode.USAGE, [])


def test_the_url_may_stand_in_front(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGNETAR_URL", "magnetar://127.0.0.1:1")
    monkeypatch.setenv("MAGNETAR_LISTENER_NAME", "")
    ended = CliRunner().invoke(app, ["--url", "pulsar://there", "--listener-name", "out", "topics", "list"])
    assert "'pulsar://there' does not begin" in ended.stderr
    # The option of the subcommand overrides it.
    ended = CliRunner().invoke(app, ["--url", "pulsar://there", "topics", "list", "--url", "pulsar://here"])
    assert "'pulsar://here' does not begin" in ended.stderr


@pytest.mark.parametrize("words", [("produce", "t", "x"), ("topics", "list")], ids=" ".join)
def test_without_a_broker_a_command_warns_before_its_time_is_over(words: tuple[str, ...]) -> None:
    """The warning stands alone on standard error while the command goes on trying, until Ctrl-C here."""
    with unused_port() as address, CommandLine(f"magnetar://{address}").process(*words) as process:
        assert process.stderr is not None
        warning = process.stderr.readline().decode()
        assert re.match(rf"magnetar: no broker has answered for 1 s at {address}: .*; still trying\n", warning)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=GENEROUS_S) == (b"", b"")
        assert process.returncode == ExitCode.INTERRUPTED


def test_unreachable_broker_error_does_not_repeat_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "OPERATION_TIMEOUT_S", 0.2)
    with unused_port() as address:
        ended = CliRunner().invoke(app, ["topics", "list"], env={"MAGNETAR_URL": f"magnetar://{address}"})
    assert ended.exit_code == ExitCode.UNREACHABLE
    assert len(re.findall("no broker answers", ended.stderr)) == 1, ended.stderr
    assert len(re.findall(r"magnetar standalone", ended.stderr)) == 1, ended.stderr
    assert f"no process listens at {address}" in ended.stderr
    assert "?." not in ended.stderr


def test_other_warnings_of_the_sdk_are_not_shown() -> None:
    code = (
        "import logging; from magnetar_cli.user_errors import configure_logs; configure_logs()\n"
        "for name in ('magnetar', 'magnetar._connections.broker_stream', 'kazoo', 'other'):\n"
        "    logging.getLogger(name).warning('a warning')\n"
        "logging.getLogger('magnetar').error('an error')"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stderr == "magnetar: an error\n"


@contextlib.contextmanager
def unused_port() -> Iterator[str]:
    """Yield an address that refuses connections: the port is bound, and nothing listens at it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def test_the_version_is_shown() -> None:
    installed = importlib.metadata.version("magnetar")
    shown = CliRunner().invoke(app, ["--version"])
    assert (shown.exit_code, shown.stdout) == (0, f"magnetar {installed}\n")
    assert magnetar.__version__ == installed


def test_importing_magnetar_does_not_import_importlib_metadata() -> None:
    code = "import sys, magnetar; print('importlib.metadata' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "False\n"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("topcs", "list"), "topics"),
        (("prodce", "t", "x"), "produce"),
        (("topics", "lst"), "list"),
        (("--versoin",), "--version"),
        (("tail", "t", "--lats", "3"), "--last"),
        (("cluster", "up", "--bookeis", "3"), "--bookies"),
    ],
    ids=" ".join,
)
def test_a_mistyped_name_is_answered_with_the_nearest_one(words: tuple[str, ...], meant: str) -> None:
    ended = CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})
    assert ended.exit_code == ExitCode.USAGE
    assert re.search(rf"([Dd]id you mean|Possible options:) '?{meant}\b", ended.stderr), ended.stderr


def test_what_is_impossible_over_http_is_refused_before_it_is_to_be_confirmed() -> None:
    words = ["topics", "end-lease", "t", "aa", "--url", "http://127.0.0.1:1"]
    ended = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert (ended.exit_code, "use a magnetar:// URL" in ended.stderr) == (ExitCode.USAGE, True)
