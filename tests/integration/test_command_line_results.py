"""Results of the commands of clients on a real standalone: which messages are shown and acknowledged, and numbers."""

from __future__ import annotations

import fcntl
import itertools
import json
import signal
import termios
import time
from array import array

import pytest

from magnetar_cli.exit_codes import ExitCode
from magnetar_testing.standalone_process import StandaloneProcess
from tests.command_line import CommandLine
from tests.running import GENEROUS_S

pytestmark = pytest.mark.slow

_names = itertools.count()


@pytest.fixture(scope="module")
def server(magnetar_standalone: StandaloneProcess) -> StandaloneProcess:
    return magnetar_standalone


@pytest.fixture
def magnetar_of(server: StandaloneProcess) -> CommandLine:
    return CommandLine(server.service_url)


@pytest.fixture
def topic() -> str:
    return f"result{next(_names)}"


def test_lists_in_json_are_an_object_per_row(magnetar_of: CommandLine, topic: str) -> None:
    """The same field that a program takes out of each line; of bookies and ledgers see test_maintenance.py."""
    magnetar_of.output_of("topics", "create", topic, "--partitions", "2")
    for subscription in ("a", "b"):
        magnetar_of.output_of("subscriptions", "create", topic, subscription)
    magnetar_of.output_of("tenants", "create", f"tenant-{topic}")
    for namespace in ("x", "y"):
        magnetar_of.output_of("namespaces", "create", f"tenant-{topic}/{namespace}", "--bundles", "2")
    full = f"persistent://public/default/{topic}"
    parts = [f"{full}-partition-{number}" for number in range(2)]
    bundles = ["0x00000000_0x80000000", "0x80000000_0xffffffff"]
    (broker,) = magnetar_of.json_of("brokers", "list")
    assert {"broker_id", "listeners", "http_address", "load"} <= set(broker)
    listed = magnetar_of.json_of("bundles", "list", f"tenant-{topic}/x")
    assert [(one["namespace"], one["bundle"]) for one in listed] == [(f"tenant-{topic}/x", one) for one in bundles]
    for words in (("bundles", "find"), ("topics", "lookup"), ("topics", "partitions")):
        assert [one["topic"] for one in magnetar_of.json_of(*words, topic)] == parts
    assert {full} <= {one["topic"] for one in magnetar_of.json_of("topics", "list")}
    assert [one["subscription"] for one in magnetar_of.json_of("subscriptions", "list", topic)] == ["a", "b"]
    assert {"public", f"tenant-{topic}"} <= {one["tenant"] for one in magnetar_of.json_of("tenants", "list")}
    namespaces = [one["namespace"] for one in magnetar_of.json_of("namespaces", "list", f"tenant-{topic}")]
    assert namespaces == [f"tenant-{topic}/x", f"tenant-{topic}/y"]


def test_clusters_and_settings_are_changed_while_brokers_run(magnetar_of: CommandLine) -> None:
    assert magnetar_of.json_of("clusters", "list") == [{"cluster": "standalone"}]
    own = magnetar_of.output_of("clusters", "show", "standalone", "--json")
    assert json.loads(own)["service_url"].startswith("http://")
    created = magnetar_of.run("clusters", "create", "west", "--service-url", "http://west:8080")
    assert (created.exit_code, created.stdout) == (0, "west: created\n")
    assert "not yet in effect" in created.stderr
    assert json.loads(magnetar_of.output_of("clusters", "show", "west", "--json")) == {
        "service_url": "http://west:8080"
    }
    magnetar_of.output_of("clusters", "delete", "west", "--yes")
    setting = "max_num_partitions_per_partitioned_topic"
    magnetar_of.output_of("brokers", "set-config", setting, "2")
    shown = [{"setting": "maxNumPartitionsPerPartitionedTopic", "value": "2"}]
    assert magnetar_of.json_of("brokers", "config") == shown
    assert shown[0] in magnetar_of.json_of("brokers", "config", "--changeable")
    magnetar_of.output_of("brokers", "delete-config", setting)
    assert magnetar_of.json_of("brokers", "config") == []


@pytest.mark.parametrize("options", [(), ("--from", "latest")], ids=["default", "latest"])
def test_tail_begins_behind_the_last_message(magnetar_of: CommandLine, topic: str, options: tuple[str, ...]) -> None:
    magnetar_of.output_of("produce", topic, "old", "older")
    with magnetar_of.process("tail", topic, *options, "--json", "-c", "1") as tailing:
        deadline = time.monotonic() + GENEROUS_S
        while not magnetar_of.json_of("subscriptions", "stats", topic):  # the reader's own
            assert time.monotonic() < deadline
            time.sleep(0.05)
        magnetar_of.output_of("produce", topic, "new")
        stdout, stderr = tailing.communicate(timeout=GENEROUS_S)
    assert tailing.returncode == ExitCode.DONE, stderr
    assert json.loads(stdout)["value"] == "new"


def test_skip_and_expire_say_how_many_entries_were_skipped(magnetar_of: CommandLine, topic: str) -> None:
    magnetar_of.output_of("topics", "create", topic)
    magnetar_of.output_of("subscriptions", "create", topic, "s")
    magnetar_of.output_of("produce", topic, "x", "-n", "5", "--no-batching")
    full = f"s of {topic}"
    skip = ("subscriptions", "skip", topic, "s", "--yes")
    assert magnetar_of.output_of(*skip, "--entries", "1") == f"{full}: 1 entry skipped\n"
    assert magnetar_of.output_of(*skip, "--entries", "50") == f"{full}: 4 entries skipped\n"
    assert magnetar_of.output_of(*skip, "--all") == f"{full}: 0 entries skipped\n"
    magnetar_of.output_of("subscriptions", "reset", topic, "s", "--to", "earliest", "--yes")
    expire = ("subscriptions", "expire", topic, "s", "--older-than", "1d", "--yes")
    assert magnetar_of.output_of(*expire) == f"{full}: 0 entries older than 1d skipped\n"
    skipped = {"topic": topic, "subscription": "s"}
    assert magnetar_of.json_of(*skip, "--entries", "2") == [{**skipped, "skipped_entries": 2}]
    assert magnetar_of.json_of(*expire) == [{**skipped, "skipped_entries": 0}]
    assert magnetar_of.json_of(*skip, "--all") == [{**skipped, "skipped_entries": 3}]


def unread(pipe: int) -> int:
    count = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


@pytest.mark.parametrize("count", [1, 2, 40])
def test_only_messages_that_the_reader_of_a_pipe_took_are_acknowledged(
    magnetar_of: CommandLine, topic: str, count: int
) -> None:
    magnetar_of.output_of("produce", topic, "--in", "lines", given=b"".join(b"%d\n" % number for number in range(100)))
    consume = ("consume", topic, "-s", "s", "--raw")
    head = f'"$@" | head -n {count}; exit ${{PIPESTATUS[0]}}'
    with magnetar_of.process(
        *consume, "--start", "earliest", shell_around=f"exec bash -c '{head}' bash \"$@\""
    ) as piped:
        stdout, stderr = piped.communicate(timeout=GENEROUS_S)
    assert (piped.returncode, stderr) == (ExitCode.PIPE_CLOSED, b"")
    assert stdout.splitlines() == [b"%d" % number for number in range(count)]
    rest = magnetar_of.output_of(*consume, "--timeout", "1").splitlines()
    assert rest == [str(number) for number in range(count, 100)]


def test_a_message_that_waits_in_a_pipe_is_not_acknowledged(magnetar_of: CommandLine, topic: str) -> None:
    """The reader is slow, and Ctrl-C ends the command."""
    magnetar_of.output_of("produce", topic, "one", "two", "three")
    consume = ("consume", topic, "-s", "s", "--raw")
    with magnetar_of.process(*consume, "--start", "earliest") as consuming:
        assert consuming.stdout is not None
        assert consuming.stdout.readline() == b"one\n"
        deadline = time.monotonic() + GENEROUS_S
        while not unread(consuming.stdout.fileno()):  # "two" is in the pipe, so "one" counts as shown
            assert time.monotonic() < deadline
        consuming.send_signal(signal.SIGINT)
        assert consuming.wait(GENEROUS_S) == ExitCode.INTERRUPTED
    assert magnetar_of.output_of(*consume, "--timeout", "1").splitlines() == ["two", "three"]
