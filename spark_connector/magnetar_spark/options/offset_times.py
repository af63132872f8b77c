"""Times in `startingOffsets` and `endingOffsets`, as milliseconds since 1970.

**A time without a zone.** Spark reads such a time in `spark.sql.session.timeZone`. A Python data source can't see that
setting on the driver: PySpark 4.2 and 4.3 start the processes that create the source, plan a batch and drive a stream
with an empty configuration, no active session and no environment variable that names it. Only tasks get it, and offsets
are resolved long before. If UTC were used instead, the query would silently read other messages than the user expects.
So the option `timeZone` gives the zone, and without it a time must have its own.

**Seconds for milliseconds.** 1764000000 is a second of 2025. As milliseconds it is the 21st of January 1970, which
selects all messages. A number is refused if it is before 2001 as milliseconds, and between 2001 and 2100 as seconds. It
is also refused if it is after the year 9999 as milliseconds: then it is in microseconds or nanoseconds. Times in ISO
8601 have no unit that could be mistaken, and are not checked.
"""

from __future__ import annotations

import datetime
import re
import zoneinfo
from typing import Final

from magnetar_spark.errors import InvalidOptions

__all__ = ["check_milliseconds", "format_time", "parse_time", "parse_zone"]

# 2001-01-01 and 2100-01-01.
_FIRST_PLAUSIBLE_S: Final = 978_307_200
_LAST_PLAUSIBLE_S: Final = 4_102_444_800
# 9999-12-31T23:59:59.999Z
_LAST_MS: Final = 253_402_300_799_999
_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])([0-9]{1,2}):?([0-9]{2})?", re.ASCII)
_MAX_OFFSET_HOURS: Final = 18
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
# A date with a zone, and without a time of day.
_DATE_IN_ZONE: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})\s*(Z|[+-][0-9]{2}:?[0-9]{2})", re.ASCII)


def parse_zone(text: str) -> datetime.tzinfo:
    """Parse a zone as in `spark.sql.session.timeZone`: a region's name, or an offset. Raises InvalidOptions."""
    stripped = text.strip()
    if stripped in ("Z", "UTC", "GMT"):
        return datetime.UTC
    match = _OFFSET.fullmatch(stripped)
    if match and int(match[2]) <= _MAX_OFFSET_HOURS and int(match[3] or 0) < 60:
        offset = datetime.timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
        return datetime.timezone(-offset if match[1] == "-" else offset)
    try:
        return zoneinfo.ZoneInfo(stripped)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise InvalidOptions(
            f"the option 'timeZone' is {text!r:.50}, which is not a time zone known to this machine: use a "
            "name such as Europe/Berlin, or an offset such as +01:00"
        ) from None


def parse_time(option: str, text: str, zone: datetime.tzinfo | None) -> int | None:
    """Return a time in ISO 8601 as milliseconds, 0 for times before 1970, and None for other text. `zone` is used for
    times without a zone. Raises InvalidOptions."""
    if match := _DATE_IN_ZONE.fullmatch(text):
        raise InvalidOptions(
            f"{option} is {text!r:.50}, a date without a time of day: write {match[1]}T00:00:00{match[2]}"
        )
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    if time.tzinfo is None:
        if zone is None:
            raise InvalidOptions(
                f"{option} has the time {text!r:.50}, which has no time zone: write {time.isoformat()}Z or "
                f"{time.isoformat()}+01:00, or set the option timeZone, e.g. to "
                "spark.conf.get('spark.sql.session.timeZone'). Spark does not pass the session's time zone "
                "to Python data sources"
            )
        time = time.replace(tzinfo=zone)
    return min(max(0, (time - _EPOCH) // datetime.timedelta(milliseconds=1)), _LAST_MS)


def check_milliseconds(option: str, ms: int) -> int:
    """Return the number. Raises InvalidOptions if it is probably not in milliseconds."""
    if ms <= 0:
        raise InvalidOptions(f"{option} is the time {ms}, which is not positive: use ms since 1970")
    if _FIRST_PLAUSIBLE_S <= ms < _LAST_PLAUSIBLE_S:
        raise InvalidOptions(
            f"{option} is the time {ms}, which in ms since 1970 is {format_time(ms)}, and in seconds "
            f"{format_time(ms * 1000)}: times are in ms, so use {ms * 1000}, or {format_time(ms * 1000)}"
        )
    if ms > _LAST_MS:
        raise InvalidOptions(
            f"{option} is the time {ms}, which in ms since 1970 is after the year 9999: use ms, not µs or ns"
        )
    return ms


def format_time(ms: int) -> str:
    """Format a time as ISO 8601 in UTC, to the second."""
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
