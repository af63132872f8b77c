"""Declarations of settings."""

from __future__ import annotations

import pytest

from magnetar_wire.configuration import Configuration, load
from magnetar_wire.settings import (
    Setting,
    Subject,
    amount_text,
    bounds_text,
    change_default,
    check_order,
    former_names,
    setting,
    settings_of,
    unit_of,
)


class Part(Configuration):
    close_timeout_seconds: float = setting(
        10.0, "Seconds.", subject=Subject.SHUTDOWN, gt=0, le=60, formerly="close_timeout_s"
    )


class Process(Part):
    close_timeout_seconds: float = change_default(Part, "close_timeout_seconds", 2.0, because="it is a test")


class Ordered(Configuration):
    a: int = setting(1, "Count.", subject=Subject.TOPICS, unit="topics")
    b: int = setting(2, "Count.", subject=Subject.TOPICS, unit="topics")


def test_overriding_a_default_preserves_other_attributes() -> None:
    inherited, own = settings_of(Part)["close_timeout_seconds"], settings_of(Process)["close_timeout_seconds"]
    assert (load(Part).close_timeout_seconds, load(Process).close_timeout_seconds) == (10.0, 2.0)
    assert own.default_because == "it is a test"
    assert (own.description, own.subject, own.bounds, own.formerly) == (
        inherited.description,
        inherited.subject,
        inherited.bounds,
        inherited.formerly,
    )
    assert former_names(Process) == {"close_timeout_s": "close_timeout_seconds"}
    with pytest.raises(ValueError, match="less than or equal to 60"):
        Process(close_timeout_seconds=61)


@pytest.mark.parametrize(
    ("name", "declared", "unit"),
    [
        ("close_timeout_seconds", Setting(1, "", Subject.SHUTDOWN), "seconds"),
        ("grpc_keepalive_time_ms", Setting(1, "", Subject.GRPC), "milliseconds"),
        ("max_rollover_time_minutes", Setting(1, "", Subject.RETENTION), "minutes"),
        ("max_read_bytes", Setting(1, "", Subject.BOOKIE), "bytes"),
        ("max_pending_bytes_per_topic", Setting(1, "", Subject.PUBLISHING), "bytes"),
        ("max_bytes_per_second", Setting(1, "", Subject.STORAGE), "bytes per second"),
        ("cache_size_mb", Setting(1, "", Subject.READING), "MiB"),
        ("max_consumers", Setting(1, "", Subject.DELIVERY, unit="consumers"), "consumers"),
        ("timeout_millis", Setting(1, "", Subject.PULSAR, named_by="Pulsar"), "milliseconds"),
        # Only in names of Pulsar's.
        ("timeout_millis", Setting(1, "", Subject.PULSAR), ""),
        ("timeout_s", Setting(1, "", Subject.PULSAR), ""),
        ("host", Setting("", "", Subject.ADDRESSES), ""),
    ],
)
def test_the_unit_is_the_last_part_of_the_name(name: str, declared: Setting, unit: str) -> None:
    assert unit_of(name, declared) == unit


def test_bounds_in_words() -> None:
    assert bounds_text({"ge": 0, "le": 65_535}) == "from 0 to 65535"
    assert bounds_text({"gt": 0, "lt": 1}) == "above 0, below 1"
    assert bounds_text({"ge": 1}) == "at least 1"
    assert bounds_text({}) == ""


def test_a_field_that_is_not_a_setting_is_reported() -> None:
    class Wrong(Configuration):
        host: str = ""

    with pytest.raises(TypeError, match=r"declared by setting\(…\)"):
        settings_of(Wrong)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (64 << 20, "bytes", "64 MiB"),
        (3 << 30, "bytes", "3 GiB"),
        (10 << 20, "bytes per second", "10 MiB/s"),
        (86_400.0, "seconds", "1 day"),
        (10_080, "minutes", "7 days"),
        (1000, "bytes", ""),
        (0, "bytes", ""),
        (90.0, "seconds", ""),
        (1024, "entries", ""),
        ("", "", ""),
    ],
)
def test_a_large_default_has_a_larger_unit(value: object, unit: str, text: str) -> None:
    assert amount_text(value, unit) == text


def test_settings_in_the_wrong_order_are_refused_by_both_names() -> None:
    """CHK-66: the error names both settings, both values, and what to do."""
    with pytest.raises(ValueError, match="a is 3, above b, which is 2: lower a or raise b"):
        check_order(Ordered(a=3, b=2), "a", "b")
    check_order(Ordered(a=2, b=2), "a", "b")
