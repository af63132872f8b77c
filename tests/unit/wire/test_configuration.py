from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field, SecretStr, model_validator

from magnetar_wire.configuration import Configuration, InvalidConfiguration, load


class Options(Configuration):
    max_message_size: int = Field(default=5_242_880, gt=0)
    ensemble_size: int = 3
    write_quorum: int = 3
    advertised_listeners: tuple[str, ...] = ()
    allow_auto_topic_creation: bool = True
    token: SecretStr = SecretStr("")
    tokens: list[SecretStr] | None = None
    role_limits: dict[str, int] = {}

    @model_validator(mode="after")
    def quorums_fit(self) -> Options:
        if self.ensemble_size < self.write_quorum:
            raise ValueError("ensemble_size is at least write_quorum")
        return self


def written(folder: Path, text: str) -> Path:
    file = folder / "broker.toml"
    file.write_text(text)
    return file


def test_defaults_hold_where_nothing_is_said() -> None:
    assert load(Options) == Options()


def test_a_flag_goes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "max_message_size = 1\nensemble_size = 4\nwrite_quorum = 1\n")
    environment = {"MAGNETAR_ENSEMBLE_SIZE": "5", "MAGNETAR_WRITE_QUORUM": "2", "HOME": "/"}
    options = load(Options, file=file, environment=environment, flags=["write_quorum = 3"])
    assert (options.max_message_size, options.ensemble_size, options.write_quorum) == (1, 5, 3)


def test_text_becomes_the_option_s_type() -> None:
    flags = ["advertised_listeners=internal:a:1, external:b:2", "allow_auto_topic_creation=false"]
    options = load(Options, flags=flags)
    assert options.advertised_listeners == ("internal:a:1", "external:b:2")
    assert options.allow_auto_topic_creation is False


@pytest.mark.parametrize("place", ["file", "environment", "flag"])
def test_an_unknown_name_is_an_error_that_names_the_nearest(place: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="no option 'max_mesage_size': did you mean 'max_message_size'"):
        if place == "file":
            load(Options, file=written(tmp_path, "max_mesage_size = 1"))
        elif place == "environment":
            load(Options, environment={"MAGNETAR_MAX_MESAGE_SIZE": "1"})
        else:
            load(Options, flags=["max_mesage_size=1"])


def test_all_that_is_wrong_is_told_at_once_with_its_place(tmp_path: Path) -> None:
    file = written(tmp_path, 'max_message_size = 0\nwrite_quorum = "many"')
    with pytest.raises(InvalidConfiguration) as raised:
        load(Options, file=file, flags=["ensemble=1"])
    told = str(raised.value)
    assert f"{file}: max_message_size = 0: Input should be greater than 0" in told
    assert f"{file}: write_quorum = 'many'" in told
    assert "flag ensemble: there is no option 'ensemble'" in told


def test_a_rule_between_options_is_checked_when_they_are_made() -> None:
    with pytest.raises(InvalidConfiguration, match="ensemble_size is at least write_quorum"):
        load(Options, flags=["ensemble_size=2"])


def test_an_error_of_a_rule_has_no_prefix_of_the_library() -> None:
    with pytest.raises(InvalidConfiguration, match=r"^\w+: ensemble_size is at least write_quorum$"):
        load(Options, flags=["write_quorum=9"])


def test_a_secret_is_never_told() -> None:
    with pytest.raises(InvalidConfiguration) as raised:
        load(Options, flags=["token=s3cret", "max_message_size=-1"])
    assert "s3cret" not in str(raised.value)
    assert "s3cret" not in repr(load(Options, flags=["token=s3cret"]))


def test_secrets_in_lists_are_not_told_either(tmp_path: Path) -> None:
    file = written(tmp_path, 'tokens = [1, "s3cret"]')
    with pytest.raises(InvalidConfiguration) as raised:
        load(Options, file=file, flags=["max_message_size=-1"])
    assert "tokens" in str(raised.value)
    assert "s3cret" not in str(raised.value)
    with pytest.raises(InvalidConfiguration) as raised:
        load(Options, flags=["token s3cret"])
    assert "s3cret" not in str(raised.value)


def test_lists_and_tables_come_from_flags_too() -> None:
    options = load(Options, flags=["tokens=a,b", 'role_limits={"reader": 3}'])
    assert options.tokens == [SecretStr("a"), SecretStr("b")]
    assert options.role_limits == {"reader": 3}
    with pytest.raises(InvalidConfiguration, match="role_limits"):
        load(Options, flags=["role_limits=reader:3"])


def test_true_is_no_number(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="max_message_size is true or false, and should be int"):
        load(Options, file=written(tmp_path, "max_message_size = true"))


def test_what_kubernetes_puts_into_the_environment_is_passed_over() -> None:
    environment = {
        "MAGNETAR_SERVICE_HOST": "10.0.0.1",
        "MAGNETAR_SERVICE_PORT_GRPC": "6652",
        "MAGNETAR_PORT": "tcp://10.0.0.1:6652",
        "MAGNETAR_PORT_6652_TCP_ADDR": "10.0.0.1",
        "MAGNETAR_BROKER_SERVICE_PORT": "6650",
    }
    assert load(Options, environment=environment) == Options()
    with pytest.raises(InvalidConfiguration, match="no option 'service_port'"):
        load(Options, flags=["service_port=1"])


def test_where_clients_find_the_service_is_nothing_to_a_server() -> None:
    environment = {"MAGNETAR_URL": "magnetar://localhost:6652", "MAGNETAR_LISTENER_NAME": "external"}
    assert load(Options, environment=environment) == Options()
    with pytest.raises(InvalidConfiguration, match="no option 'url'"):
        load(Options, flags=["url=magnetar://localhost:6652"])


def test_options_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Options().ensemble_size = 1


@pytest.mark.parametrize("text", ["no equals sign", "a = [", "\xff"])
def test_a_file_that_is_no_toml_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidConfiguration, match="it is no TOML"):
        load(Options, file=file)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="can't be read"):
        load(Options, file=tmp_path / "none.toml")


def test_a_flag_without_a_value_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="no name=value"):
        load(Options, flags=["ensemble_size"])
