"""`magnetar produce`, `consume`, `tail`, `topics` and other client commands on a real standalone.

Commands that need neither input nor a signal run in this process.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import re
import signal
import subprocess
import termios
import time
from array import array
from pathlib import Path
from typing import Any

import pytest

from magnetar.admin import Admin, MessagePosition
from magnetar.schema import AvroSchema
from magnetar_cli import service
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
    return f"line{next(_names)}"


def values(magnetar_of: CommandLine, topic: str) -> list[str | None]:
    return [one.get("value") for one in magnetar_of.json_of("tail", topic, "--from", "earliest", "--no-follow")]


def test_arguments_are_published_and_received(magnetar_of: CommandLine, topic: str) -> None:
    full = f"persistent://public/default/{topic}"
    output = magnetar_of.output_of("produce", topic, "hello", "wörld", "-k", "k", "-p", "unit=C", "-p", "x=y=z")
    assert output == f"2 messages are persisted in {full}\n"
    received = magnetar_of.json_of("consume", topic, "-s", "s", "--start", "earliest", "-n", "2")
    assert [one["value"] for one in received] == ["hello", "wörld"]
    for one in received:
        assert (one["topic"], one["key"], one["properties"]) == (full, "k", {"unit": "C", "x": "y=z"})
    assert magnetar_of.json_of("subscriptions", "stats", topic)[0]["backlog_messages"] == 0
    # Also consumers that have closed since.
    assert magnetar_of.json_of("topics", "stats", topic)[0]["delivered"]["messages"] == 2
    again = magnetar_of.run("consume", topic, "-s", "s", "-n", "1", "--timeout", "0.2")
    assert again.exit_code == ExitCode.TOO_FEW
    assert "0 of 1 messages received" in again.stderr


def test_values_are_encoded_and_printed_by_the_topic_s_schema(
    server: StandaloneProcess, magnetar_of: CommandLine, topic: str, tmp_path: Path
) -> None:
    """(SCH-3) Each by the version that it was written with; one that can't be decoded is printed as its payload."""
    first, second = tmp_path / "first.avsc", tmp_path / "second.avsc"
    fields = [{"name": "sensor", "type": "string"}]
    first.write_text(json.dumps({"type": "record", "name": "Reading", "fields": fields}))
    fields.append({"name": "celsius", "type": "double", "default": 0.5})  # type: ignore[dict-item]
    second.write_text(json.dumps({"type": "record", "name": "Reading", "fields": fields}))
    magnetar_of.output_of("produce", topic, '{"sensor": "hall"}', "--schema", str(first), "-k", "k")
    magnetar_of.output_of("produce", topic, '{"sensor": "attic", "celsius": 21.5}', "--schema", str(second))
    wrong = magnetar_of.run("produce", topic, '{"sensor": "x"}', '{"sensor": 7}', "--schema", "topic")
    assert (wrong.exit_code, wrong.stdout) == (ExitCode.FAILED, "")
    assert (
        "message 2: '{\"sensor\": 7}': field 'sensor': 7 is not a string. No further message was sent" in wrong.stderr
    )
    magnetar_of.output_of("produce", topic, '{"sensor": "cellar"}', "null", "--schema", "topic")
    expected = [{"sensor": "hall"}, {"sensor": "attic", "celsius": 21.5}, {"sensor": "cellar", "celsius": 0.5}, None]
    received = magnetar_of.json_of("consume", topic, "-s", "s", "--start", "earliest", "-n", "4")
    assert [one["value"] for one in received] == expected
    assert [one.get("schema_version") for one in received] == [0, 1, 1, None]
    tailed = magnetar_of.output_of("tail", topic, "--from", "earliest", "--no-follow")
    assert [line.split("  ")[-1] for line in tailed.splitlines()][:2] == ['{"sensor": "hall"}', json.dumps(expected[1])]
    payloads = magnetar_of.output_of("tail", topic, "--last", "4", "--no-follow", "--no-decode", "--json")
    assert json.loads(payloads.splitlines()[0])["value"] == "\x08hall"
    assert magnetar_of.output_of("topics", "peek", topic, "--count", "1", "--raw") == "\x08hall\n"

    class Encoded(AvroSchema[Any]):
        def encode(self, obj: Any) -> bytes:
            return bytes(obj)

    with server.client() as client:
        client.create_producer(topic, schema=Encoded(None, json.loads(second.read_text()))).send(b"\xff\xff")
    damaged = magnetar_of.run("consume", topic, "-s", "s", "-n", "1", "--json")
    assert (damaged.exit_code, json.loads(damaged.stdout)["value_base64"]) == (ExitCode.FAILED, "//8=")
    assert "can't be decoded: " in damaged.stderr
    assert magnetar_of.json_of("subscriptions", "stats", topic)[0]["backlog_messages"] == 0
    assert magnetar_of.run("topics", "peek", topic).exit_code == ExitCode.FAILED


def test_produce_accepts_json_written_by_tail(magnetar_of: CommandLine, topic: str) -> None:
    """Keys and values that are no text, null values and times among it."""
    lines = [
        {"value": "text", "key": "k", "properties": {"a": "b"}, "event_time": "2026-01-31T12:00:00.500Z"},
        {"value_base64": "//8A", "key_base64": "/w=="},
        {"value": None, "key": "deleted"},
        {"value": "", "event_time": 1_700_000_000_000},
    ]
    magnetar_of.output_of("produce", topic, "--json", given="\n".join(map(json.dumps, lines)).encode())
    tailed = magnetar_of.output_of("tail", topic, "--from", "earliest", "--no-follow", "--json")
    other = f"{topic}-copy"
    magnetar_of.output_of("produce", other, "--json", given=tailed.encode())
    names = ("value", "value_base64", "key", "key_base64", "properties", "event_time")
    copies = [
        [{name: one[name] for name in names if name in one} for one in magnetar_of.json_of("topics", "peek", name)]
        for name in (topic, other)
    ]
    assert copies[0] == copies[1]
    assert copies[0][:3] == lines[:3]
    assert copies[0][3] == {"value": "", "event_time": "2023-11-14T22:13:20.000Z"}
    assert magnetar_of.output_of("topics", "peek", topic, "--hex", "-n", "2").splitlines()[1].endswith("  ff ff 00")


def test_administration(server: StandaloneProcess, magnetar_of: CommandLine, topic: str) -> None:
    magnetar_of.output_of("topics", "create", topic, "--partitions", "2")
    full = f"persistent://public/default/{topic}"
    assert {"topic": full, "partitions": 2} in magnetar_of.json_of("topics", "list")
    magnetar_of.output_of("topics", "update", topic, "--partitions", "3")
    parts = [f"{full}-partition-{at}" for at in range(3)]
    assert [one["topic"] for one in magnetar_of.json_of("topics", "partitions", topic)] == parts
    assert [one["topic"] for one in magnetar_of.json_of("topics", "lookup", topic)] == parts
    magnetar_of.output_of("subscriptions", "create", topic, "s", "--at", "earliest")
    assert magnetar_of.json_of("subscriptions", "list", topic) == [{"subscription": "s"}]
    magnetar_of.output_of("produce", topic, "-n", "6", "--no-batching", "x")
    assert [one["subscription"] for one in magnetar_of.json_of("subscriptions", "stats", topic, "s")] == ["s"]
    assert magnetar_of.json_of("topics", "stats", topic)[0]["messages_ever"] == 6
    assert [one["topic"] for one in magnetar_of.json_of("topics", "stats", topic, "--internal")] == parts
    assert magnetar_of.run("topics", "stats", "bad//name").exit_code == ExitCode.USAGE
    ids = [one["message_id"] for one in magnetar_of.json_of("topics", "last-message-id", topic)]
    assert [text.rpartition(":")[2] for text in ids] == ["0", "1", "2"]
    assert len(magnetar_of.json_of("topics", "find-message-id", topic, "1h")) == 3
    assert [one["value"] for one in magnetar_of.json_of("topics", "message", topic, ids[1])] == ["x"]
    assert magnetar_of.run("topics", "message", topic, "9999:0:1").exit_code == ExitCode.FAILED
    assert magnetar_of.run("topics", "find-message-id", topic, "latest").exit_code == ExitCode.USAGE
    (last,) = magnetar_of.json_of("topics", "examine", parts[0], "--latest")
    assert last["message_id"].startswith(ids[0].rpartition(":")[0])
    shown = magnetar_of.json_of("topics", "properties", topic, "--set", "a=b", "--set", "c=d", "--remove", "c")
    assert shown == [{"name": "a", "value": "b"}]
    magnetar_of.output_of("topics", "trim", topic)
    magnetar_of.output_of("topics", "create-missed-partitions", topic)
    nobody = magnetar_of.run("subscriptions", "skip", topic, "s", "--all")
    assert nobody.exit_code == ExitCode.USAGE
    assert "use --yes" in nobody.stderr
    magnetar_of.output_of("subscriptions", "skip", topic, "s", "--all", "--yes")
    assert magnetar_of.json_of("subscriptions", "stats", topic, "s")[0]["backlog_messages"] == 0
    magnetar_of.output_of("subscriptions", "reset", topic, "s", "--to", "earliest", "--yes")
    assert magnetar_of.json_of("subscriptions", "stats", topic, "s")[0]["backlog_messages"] == 6
    assert [one["topic"] for one in magnetar_of.json_of("topics", "stats", topic, "--per-partition")] == parts
    assert magnetar_of.json_of("subscriptions", "analyze-backlog", topic, "s")[0]["messages"] == 6
    assert "6 messages in 6 entries" in magnetar_of.output_of("subscriptions", "analyze-backlog", topic, "s")
    magnetar_of.output_of("subscriptions", "set-properties", topic, "s", "color=red", "empty=")
    rows = [{"name": "color", "value": "red"}, {"name": "empty", "value": ""}]
    assert magnetar_of.json_of("subscriptions", "properties", topic, "s") == rows
    first = magnetar_of.json_of("subscriptions", "peek", parts[0], "s", "-n", "1")[0]["message_id"]
    for words, skipped in (
        (("expire", parts[0], "s", "--up-to", first, "--excluded"), 0),
        (("expire", parts[0], "s", "--up-to", first), 1),
        (("expire", topic, "--older-than", "1h"), 0),
    ):
        assert magnetar_of.json_of("subscriptions", *words, "--yes")[0]["skipped_entries"] == skipped
    magnetar_of.output_of("subscriptions", "reset", parts[0], "s", "--to", first, "--excluded", "--yes")
    assert magnetar_of.json_of("subscriptions", "stats", topic, "s")[0]["backlog_messages"] == 5
    magnetar_of.output_of("subscriptions", "reset", parts[0], "s", "--to", first, "--yes")
    assert magnetar_of.run("subscriptions", "expire", topic, "s").exit_code == ExitCode.USAGE
    assert len(magnetar_of.json_of("subscriptions", "peek", parts[0], "s", "-n", "10")) == 2
    assert len(magnetar_of.json_of("subscriptions", "peek", topic, "s", "-n", "1")) == 3  # of each partition
    with Admin(server.service_url) as admin:
        for part in parts[:2]:
            admin.reading.plan(part, start=MessagePosition(0, 0), lease_ms=60_000, lease_id=b"l" * 16, holder="a query")
    (shown,) = magnetar_of.json_of("topics", "stats", topic, "--internal")[1]["stats"]["leases"]
    assert (shown["holder"], shown["lease_id"]) == ("a query", (b"l" * 16).hex())
    assert shown["lease_id"] in magnetar_of.output_of("topics", "stats", topic, "--internal")
    ended = magnetar_of.output_of("topics", "end-lease", topic, shown["lease_id"], "--yes")
    assert [line.partition(": ")[0] for line in ended.splitlines()] == parts[:2]
    assert not any(one["stats"]["leases"] for one in magnetar_of.json_of("topics", "stats", topic, "--internal"))
    nobody = magnetar_of.run("topics", "end-lease", topic, shown["lease_id"], "--yes")
    assert nobody.exit_code == ExitCode.FAILED
    assert "has no lease" in nobody.stderr
    magnetar_of.output_of("topics", "truncate", topic, "--yes")
    magnetar_of.output_of("topics", "unload", topic)
    magnetar_of.output_of("subscriptions", "delete", topic, "s", "--yes")
    magnetar_of.output_of("topics", "delete", topic, "--yes")
    assert full not in {one["topic"] for one in magnetar_of.json_of("topics", "list")}


def lines_of(process: subprocess.Popen[bytes], count: int) -> list[bytes]:
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


def wait_until_read(process: subprocess.Popen[bytes]) -> None:
    """What was written to its standard input."""
    assert process.stdin is not None
    deadline = time.monotonic() + GENEROUS_S
    left = array("i", [1])
    while left[0]:
        assert time.monotonic() < deadline
        fcntl.ioctl(process.stdin, termios.FIONREAD, left)


def ended(process: subprocess.Popen[bytes], code: ExitCode) -> tuple[str, str]:
    """The command's messages, on either output."""
    stdout, stderr = process.communicate(timeout=GENEROUS_S)
    assert process.returncode == code, (stdout, stderr)
    return stdout.decode(), stderr.decode()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, ExitCode.TERMINATED)]
)
def test_interrupted_produce_reports_number_of_persisted_messages(
    magnetar_of: CommandLine, topic: str, number: signal.Signals, code: ExitCode
) -> None:
    """What was typed left at the end of its line; what was not ended was not sent."""
    with magnetar_of.process("produce", topic, "--ids") as typed:
        assert typed.stdin is not None
        typed.stdin.write(b"one\ntwo\nthr")
        typed.stdin.flush()
        assert all(id_.count(b":") == 3 for id_ in lines_of(typed, 2))
        typed.send_signal(number)
        assert ended(typed, code) == ("", f"2 messages are persisted in persistent://public/default/{topic}\n")
    with magnetar_of.process(
        "produce", topic, "--ids", "--json", "-r", "100", "-n", "1000000", '{"value": "x"}'
    ) as busy:
        lines_of(busy, 3)
        busy.send_signal(number)
        result = json.loads(ended(busy, code)[0].splitlines()[-1])
    assert result["receipts"] >= 3
    assert (result["unknown"], result["refused"]) == (0, {})
    assert values(magnetar_of, topic) == ["one", "two"] + ["x"] * result["receipts"]


def test_a_pipe_that_closes_loses_no_message(magnetar_of: CommandLine, topic: str) -> None:
    magnetar_of.output_of(
        "produce", topic, "--in", "lines", given=b"".join(b"%d\n" % number for number in range(20_000))
    )
    with magnetar_of.process("consume", topic, "-s", "s", "--start", "earliest", "--raw") as consuming:
        seen = [int(line) for line in lines_of(consuming, 10)]
        assert consuming.stdout is not None
        consuming.stdout.close()
        assert consuming.wait(GENEROUS_S) == ExitCode.PIPE_CLOSED
        assert consuming.stderr is not None
        assert consuming.stderr.read() == b""
    rest = magnetar_of.output_of("consume", topic, "-s", "s", "--raw", "--timeout", "1").splitlines()
    assert seen == list(range(10))
    assert [int(line) for line in rest] == list(range(10, 20_000))
    with magnetar_of.process("produce", topic, "-n", "1000000", "--ids", "x") as producing:
        lines_of(producing, 1)
        assert producing.stdout is not None
        producing.stdout.close()
        assert producing.wait(GENEROUS_S) == ExitCode.PIPE_CLOSED
        assert producing.stderr is not None
        assert b"output closed" in producing.stderr.read()


def test_closed_inputs_and_outputs(magnetar_of: CommandLine, topic: str) -> None:
    for redirection, arguments, code in (
        ("<&-", ("produce", topic), ExitCode.FAILED),
        (">&-", ("produce", topic, "x"), ExitCode.DONE),
        (">&-", ("tail", topic, "-n", "1", "--no-follow"), ExitCode.PIPE_CLOSED),
    ):
        command = f'exec "$@" {redirection}'
        with magnetar_of.process(*arguments, shell_around=command) as process:
            stderr = ended(process, code)[1]
        assert "Traceback" not in stderr
        assert ("standard input is closed" in stderr) is (code is ExitCode.FAILED)


def test_tail_shows_the_last_ones_and_follows(magnetar_of: CommandLine, topic: str) -> None:
    magnetar_of.output_of("topics", "create", topic, "--partitions", "2")
    magnetar_of.output_of(
        "produce", topic, "--in", "lines", "--batch-messages", "7", given=b"".join(b"%d\n" % n for n in range(100))
    )
    for count in (1, 5, 30, 1000):
        lines = magnetar_of.json_of("tail", topic, "-n", str(count), "--no-follow")
        assert len(lines) == min(count, 100)
        assert {one["value"] for one in lines} <= {str(number) for number in range(100)}
        assert [one["publish_time"] for one in lines] == sorted(one["publish_time"] for one in lines)
    other = f"{topic}-other"
    magnetar_of.output_of("produce", other, "last")
    with magnetar_of.process("tail", topic, other, "-n", "1", "-c", "3", "--json") as following:
        assert json.loads(lines_of(following, 1)[0])["value"] == "last"
        magnetar_of.output_of("produce", topic, "next")
        assert json.loads(lines_of(following, 1)[0])["value"] == "next"
        magnetar_of.output_of("produce", other, "and next")
        assert json.loads(ended(following, ExitCode.DONE)[0])["value"] == "and next"
    first, second = magnetar_of.json_of("topics", "peek", other)
    assert magnetar_of.json_of("tail", other, "--from", second["message_id"], "--no-follow") == [second]
    assert magnetar_of.json_of("tail", other, "--from", first["publish_time"], "--no-follow") == [first, second]
    missing = magnetar_of.run("tail", "there-is-none")
    assert missing.exit_code == ExitCode.FAILED
    assert "there is no topic" in missing.stderr
    assert not [one for one in magnetar_of.json_of("topics", "list") if "there-is-none" in one["topic"]]


def test_refused_input_is_reported_with_reason(magnetar_of: CommandLine, topic: str) -> None:
    lines = ['{"value": "good"}', '{"value": "also good"}', '{"valve": 1}', '{"value": "never"}']
    wrong = magnetar_of.run("produce", topic, "--json", given="\n".join(lines).encode())
    assert wrong.exit_code == ExitCode.FAILED
    assert "message 3: '{\"valve\": 1}' has the unknown field 'valve'" in wrong.stderr
    assert json.loads(wrong.stdout)["receipts"] == 2
    assert values(magnetar_of, topic) == ["good", "also good"]
    large = magnetar_of.run("produce", topic, "--in", "whole", given=b"x" * 6_000_000)
    assert large.exit_code == ExitCode.FAILED
    assert "the largest allowed has" in large.stderr
    for arguments, code, why in (
        (("produce", "a/b", "x"), ExitCode.USAGE, "persistent://tenant/namespace/topic"),
        (("produce", topic, "x", "--url", "pulsar://localhost"), ExitCode.USAGE, "magnetar://"),
        (("produce", topic, "x", "-p", "no"), ExitCode.USAGE, "NAME=VALUE"),
        (("tail", topic, "--from", "someday"), ExitCode.USAGE, "2026-01-31T12:00:00"),
        (("tail", topic, "--json", "--hex"), ExitCode.USAGE, "exclude each other"),
        (("consume", topic, "-s", "s", "--type", "fanout"), ExitCode.USAGE, "not one of"),
        (("subscriptions", "stats", topic, "nobody"), ExitCode.FAILED, "no subscription 'nobody'"),
        (("topics", "delete", topic), ExitCode.USAGE, "use --yes"),
    ):
        refused = magnetar_of.run(*arguments)
        assert (refused.exit_code, why in refused.stderr) == (code, True), (arguments, refused)


def test_perf_measures(magnetar_of: CommandLine, topic: str) -> None:
    sent = magnetar_of.json_of("perf", "produce", topic, "-m", "5000", "-s", "10", "-n", "3", "--partitions", "2")[-1]
    assert (sent["total"], sent["messages"], sent["failed"]) == (True, 5000, 0)
    latencies = list(sent["latency_ms"].values())
    assert latencies == sorted(latencies)
    assert latencies[0] > 0
    got = magnetar_of.json_of("perf", "consume", topic, "--start", "earliest", "-m", "5000")[-1]
    assert got["messages"] == 5000
    assert magnetar_of.json_of("subscriptions", "stats", topic, "perf")[0]["backlog_messages"] == 0
    few = magnetar_of.run("perf", "consume", topic, "-m", "1", "-t", "0.1")
    assert few.exit_code == ExitCode.TOO_FEW
    paced = magnetar_of.json_of("perf", "produce", topic, "-r", "200", "-m", "100", "--size", "0")[-1]
    assert paced["messages"] == 100
    assert paced["seconds"] >= 0.49


def test_topics_complete(server: StandaloneProcess, magnetar_of: CommandLine, topic: str) -> None:
    def offered(words: str, **more: str) -> list[str]:
        """As bash asks: the last word is the one that is being typed."""
        completion = {"_MAGNETAR_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        return CommandLine(server.service_url, {**completion, **more}).output_of().split()

    magnetar_of.output_of("topics", "create", f"{topic}-parted", "--partitions", "2")
    magnetar_of.output_of("subscriptions", "create", f"{topic}-parted", "billing")
    assert offered("magnetar sub") == ["subscriptions"]
    assert offered("magnetar topics trun") == ["truncate"]
    assert offered(f"magnetar topics stats {topic}-p") == [f"{topic}-parted"]
    assert offered(f"magnetar tail persistent://public/default/{topic}-p") == [
        f"persistent://public/default/{topic}-parted"
    ]
    assert offered(f"magnetar subscriptions delete {topic}-parted b") == ["billing"]
    assert offered("magnetar tail t", MAGNETAR_URL="magnetar://127.0.0.1:1") == []


def test_produce_resumes_or_reports_unknown_after_broker_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages with a receipt before the kill are there, those sent in between wait; without a receipt they are
    unknown.
    """
    with StandaloneProcess(tmp_path / "data") as server:
        line = CommandLine(server.service_url)
        line.output_of("topics", "create", "t")
        line.output_of("subscriptions", "create", "t", "keeps it")
        with line.process("produce", "t", "--ids", "--json", "--in", "lines", "--batch-messages", "1") as through:
            assert through.stdin is not None
            through.stdin.write(b"before\n")
            through.stdin.flush()
            lines_of(through, 1)
            server.kill()
            through.stdin.write(b"in between\n")
            through.stdin.flush()
            server.start()
            lines = [json.loads(one) for one in ended(through, ExitCode.DONE)[0].splitlines()]
        assert lines[-1]["receipts"] == 2
        assert list(dict.fromkeys(values(line, "t"))) == ["before", "in between"]
        with line.process("produce", "t", "--ids", "--json", "--in", "lines", "--send-timeout-s", "1") as lost:
            assert lost.stdin is not None
            lost.stdin.write(b"known\n")
            lost.stdin.flush()
            lines_of(lost, 1)
            server.kill()
            lost.stdin.write(b"unknown\n")
            lost.stdin.flush()
            # Its input goes on: it ends because what was sent has no receipt.
            assert lost.wait(GENEROUS_S) == ExitCode.UNKNOWN
            assert lost.stdout is not None
            lines = [json.loads(one) for one in lost.stdout.read().splitlines()]
        assert (lines[-1]["receipts"], lines[-1]["unknown"]) == (1, 1)
        monkeypatch.setattr(service, "OPERATION_TIMEOUT_S", 0.5)
        server.start()
        with line.process("produce", "t", "--ids", "--in", "lines", "--send-timeout-s", "0") as impatient:
            assert impatient.stdin is not None
            assert impatient.stderr is not None
            impatient.stdin.write(b"known\n")
            impatient.stdin.flush()
            lines_of(impatient, 1)
            server.kill()
            for line_of_input in (b"unknown\n", b"read after that is sent\n"):
                impatient.stdin.write(line_of_input)
                impatient.stdin.flush()
                wait_until_read(impatient)
            impatient.send_signal(signal.SIGINT)
            while b"Ctrl-C again" not in impatient.stderr.readline():
                pass
            impatient.send_signal(signal.SIGINT)
            assert re.search("; [12] more are in doubt", ended(impatient, ExitCode.UNKNOWN)[1])
        for arguments in (("produce", "t", "x"), ("topics", "list")):
            away = line.run(*arguments)
            assert away.exit_code == ExitCode.UNREACHABLE
            assert "magnetar standalone" in away.stderr
