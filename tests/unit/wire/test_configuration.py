"""Loading settings from a file, the environment and the command line, and the errors."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from pydantic import SecretStr, model_validator

from magnetar_wire.configuration import Configuration, InvalidConfiguration, check_settings, load
from magnetar_wire.settings import REQUIRED, Subject, setting


class Sample(Configuration):
    max_message_size: int = setting(
        5_242_880, "Maximum size.", subject=Subject.PUBLISHING, unit="bytes", ge=1, le=10_000_000
    )
    ensemble_size: int = setting(3, "Bookies.", subject=Subject.REPLICATION, unit="bookies")
    write_quorum: int = setting(3, "Copies.", subject=Subject.REPLICATION, unit="copies")
    advertised_listeners: tuple[str, ...] = setting((), "Addresses.", subject=Subject.ADDRESSES)
    allow_auto_topic_creation: bool = setting(True, "Create topics.", subject=Subject.TOPICS)
    token: SecretStr = setting(SecretStr(""), "Token.", subject=Subject.ADMIN)
    tokens: list[SecretStr] | None = setting(None, "Tokens.", subject=Subject.ADMIN)
    role_limits: dict[str, int] = setting({}, "Limits.", subject=Subject.ADMIN)
    log_format: Literal["text", "json"] = setting("text", "Format.", subject=Subject.LOGS)
    close_timeout_seconds: float = setting(10.0, "Seconds.", subject=Subject.SHUTDOWN, gt=0, formerly="close_timeout_s")

    @model_validator(mode="after")
    def _check_quorums(self) -> Sample:
        if self.ensemble_size < self.write_quorum:
            raise ValueError("ensemble_size is at least write_quorum")
        return self


class Named(Configuration):
    broker_id: str = setting(REQUIRED, "Name.", subject=Subject.ADDRESSES)


def written(folder: Path, text: str) -> Path:
    file = folder / "broker.toml"
    file.write_text(text)
    return file


def test_without_values_the_defaults_apply() -> None:
    assert load(Sample) == Sample()


def test_the_command_line_overrides_the_environment_and_that_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "max_message_size = 1\nensemble_size = 4\nwrite_quorum = 1\n")
    environment = {"MAGNETAR_ENSEMBLE_SIZE": "5", "MAGNETAR_WRITE_QUORUM": "2", "HOME": "/"}
    settings = load(Sample, file=file, environment=environment, flags=["write_quorum = 3"])
    assert (settings.max_message_size, settings.ensemble_size, settings.write_quorum) == (1, 5, 3)


def test_text_is_converted_to_the_setting_s_type() -> None:
    flags = ["advertised_listeners=internal:a:1, external:b:2", "allow_auto_topic_creation=false"]
    settings = load(Sample, flags=flags)
    assert settings.advertised_listeners == ("internal:a:1", "external:b:2")
    assert settings.allow_auto_topic_creation is False


@pytest.mark.parametrize("source", ["file", "environment", "command line"])
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("max_mesage_size", "there is no setting 'max_mesage_size': did you mean 'max_message_size'?"),
        ("close_timeout_s", "close_timeout_s was renamed: use close_timeout_seconds"),
    ],
)
def test_an_unknown_name_is_refused_with_the_right_one(source: str, name: str, problem: str, tmp_path: Path) -> None:
    file = written(tmp_path, f"{name} = 1" if source == "file" else "")
    environment = {f"MAGNETAR_{name.upper()}": "1"} if source == "environment" else {}
    flags = [f"{name}=1"] if source == "command line" else []
    with pytest.raises(InvalidConfiguration) as raised:
        load(Sample, file=file, environment=environment, flags=flags)
    where = {"file": str(file), "environment": f"environment variable MAGNETAR_{name.upper()}"}
    assert str(raised.value) == f"{where.get(source, source)}: {problem}"


def test_a_program_s_settings_are_checked_in_the_same_way() -> None:
    assert check_settings(Sample, {"write_quorum": 2}).write_quorum == 2
    with pytest.raises(InvalidConfiguration) as raised:
        check_settings(Sample, {"close_timeout_s": 1, "max_message_size": 0, "x": 1})
    assert str(raised.value).splitlines() == [
        "close_timeout_s was renamed: use close_timeout_seconds",
        "there is no setting 'x'",
        "max_message_size = 0 is out of range: set a whole number from 1 to 10000000 (bytes)",
    ]


@pytest.mark.parametrize(
    ("flag", "problem"),
    [
        ("max_message_size=0", "= '0' is out of range: set a whole number from 1 to 10000000 (bytes)"),
        ("close_timeout_seconds=0", "= '0' is out of range: set a number above 0 (seconds)"),
        ("close_timeout_seconds=soon", "= 'soon' is not a number: set a number above 0 (seconds)"),
        ("ensemble_size=4.5", "= '4.5' is not a whole number: set a whole number (bookies)"),
        ("allow_auto_topic_creation=maybe", "= 'maybe' is neither true nor false: set one of them"),
        ("log_format=xml", "= 'xml' is none of text, json: set one of them"),
    ],
)
def test_an_error_has_the_value_the_bound_and_the_unit(flag: str, problem: str) -> None:
    with pytest.raises(InvalidConfiguration) as raised:
        load(Sample, flags=[flag])
    assert str(raised.value) == f"command line: {flag.partition('=')[0]} {problem}"


def test_a_required_setting_is_named_with_all_ways_to_set_it() -> None:
    with pytest.raises(InvalidConfiguration) as raised:
        load(Named)
    for way in ("broker_id is required", "--config", "--set broker_id=…", "MAGNETAR_BROKER_ID"):
        assert way in str(raised.value)


def test_all_errors_are_reported_together_with_their_sources(tmp_path: Path) -> None:
    file = written(tmp_path, 'max_message_size = 0\nwrite_quorum = "many"')
    with pytest.raises(InvalidConfiguration) as raised:
        load(Sample, file=file, flags=["ensemble=1"])
    text = str(raised.value)
    assert f"{file}: max_message_size = 0 is out of range" in text
    assert f"{file}: write_quorum = 'many' is not a whole number" in text
    assert "command line: there is no setting 'ensemble'" in text


def test_a_rule_between_settings_is_checked() -> None:
    """Without the prefix that pydantic puts before it."""
    with pytest.raises(InvalidConfiguration, match=r"^ensemble_size is at least write_quorum$"):
        load(Sample, flags=["ensemble_size=2"])


def test_a_secret_is_never_shown(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration) as raised:
        load(Sample, flags=["token=s3cret", "max_message_size=-1"])
    assert "s3cret" not in str(raised.value)
    assert "s3cret" not in repr(load(Sample, flags=["token=s3cret"]))
    file = written(tmp_path, 'tokens = [1, "s3cret"]')
    with pytest.raises(InvalidConfiguration) as raised:
        load(Sample, file=file, flags=["max_message_size=-1"])
    assert "tokens" in str(raised.value)
    assert "s3cret" not in str(raised.value)
    with pytest.raises(InvalidConfiguration) as raised:
        load(Sample, flags=["token s3cret"])
    assert "s3cret" not in str(raised.value)


def test_lists_and_tables_can_be_set_on_the_command_line() -> None:
    settings = load(Sample, flags=["tokens=a,b", 'role_limits={"reader": 3}'])
    assert settings.tokens == [SecretStr("a"), SecretStr("b")]
    assert settings.role_limits == {"reader": 3}
    with pytest.raises(InvalidConfiguration, match="role_limits"):
        load(Sample, flags=["role_limits=reader:3"])


def test_true_is_neither_a_number_nor_a_list(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="max_message_size = true is not a whole number: set a whole number"):
        load(Sample, file=written(tmp_path, "max_message_size = true"))
    with pytest.raises(InvalidConfiguration, match="advertised_listeners = true is neither text nor a list"):
        load(Sample, file=written(tmp_path, "advertised_listeners = true"))


def test_variables_that_kubernetes_sets_are_ignored() -> None:
    environment = {
        "MAGNETAR_SERVICE_HOST": "10.0.0.1",
        "MAGNETAR_SERVICE_PORT_GRPC": "6652",
        "MAGNETAR_PORT": "tcp://10.0.0.1:6652",
        "MAGNETAR_PORT_6652_TCP_ADDR": "10.0.0.1",
        "MAGNETAR_BROKER_SERVICE_PORT": "6650",
    }
    assert load(Sample, environment=environment) == Sample()
    with pytest.raises(InvalidConfiguration, match="no setting 'service_port'"):
        load(Sample, flags=["service_port=1"])


def test_variables_of_clients_are_ignored() -> None:
    environment = {"MAGNETAR_URL": "magnetar://localhost:6652", "MAGNETAR_LISTENER_NAME": "external"}
    assert load(Sample, environment=environment) == Sample()
    with pytest.raises(InvalidConfiguration, match="no setting 'url'"):
        load(Sample, flags=["url=magnetar://localhost:6652"])


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Sample().ensemble_size = 1


@pytest.mark.parametrize("text", ["no equals sign", "a = [", "\xff"])
def test_a_file_that_is_not_toml_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidConfiguration, match=r"is not TOML: .*: write one `name = value` per line"):
        load(Sample, file=file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="can't be read: No such file or directory: give another file"):
        load(Sample, file=tmp_path / "none.toml")


def test_a_flag_without_a_value_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="command line: 'ensemble_size' has no value: write name=value"):
        load(Sample, flags=["ensemble_size"])
