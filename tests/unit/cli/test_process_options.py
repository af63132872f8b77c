"""`magnetar broker --options` and `magnetar bookie --options`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from magnetar_bookie.daemon.settings import BookieSettings
from magnetar_broker.daemon.settings import BrokerSettings
from magnetar_cli import bookie, broker
from magnetar_cli.cluster.daemon_settings import BROKERS, checked
from magnetar_cli.cluster.errors import ClusterError
from magnetar_cli.option_list import option_lines
from magnetar_cli.standalone.settings import StandaloneSettings
from magnetar_wire.configuration import Configuration, InvalidConfiguration, load
from magnetar_wire.process.logs import LogOptions
from tests.command_line import CommandLine

_METADATA = 'metadata = "zookeeper://h"\n'


@pytest.mark.parametrize(
    ("app", "kind", "needed"),
    [
        (broker.app, BrokerSettings, f'broker_id = "b"\n{_METADATA}'),
        (bookie.app, BookieSettings, f'bookie_id = "b"\ndata_folder = "/d"\n{_METADATA}'),
    ],
)
def test_what_is_listed_is_a_file_for_config(
    app: typer.Typer, kind: type[Configuration], needed: str, tmp_path: Path
) -> None:
    listed = CliRunner().invoke(app, ["--options"])
    assert listed.exit_code == 0, listed.output
    lines = listed.stdout.splitlines()
    for line in lines:
        assert re.fullmatch(r"(# )?[a-z0-9_]+ = .*  ?# \S.*", line), line
    names = [line.removeprefix("# ").partition(" ")[0] for line in lines]
    assert names == sorted(kind.model_fields)
    # Those that it needs are there to be filled in.
    assert {name for name, line in zip(names, lines, strict=True) if line.startswith("# ")} == {
        line.partition(" ")[0] for line in needed.splitlines()
    }
    file = tmp_path / "all.toml"
    file.write_text(needed + listed.stdout)
    given: dict[str, Any] = dict(line.replace('"', "").split(" = ") for line in needed.splitlines())
    assert load(kind, file=file) == kind.model_validate(given)


def test_each_bound_has_a_description_of_its_own() -> None:
    """CHK-66, CHK-68: a person who sets one reads its unit, and no constant of the source."""
    listed = CliRunner().invoke(broker.app, ["--options"])
    texts = {line.partition(" =")[0]: line.partition("  # ")[2] for line in listed.stdout.splitlines()}
    own = {
        "add_entry_timeout_s": "Seconds",
        "managed_ledger_cache_size_mb": "MiB",
        "managed_ledger_max_pending_bytes": "bytes",
        "max_bookie_lag_bytes": "bytes",
        "max_message_publish_buffer_size_in_mb": "MiB",
        "max_pending_bytes": "bytes",
        "max_pending_entries": "entries",
        "max_pending_publish_bytes_per_connection": "bytes",
        "max_pending_publish_bytes_per_topic": "bytes",
        "max_queued_bytes_per_stream": "bytes",
        "max_recovery_bytes": "bytes",
        "read_entry_timeout_s": "Seconds",
        "slow_topic_load_seconds": "Seconds",
        "topic_load_timeout_seconds": "Seconds",
    }
    for name, unit in own.items():
        assert unit in texts[name], name
        assert list(texts.values()).count(texts[name]) == 1, name
        assert not re.search(r"[A-Z]+_[A-Z]+", texts[name]), name


@pytest.mark.parametrize("kind", [StandaloneSettings, BrokerSettings, BookieSettings])
def test_no_two_settings_share_a_description(kind: type[Configuration]) -> None:
    names: dict[str, list[str]] = {}
    for line in option_lines(kind):
        names.setdefault(line.partition("  # ")[2], []).append(line.removeprefix("# ").partition(" ")[0])
    assert {text: shared for text, shared in names.items() if len(shared) > 1} == {}
    assert not [text for text in names if not re.fullmatch(r"[A-Z].*\.", text)]


@pytest.mark.parametrize("level", ["debug", "Debug", "DEBUG"])
def test_the_log_level_is_taken_in_any_case(level: str) -> None:
    for loaded in (
        load(LogOptions, flags=[f"log_level={level}"]),
        load(LogOptions, environment={"MAGNETAR_LOG_LEVEL": level}),
    ):
        assert loaded.log_level == "DEBUG"
    with pytest.raises(InvalidConfiguration, match="'loud': Input should be 'DEBUG', 'INFO', "):
        load(LogOptions, flags=["log_level=loud"])


@pytest.mark.parametrize("setting", ["advertised_address", "pulsar_advertised_address"])
@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (("standalone", "--ephemeral", "--grpc-port", "0", "--pulsar-port", "0", "--http-port", "0"), ()),
        (("broker",), ("broker_id=b", "metadata=zookeeper://127.0.0.1:1", "listen_addresses=127.0.0.1:0")),
    ],
    ids=["standalone", "broker"],
)
def test_an_advertised_address_without_a_port_is_refused(
    words: tuple[str, ...], needed: tuple[str, ...], setting: str
) -> None:
    """It was told to clients as it stood, and none could connect."""
    settings = [part for one in (*needed, f"{setting}=foo") for part in ("--set", one)]
    ended = CommandLine("").run(*words, *settings, given=b"")
    assert ended.exit_code == 78
    assert f"flag {setting}: {setting} = 'foo'" in ended.stderr
    assert f"{setting} = 'foo': it has no port" in ended.stderr
    assert "Value error" not in ended.stderr
    kind = StandaloneSettings if words[0] == "standalone" else BrokerSettings
    for good in ("foo:0", "foo.example:6652", "[::1]:6652"):
        assert getattr(load(kind, flags=[*needed, f"{setting}={good}"]), setting) == good


def test_a_wrong_setting_of_a_local_cluster_is_one_line() -> None:
    with pytest.raises(ClusterError) as raised:
        checked(BROKERS, {"pulsar_advertised_address": "foo", "garbage_interval_s": 1})
    assert re.fullmatch(
        r"invalid settings of a broker: pulsar_advertised_address: it has no port: use host:port.*; "
        r"garbage_interval_s: Extra inputs are not permitted",
        str(raised.value),
    )
