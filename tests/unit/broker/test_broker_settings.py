"""Settings of a broker's process, and values that are refused before it starts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_broker.settings.bounds import with_lag_bound
from magnetar_broker.settings.process import BrokerSettings
from magnetar_wire.configuration import InvalidConfiguration, load, select_settings
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES
from magnetar_wire.limits import MAX_BROKER_METADATA_BYTES, MAX_FRAME_BYTES, MAX_FRAME_ENTRIES
from magnetar_wire.process.advertised_listeners import parse_advertised_listeners

LEAST = {"broker_id": "b1", "metadata": "zookeeper://127.0.0.1:2181"}


def settings(**changed: Any) -> BrokerSettings:
    return BrokerSettings.model_validate({**LEAST, **changed})


def test_flags_and_a_file_give_the_same_settings(tmp_path: Path) -> None:
    flags = [f"{name}={value}" for name, value in LEAST.items()]
    listeners = "internal:magnetar://10.0.0.1:0,external:magnetar://example.org:7000"
    by_flag = load(
        BrokerSettings,
        flags=[*flags, "listen_addresses=127.0.0.1:0, [::1]:7", f"advertised_listeners={listeners}"],
    )
    file = tmp_path / "broker.toml"
    file.write_text(
        'broker_id = "b1"\nmetadata = "zookeeper://127.0.0.1:2181"\n'
        f'listen_addresses = ["127.0.0.1:0", "[::1]:7"]\nadvertised_listeners = "{listeners}"\n'
    )
    assert load(BrokerSettings, file=file) == by_flag
    assert by_flag.listen_addresses == ("127.0.0.1:0", "[::1]:7")
    assert by_flag.advertised == (("internal", "10.0.0.1:0"), ("external", "example.org:7000"))


def test_internal_listener_is_the_first_advertised() -> None:
    """OWN-1: the listener that other brokers use is the one that is named, or the first."""
    both = ("out:magnetar://o:1", "in:magnetar://i:2")
    assert settings(advertised_listeners=both).advertised == (("out", "o:1"), ("in", "i:2"))
    chosen = settings(advertised_listeners=both, internal_listener_name="in")
    assert chosen.advertised == (("in", "i:2"), ("out", "o:1"))
    assert settings(advertised_address="h:0").advertised == (("internal", "h:0"),)
    assert settings().advertised == ()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"broker_id": ""}, "broker_id"),
        ({"broker_id": "a/b"}, "broker_id"),
        ({"broker_id": "x" * 101}, "broker_id"),
        ({"metadata": "embedded:///folder"}, "standalone"),
        ({"metadata": "zookeeper://"}, "has no server"),
        ({"listen_addresses": []}, "listen_addresses"),
        ({"listen_addresses": ["127.0.0.1"]}, "host:port"),
        ({"listen_addresses": ["127.0.0.1:65536"]}, "host:port"),
        ({"listen_addresses": ["0.0.0.0:6652"]}, "set advertised_address"),
        ({"advertised_address": "nowhere"}, "host:port"),
        ({"advertised_address": "0.0.0.0:1"}, "set advertised_address"),
        ({"http_address": "x"}, "host:port"),
        ({"internal_listener_name": "x"}, "advertised_listeners is empty"),
        ({"advertised_address": "h:1", "advertised_listeners": "a:magnetar://h:1"}, "set only one of them"),
        ({"advertised_listeners": "a:magnetar://h:1,a:magnetar://h:2"}, "the listener 'a' twice"),
        ({"advertised_listeners": "a:magnetar://h:1", "internal_listener_name": "b"}, "use one of a"),
        ({"advertised_listeners": "a:kafka://h:1"}, "name:magnetar://host:port"),
        ({"advertised_listeners": "a:pulsar://h:1"}, "has no magnetar://"),
        ({"advertised_listeners": "a:magnetar://h:1,a:pulsar://h"}, "host:port"),
        ({"advertised_listeners": "a:magnetar://h:1,a:pulsar://h:2,a:pulsar://h:3"}, "'a' twice for pulsar"),
        ({"advertised_listeners": "a:magnetar://h:1,b:pulsar://0.0.0.0:3"}, "can't be advertised"),
        ({"advertised_listeners": "a:magnetar://h:1,b:pulsar://h:2", "internal_listener_name": "b"}, "use one of a"),
        ({"advertised_listeners": "a:magnetar://h:1,b:pulsar://h:2", "pulsar_listen_addresses": []}, "is empty"),
        ({"pulsar_listen_addresses": ["127.0.0.1"]}, "host:port"),
        ({"pulsar_listen_addresses": ["0.0.0.0:6650"]}, "set pulsar_advertised_address"),
        ({"pulsar_listen_addresses": [], "pulsar_advertised_address": "h:1"}, "pulsar_listen_addresses is empty"),
        ({"pulsar_advertised_address": "nowhere"}, "host:port"),
        ({"pulsar_advertised_address": "[::]:1"}, "set pulsar_advertised_address"),
        (
            {"pulsar_advertised_address": "h:1", "advertised_listeners": "a:magnetar://h:1,a:pulsar://h:2"},
            "pulsar_advertised_address and a pulsar:// address of listener 'a'",
        ),
        ({"bind_addresses": "a:pulsar://h:1"}, "'a', .* has only internal for pulsar:"),
        (
            {"bind_addresses": "b:pulsar://h:1", "advertised_listeners": "a:magnetar://h:1,b:magnetar://h:2"},
            "has only a for pulsar:",
        ),
        ({"advertised_listeners": "magnetar://h:1"}, "name:magnetar://host:port"),
        ({"advertised_listeners": "a:magnetar://h"}, "host:port"),
        ({"advertised_listeners": "a:magnetar://[::]:7"}, "can't be advertised"),
        ({"advertised_listeners": "a" * 65 + ":magnetar://h:1"}, "name:magnetar://host:port"),
        ({"bind_addresses": "external:magnetar://h:1"}, "advertised_listeners has none"),
        ({"bind_addresses": "c:magnetar://h:1", "advertised_listeners": "a:magnetar://h:1"}, "'c', .* has only a"),
        ({"bind_addresses": "h:1", "advertised_listeners": "a:magnetar://h:1"}, "bind_addresses has 'h:1'"),
        ({"bind_addresses": "a:magnetar://h", "advertised_listeners": "a:magnetar://h:1"}, "host:port"),
        ({"close_timeout_seconds": 0}, "close_timeout_seconds"),
    ],
)
def test_contradictory_or_malformed_settings_are_refused(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        settings(**changed)


def test_a_broker_listens_at_all_addresses_if_another_is_advertised() -> None:
    assert settings(listen_addresses=["0.0.0.0:0"], advertised_address="h:0").advertised == (("internal", "h:0"),)


def test_bind_addresses_have_the_names_of_listeners() -> None:
    bound = settings(
        listen_addresses="0.0.0.0:0",
        advertised_listeners="in:magnetar://i:1,out:magnetar://o:2",
        bind_addresses="out:magnetar://0.0.0.0:7, out:magnetar://[::]:8",
    )
    assert bound.bound == (("out", "0.0.0.0:7"), ("out", "[::]:8"))
    assert settings().bound == ()
    assert settings().pulsar_bound == ()


def test_clients_of_pulsars_protocol_have_addresses_of_their_own() -> None:
    """WIRE-1, OWN-1: by the names of the same listeners. Addresses that are not set follow from the others."""
    assert settings().pulsar_listen_addresses == ("127.0.0.1:6650",)
    assert settings().pulsar_advertised == (("internal", ""),), "the address that it listens at"
    anywhere: dict[str, Any] = {"listen_addresses": "0.0.0.0:6652", "pulsar_listen_addresses": "0.0.0.0:6650,[::]:7"}
    assert settings(**anywhere, advertised_address="h:6652").pulsar_advertised == (("internal", "h:0"),)
    chosen = settings(**anywhere, advertised_address="h:6652", pulsar_advertised_address="p:1")
    assert chosen.pulsar_advertised == (("internal", "p:1"),)
    both = "in:magnetar://i:1,out:magnetar://o:2,out:pulsar://o:3,wide:pulsar://w:4"
    chosen = settings(**anywhere, advertised_listeners=both, bind_addresses="out:pulsar://0.0.0.0:8,out:magnetar://h:9")
    assert chosen.advertised == (("in", "i:1"), ("out", "o:2"))
    assert chosen.pulsar_advertised == (("in", "i:0"), ("out", "o:3"), ("wide", "w:4"))
    assert (chosen.bound, chosen.pulsar_bound) == ((("out", "h:9"),), (("out", "0.0.0.0:8"),))
    chosen = settings(**anywhere, advertised_listeners=f"{both},in:pulsar://i:5", internal_listener_name="in")
    assert chosen.pulsar_advertised[0] == ("in", "i:5")


def test_listening_for_clients_of_pulsars_protocol_is_optional() -> None:
    """Or only at a named listener."""
    assert settings(pulsar_listen_addresses="").pulsar_advertised == ()
    outside = settings(
        pulsar_listen_addresses="",
        advertised_listeners="in:magnetar://i:1,out:pulsar://o:2",
        bind_addresses="out:pulsar://0.0.0.0:0",
    )
    assert (outside.pulsar_advertised, outside.pulsar_bound) == ((("out", "o:2"),), (("out", "0.0.0.0:0"),))


def test_an_error_names_the_setting() -> None:
    with pytest.raises(InvalidConfiguration, match=r"did you mean 'broker_id'"):
        load(BrokerSettings, flags=["brokr_id=b1"])
    with pytest.raises(InvalidConfiguration, match=r"advertised_listeners has 'x'"):
        load(BrokerSettings, flags=["broker_id=b", "metadata=zookeeper://h", "advertised_listeners=x"])


def test_listeners_are_bounded() -> None:
    many = [f"l{number}:magnetar://h:1" for number in range(17)]
    assert len(parse_advertised_listeners(many)) == 17
    with pytest.raises(ValidationError, match="at most 16"):
        settings(advertised_listeners=many)


def test_a_lag_bound_below_the_publish_buffer_is_refused() -> None:
    """CHK-66: the error names both settings, both values, and what to do."""
    with pytest.raises(ValidationError) as refused:
        settings(max_bookie_lag_bytes=2**20 - 1, max_message_publish_buffer_size_in_mb=1)
    for part in (
        "max_bookie_lag_bytes",
        "1048575",
        "max_message_publish_buffer_size_in_mb",
        "is 1 (1048576",
        "or lower",
    ):
        assert part in str(refused.value)
    assert settings(max_bookie_lag_bytes=2**20, max_message_publish_buffer_size_in_mb=1).lag_bound_bytes == 2**20


def test_more_leases_of_a_namespace_than_of_a_topic_are_refused() -> None:
    """SPK-5: a topic is made with all leases of its namespace. The error names both settings, and what to do."""
    with pytest.raises(ValidationError) as refused:
        settings(max_leases_per_namespace=3, managed_ledger_max_leases_per_topic=2)
    for part in (
        "max_leases_per_namespace is 3",
        "managed_ledger_max_leases_per_topic, which is 2",
        "lower max_leases_per_namespace",
        "raise managed_ledger_max_leases_per_topic",
        "a new topic gets all leases",
    ):
        assert part in str(refused.value)
    assert settings(max_leases_per_namespace=2, managed_ledger_max_leases_per_topic=2).max_leases_per_namespace == 2


def test_a_lag_bound_of_zero_is_twice_the_publish_buffer() -> None:
    """CHK-66: in a broker. In other processes it is four times max_pending_bytes."""
    options = settings(max_message_publish_buffer_size_in_mb=3)
    assert with_lag_bound(select_settings(LedgerClientSettings, options), options).lag_bound_bytes == 6 * 2**20
    own = LedgerClientSettings(max_bookie_lag_bytes=7)
    assert with_lag_bound(own, options) is own
    assert LedgerClientSettings(max_pending_bytes=100).lag_bound_bytes == 400


MIB = 1 << 20
# Capacity that the log needs beyond a topic's bound of 32 MiB: a frame, and the broker's part of each entry.
BEYOND = MAX_FRAME_BYTES + MAX_FRAME_ENTRIES * ENTRY_OVERHEAD_BYTES
LEAST_LOG_BYTES = (32 * MIB + BEYOND) + (32 * MIB + BEYOND) // ENTRY_OVERHEAD_BYTES * MAX_BROKER_METADATA_BYTES


@pytest.mark.parametrize(
    ("topic_bytes", "log_bytes"),
    [(268_435_456, 67_108_864), (32 * MIB, MIB), (32 * MIB, LEAST_LOG_BYTES - 1)],
)
def test_a_log_that_refuses_before_its_topic_pauses_is_refused(topic_bytes: int, log_bytes: int) -> None:
    """CHK-66: the error names both settings, both values, and what to do."""
    with pytest.raises(ValidationError) as refused:
        settings(max_pending_publish_bytes_per_topic=topic_bytes, managed_ledger_max_pending_bytes=log_bytes)
    for part in (
        f"managed_ledger_max_pending_bytes is {log_bytes},",
        "max_pending_publish_bytes_per_topic",
        f"which is {topic_bytes}:",
        "Set managed_ledger_max_pending_bytes to at least",
        "or lower max_pending_publish_bytes_per_topic",
    ):
        assert part in str(refused.value)


def test_the_least_capacity_of_a_log_is_accepted() -> None:
    """CHK-66: so are the defaults, and the value that the error suggests."""
    assert settings(managed_ledger_max_pending_bytes=LEAST_LOG_BYTES)
    with pytest.raises(ValidationError) as refused:
        settings(max_pending_publish_bytes_per_topic=268_435_456)
    [least] = re.findall(r"to at least (\d+)", str(refused.value))
    assert settings(max_pending_publish_bytes_per_topic=268_435_456, managed_ledger_max_pending_bytes=int(least))


def test_a_slow_opening_is_shorter_than_one_that_times_out() -> None:
    """CHK-66: the error names both settings, both values, and what to do."""
    expected = (
        r"slow_topic_load_seconds is 10, not below topic_load_timeout_seconds, which is 10: .*"
        r"Lower slow_topic_load_seconds or raise topic_load_timeout_seconds"
    )
    with pytest.raises(ValidationError, match=expected):
        settings(topic_load_timeout_seconds=10)
    assert settings(topic_load_timeout_seconds=10, slow_topic_load_seconds=9.5)
