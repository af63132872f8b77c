"""Declarations of all settings, and `--options` of `magnetar standalone`, `magnetar broker` and `magnetar bookie`."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, Literal, get_origin

import pytest
import typer
from typer.testing import CliRunner

from magnetar_bookie.settings.process import BookieSettings
from magnetar_broker.settings.process import BrokerSettings
from magnetar_cli import bookie, broker
from magnetar_cli.cluster.daemon_parts import BookiePart
from magnetar_cli.cluster.daemon_settings import BROKERS, check_daemon_settings, parse_settings
from magnetar_cli.cluster.errors import ClusterError
from magnetar_cli.cluster.state import BookieState, ClusterState, ZooKeeperState
from magnetar_cli.settings_page import PROCESSES
from magnetar_cli.standalone.command import app as standalone
from magnetar_cli.standalone.settings import StandaloneSettings
from magnetar_wire.configuration import Configuration, InvalidConfiguration, load
from magnetar_wire.process.settings import LogSettings
from magnetar_wire.settings import REQUIRED, Subject, former_names, settings_of, unit_of
from tests.command_line import CommandLine

_METADATA = 'metadata = "zookeeper://h"\n'
# Spellings of units that only names of Pulsar's have.
_OTHER_SPELLINGS = re.compile(r"_(s|sec|secs|min|mins|hours|h|millis|in_mb|mib|kb|kib|gb|size)$")


@pytest.mark.parametrize("kind", PROCESSES.values(), ids=PROCESSES)
def test_every_setting_is_declared_fully(kind: type[Configuration]) -> None:
    """CHK-66, CHK-68: a description of its own, a subject, a unit in one spelling, and bounds."""
    declared = settings_of(kind)
    for name, one in declared.items():
        annotation = kind.model_fields[name].annotation
        assert re.fullmatch(r"[A-Z].*[^ .]\.", one.description), name
        assert not re.search(r"\b_?[A-Z]+_[A-Z_]+", one.description), f"{name}: a constant of the source"
        assert isinstance(one.subject, Subject), name
        if annotation in (int, float):
            assert unit_of(name, one), f"{name} has no unit: end its name in one, or give it `unit`"
            assert one.bounds.keys() & {"ge", "gt"}, f"{name} has no lower bound"
            assert one.named_by or not _OTHER_SPELLINGS.search(name), name
        else:
            assert annotation in (bool, str, Path) or get_origin(annotation) in (tuple, Literal), name
            assert not unit_of(name, one), name
        if get_origin(annotation) is tuple:
            assert "max_length" in one.bounds, f"{name} has no maximum length"
            assert ":" in one.description, f"{name}: no format"
    texts = Counter(one.description for one in declared.values())
    assert [text for text, times in texts.items() if times > 1] == []


def test_the_same_name_is_the_same_setting_in_every_process() -> None:
    """Only its default may differ, for a stated reason."""
    seen: dict[str, Any] = {}
    for kind in PROCESSES.values():
        for name, one in settings_of(kind).items():
            if name not in seen:
                seen[name] = (one, kind.model_fields[name].annotation)
                continue
            other, annotation = seen[name]
            assert kind.model_fields[name].annotation == annotation, name
            assert (one.description, one.subject, one.unit, dict(one.bounds)) == (
                other.description,
                other.subject,
                other.unit,
                dict(other.bounds),
            ), name
            if one.default != other.default:
                assert one.default_because or other.default_because, name


@pytest.mark.parametrize("kind", PROCESSES.values(), ids=PROCESSES)
def test_a_part_has_the_same_setting_as_its_process(kind: type[Configuration]) -> None:
    """Two parts with a setting of one name and different defaults would change each other's."""
    process = settings_of(kind)
    for part in kind.__mro__[1:]:
        if not issubclass(part, Configuration) or part is Configuration:
            continue
        for name, one in settings_of(part).items():
            assert process[name].description == one.description, f"{name} of {part.__name__}"
            if process[name].default != one.default:
                assert process[name].default_because, f"{name} of {part.__name__}"


@pytest.mark.parametrize("kind", PROCESSES.values(), ids=PROCESSES)
def test_former_names_are_not_in_use(kind: type[Configuration]) -> None:
    former = former_names(kind)
    assert "close_timeout_s" in former
    assert not former.keys() & kind.model_fields.keys()
    assert len(former) == sum(1 for one in settings_of(kind).values() if one.formerly)


@pytest.mark.parametrize("kind", PROCESSES.values(), ids=PROCESSES)
def test_fifteen_settings_are_worth_changing(kind: type[Configuration]) -> None:
    assert len(set(kind.worth_changing)) == len(kind.worth_changing) == 15
    assert set(kind.worth_changing) <= kind.model_fields.keys()
    required = {name for name, one in settings_of(kind).items() if one.default is REQUIRED}
    assert required <= set(kind.worth_changing)


@pytest.mark.parametrize(
    ("app", "kind", "needed"),
    [
        (standalone, StandaloneSettings, ""),
        (broker.app, BrokerSettings, f'broker_id = "b"\n{_METADATA}'),
        (bookie.app, BookieSettings, f'bookie_id = "b"\ndata_folder = "/d"\n{_METADATA}'),
    ],
    ids=["standalone", "broker", "bookie"],
)
def test_the_list_is_a_file_for_config(
    app: typer.Typer, kind: type[Configuration], needed: str, tmp_path: Path
) -> None:
    listed = CliRunner().invoke(app, ["--options"])
    assert listed.exit_code == 0, listed.output
    lines = listed.stdout.splitlines()
    assert max(map(len, lines)) <= 120
    assert all(len(line) <= 80 for line in lines if line.startswith("# "))
    found = [match for line in lines if (match := re.fullmatch(r"(# )?([a-z0-9_]+) =(?: \S.*)?", line))]
    names = [match[2] for match in found]
    assert names[:15] == list(kind.worth_changing)
    assert sorted(names) == sorted(kind.model_fields), "each once"
    # Required settings are commented out, to be filled in.
    assert {match[2] for match in found if match[1]} == {line.partition(" ")[0] for line in needed.splitlines()}
    headings = [line.split("----")[1].strip() for line in lines if line.startswith("# ----")]
    subjects = [subject.value for subject in Subject]
    assert headings[0] == "The 15 settings worth changing first"
    assert headings[1:] == [subject for subject in subjects if subject in headings[1:]]
    file = tmp_path / "all.toml"
    file.write_text(needed + listed.stdout)
    given = tomllib.loads(needed)
    loaded = load(kind, file=file)
    assert {name: getattr(loaded, name) for name in kind.model_fields} == dict(kind.model_validate(given))


def test_a_setting_is_listed_below_its_description_bounds_and_unit() -> None:
    listed = CliRunner().invoke(standalone, ["--options"]).stdout
    port = (
        "# Port of a standalone for Magnetar's clients. 0: any free port.\n# (port, from 0 to 65535)\ngrpc_port = 6652"
    )
    assert f"\n{port}\n" in listed
    assert "# (MiB, at least 0; Pulsar's name)\nmanaged_ledger_cache_size_mb = 64\n" in listed


@pytest.mark.parametrize("level", ["debug", "Debug", "DEBUG"])
def test_the_log_level_is_accepted_in_any_case(level: str) -> None:
    for loaded in (
        load(LogSettings, flags=[f"log_level={level}"]),
        load(LogSettings, environment={"MAGNETAR_LOG_LEVEL": level}),
    ):
        assert loaded.log_level == "DEBUG"
    with pytest.raises(InvalidConfiguration, match="'loud' is none of DEBUG, INFO, "):
        load(LogSettings, flags=["log_level=loud"])


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
    """Otherwise clients would get the address without a port, and could not connect."""
    settings = [part for one in (*needed, f"{setting}=foo") for part in ("--set", one)]
    ended = CommandLine("").run(*words, *settings, given=b"")
    assert ended.exit_code == 78
    assert f"command line: {setting} = 'foo': it has no port" in ended.stderr
    assert "Value error" not in ended.stderr
    kind = StandaloneSettings if words[0] == "standalone" else BrokerSettings
    for good in ("foo:0", "foo.example:6652", "[::1]:6652"):
        assert getattr(load(kind, flags=[*needed, f"{setting}={good}"]), setting) == good


def test_a_wrong_setting_of_a_local_cluster_is_one_line() -> None:
    with pytest.raises(ClusterError) as raised:
        check_daemon_settings(BROKERS, {"pulsar_advertised_address": "foo", "garbage_interval_seconds": 1})
    assert re.fullmatch(
        r"invalid settings of a broker: there is no setting 'garbage_interval_seconds'.*; "
        r"pulsar_advertised_address = 'foo': it has no port: use host:port.*",
        str(raised.value),
    )


def test_a_local_cluster_that_an_earlier_version_stored_has_the_present_names(tmp_path: Path) -> None:
    """Nobody could change the stored names otherwise: `cluster set` refuses them."""
    bookies = {"b": BookieState(port=1, http_port=2)}
    state = ClusterState(ZooKeeperState(outside="h:1"), settings={"garbage_interval_s": 1.0}, bookies=bookies)
    state.bookies["b"].settings = {"room_disk_bytes": 1 << 20}
    part = BookiePart(tmp_path, "b", state.bookies["b"])
    part.configure(state)
    loaded = load(BookieSettings, file=part.settings_file)
    assert (loaded.garbage_interval_seconds, loaded.resume_disk_bytes) == (1.0, 1 << 20)


def test_a_former_name_is_refused_for_a_local_cluster() -> None:
    with pytest.raises(ClusterError, match="close_timeout_s was renamed: use close_timeout_seconds"):
        parse_settings(BROKERS, ["close_timeout_s=1"])
    with pytest.raises(ClusterError, match="close_timeout_s was renamed: use close_timeout_seconds"):
        check_daemon_settings(BROKERS, {"close_timeout_s": 1})
