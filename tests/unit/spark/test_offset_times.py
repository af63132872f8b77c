"""Times in startingOffsets and endingOffsets: which are understood, in which zone, and which are refused."""

from __future__ import annotations

import re

import pytest

from magnetar_spark.errors import InvalidOptions
from magnetar_spark.options.offset_option import EARLIEST, parse_offset_option
from magnetar_spark.options.offset_times import parse_zone

LOG = "persistent://public/default/t"
# 2026-07-01T10:00:00Z
SUMMER_MS = 1_782_900_000_000


def ms_of(text: str, zone: str = "") -> object:
    return parse_offset_option("startingOffsets", text, EARLIEST, parse_zone(zone) if zone else None).get_offset(LOG)


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("2026-07-01T10:00:00Z", ""),
        ("2026-07-01T12:00:00+02:00", "Asia/Tokyo"),
        ("2026-07-01T12:00:00", "Europe/Berlin"),
        ("2026-07-01 12:00", "+02:00"),
        ("2026-07-01T04:30", "UTC-05:30"),
        ("2026-07-01T10:00:00.000", "Z"),
        ('{"t": "2026-07-01T12:00:00"}', "+2"),
        (str(SUMMER_MS), "Europe/Berlin"),
        (f'{{"t": {SUMMER_MS}}}', ""),
    ],
)
def test_the_zone_of_a_time_is_its_own_or_the_options(text: str, zone: str) -> None:
    """SPK-1: never a zone that nobody named"""
    assert ms_of(text, zone) == SUMMER_MS


@pytest.mark.parametrize("text", ["2026-07-01T12:00:00", "2026-07-01", '{"t": "2026-07-01T12:00:00"}'])
def test_a_time_without_any_zone_is_refused(text: str) -> None:
    """SPK-1: the session's zone is not known to the source, and UTC would read other messages than are meant"""
    with pytest.raises(
        InvalidOptions, match=r"has no time zone: write 2026-07-01T\d\d:00:00Z or .*spark.sql.session.timeZone"
    ):
        ms_of(text)


@pytest.mark.parametrize("seconds", [978_307_200, SUMMER_MS // 1000, 4_102_444_799])
def test_seconds_where_milliseconds_are_meant_are_refused(seconds: int) -> None:
    """SPK-1: they would read everything"""
    for text in (str(seconds), f'{{"t": {seconds}}}'):
        with pytest.raises(
            InvalidOptions, match=rf"is the time {seconds}, .*in ms since 1970 is 1970-.*use {seconds}000, or [0-9]"
        ):
            ms_of(text)


def test_refusal_of_seconds_suggests_milliseconds_and_iso_time() -> None:
    with pytest.raises(InvalidOptions, match=rf"use {SUMMER_MS}, or 2026-07-01T10:00:00Z"):
        ms_of(str(SUMMER_MS // 1000))


def test_microseconds_and_nanoseconds_are_refused() -> None:
    for factor in (1000, 1_000_000):
        with pytest.raises(InvalidOptions, match="after the year 9999"):
            ms_of(str(SUMMER_MS * factor))


@pytest.mark.parametrize("ms", [1, 978_307_199, 4_102_444_800, SUMMER_MS, 253_402_300_799_999])
def test_numbers_unlike_recent_seconds_are_read_as_milliseconds(ms: int) -> None:
    assert ms_of(str(ms)) == ms


@pytest.mark.parametrize("zone", ["Berlin", "", "../../etc/passwd", "+25:00", "+01:60", "Europe", "/etc"])
def test_zones_that_are_none(zone: str) -> None:
    with pytest.raises(InvalidOptions, match="not a time zone known to this machine"):
        parse_zone(zone)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z"])
def test_a_time_before_all_messages_is_earliest(text: str) -> None:
    """SPK-1: `1970-01-01T00:00:00Z` is a usual way to ask for all messages"""
    assert ms_of(text) == EARLIEST


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-21T10:00:00Z", 1_764_000_000),
        ("1970-01-01T00:00:00.001Z", 1),
        ("9999-12-31T23:59:59-14:00", 253_402_300_799_999),
        ("2026-07-01T10:00:00.123Z", SUMMER_MS + 123),
        ("2262-04-11T23:47:16.001Z", 9_223_372_036_001),
    ],
)
def test_iso_times_are_never_mistaken_for_seconds(text: str, ms: int) -> None:
    """SPK-1: only numbers can have the wrong unit. To the millisecond, without rounding."""
    assert ms_of(text) == ms


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("2026-01-01", "2026-01-01T00:00:00Z"),
        ("2026-01-01Z", "2026-01-01T00:00:00Z"),
        ("2026-01-01+01:00", "2026-01-01T00:00:00+01:00"),
    ],
)
def test_the_hint_for_a_date_is_a_time_that_is_understood(text: str, hint: str) -> None:
    """SPK-1"""
    with pytest.raises(InvalidOptions, match=rf"write {re.escape(hint)}\b"):
        ms_of(text)
    assert isinstance(ms_of(hint), int)
