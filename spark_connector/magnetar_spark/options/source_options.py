"""The options of a query: all that a user can say, read once and checked.

What can't be meant is refused with a sentence that says what can. Which options there are, and which go with a batch or
with a stream alone, is in option_names.py, and how places are written in bounds.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.exceptions import InvalidUrl
from magnetar_spark.durations import parse_duration_s
from magnetar_spark.errors import InvalidOptions
from magnetar_spark.log_slice import RECONNECT_S
from magnetar_spark.options.columns import COLUMNS, choose_columns
from magnetar_spark.options.decoding_options import DEFAULT_DECODING, MOST_DECOMPRESSED_BYTES, Decoding, Unreadable
from magnetar_spark.options.offset_option import EARLIEST, LATEST, Bound, parse_bound
from magnetar_spark.options.offset_times import parse_zone
from magnetar_spark.options.option_names import check_names, refuse_those_of_a_batch, refuse_those_of_a_stream
from magnetar_spark.options.topic_selection import TopicChoice, topics_of

__all__ = ["SourceOptions", "batch_options", "columns_of", "parse_columns", "stream_options"]

_URL_IN_ENVIRONMENT: Final = "MAGNETAR_URL"
_DEFAULT_BATCH_LEASE_S: Final = 3600
# A broker holds none for longer than a day.
_MOST_BATCH_LEASE_S: Final = 24 * 3600
_MAX_RECONNECT_S: Final = 24 * 3600
# Of this process, the driver's, whose cores are those of the cluster only where all is on one machine.
_TASKS_PER_CORE: Final = 4
_MOST_TASKS: Final = 100_000
_MOST: Final = 2**63 - 1
# As Kafka's connector has it.
_DEFAULT_TRIGGER_DELAY_S: Final = 15 * 60.0
_LONGEST_S: Final = 7 * 86_400.0
_SUFFIXES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE: Final = re.compile(r"([0-9]{1,19})\s*([kmgt]?)i?b?", re.IGNORECASE | re.ASCII)
# A SELECT from a table that gives no options looks like a query that gives none.
_NONE_GIVEN: Final = (
    ". If this is a table: Spark passes none of its OPTIONS to a query, so set them in each query, SELECT … "
    "FROM t WITH (url '…', topic '…')"
)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    url: str
    listener_name: str
    topics: TopicChoice
    # The option `columns`; empty: not given, which means all columns, or those of the schema that Spark passes.
    columns: tuple[str, ...]
    starting: Bound
    ending: Bound
    # Of one micro-batch; 0: no limit.
    max_messages: int
    max_bytes: int
    fail_on_data_loss: bool
    decoding: Decoding
    # The durable subscription that is moved to where the query is; empty: none.
    progress_subscription: str
    batch_lease_s: int
    # How long a running query retries requests that brokers and bookies do not answer.
    reconnect_s: int
    # Maximum number of tasks of a batch; where there are more partitions, each has one task.
    max_tasks: int
    # Minimum number of tasks of a batch that has as many entries; 0: no minimum.
    min_tasks: int
    # A micro-batch waits for that many messages, but not longer than the delay; 0: it does not wait.
    min_messages: int
    max_trigger_delay_s: float
    # How long a query waits for a topic that does not exist yet.
    wait_for_topic_s: float
    # A batch plans no more than what its filters can let pass.
    push_filters: bool


def batch_options(given: Mapping[str, str]) -> SourceOptions:
    """Raises InvalidOptions."""
    options = {name.lower(): value for name, value in given.items()}
    check_names(given)
    refuse_those_of_a_stream(options)
    return _options(options, EARLIEST)


def stream_options(given: Mapping[str, str]) -> SourceOptions:
    """Raises InvalidOptions."""
    options = {name.lower(): value for name, value in given.items()}
    check_names(given)
    refuse_those_of_a_batch(options)
    return _options(options, LATEST)


def columns_of(given: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of a query, while it is not known yet whether it is a batch or a stream. Raises InvalidOptions."""
    check_names(given)
    options = {name.lower(): value for name, value in given.items()}
    return _options(options, EARLIEST).columns or COLUMNS


def _options(options: Mapping[str, str], start: str) -> SourceOptions:
    url = _url(options)
    if not options:
        raise InvalidOptions(f"the option 'topic' is missing{_NONE_GIVEN}")
    min_tasks, max_tasks = _numbers_of_tasks(options)
    zone = parse_zone(options["timezone"]) if "timezone" in options else None
    return SourceOptions(
        url=url,
        listener_name=options.get("listenername", "").strip(),
        topics=topics_of(options),
        columns=parse_columns(options),
        starting=parse_bound("startingOffsets", options.get("startingoffsets", start), start, zone),
        ending=parse_bound("endingOffsets", options.get("endingoffsets", LATEST), LATEST, zone),
        max_messages=_number(options, "maxMessagesPerTrigger", 0, _MOST),
        max_bytes=_size(options, "maxBytesPerTrigger"),
        fail_on_data_loss=_yes_or_no(options, "failOnDataLoss", True),
        decoding=_decoding(options),
        progress_subscription=_subscription(options),
        batch_lease_s=_number(options, "batchLeaseSeconds", _DEFAULT_BATCH_LEASE_S, _MOST_BATCH_LEASE_S),
        reconnect_s=_number(options, "reconnectSeconds", RECONNECT_S, _MAX_RECONNECT_S),
        max_tasks=max_tasks,
        min_tasks=min_tasks,
        min_messages=_min_messages(options),
        max_trigger_delay_s=_duration_s(options, "maxTriggerDelay", _DEFAULT_TRIGGER_DELAY_S),
        wait_for_topic_s=_duration_s(options, "waitForTopic", 0),
        push_filters=_yes_or_no(options, "pushFilters", False),
    )


def _url(options: Mapping[str, str]) -> str:
    url = options.get("url", "").strip() or os.environ.get(_URL_IN_ENVIRONMENT, "").strip()
    if not url:
        raise InvalidOptions(
            "the option 'url' is missing: set it to magnetar://host:6652[,host:6652…], the addresses of "
            f"brokers, or set {_URL_IN_ENVIRONMENT} in the environment of the "
            f"driver{'' if options else _NONE_GIVEN}"
        )
    from magnetar._service_url import parse_service_url

    try:
        parse_service_url(url)
    except InvalidUrl as error:
        raise InvalidOptions(f"the option 'url' is invalid: {error}") from None
    return url


def parse_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """The option `columns`; empty: it is not given. Raises InvalidColumns."""
    names = [name for name in options.get("columns", "").split(",") if name.strip()]
    return choose_columns(names) if names else ()


def _subscription(options: Mapping[str, str]) -> str:
    name = options.get("progresssubscription", "").strip()
    if "progresssubscription" in options and not name:
        raise InvalidOptions("the option 'progressSubscription' is empty: set a name, or leave it out")
    return name


def _numbers_of_tasks(options: Mapping[str, str]) -> tuple[int, int]:
    least = _number(options, "minTasks", 0, _MOST_TASKS)
    most = _number(options, "maxTasks", max(least, _TASKS_PER_CORE * (os.cpu_count() or 1)), _MOST_TASKS)
    if least > most:
        raise InvalidOptions(f"the option 'minTasks' is {least}: minTasks must not exceed maxTasks ({most})")
    return least, most


def _min_messages(options: Mapping[str, str]) -> int:
    least = _number(options, "minMessagesPerTrigger", 0, _MOST)
    most = _number(options, "maxMessagesPerTrigger", 0, _MOST)
    if most and least > most:
        raise InvalidOptions(
            f"the option 'minMessagesPerTrigger' is {least}: minMessagesPerTrigger must not exceed "
            f"maxMessagesPerTrigger ({most})"
        )
    if "maxtriggerdelay" in options and not least:
        raise InvalidOptions("the option 'maxTriggerDelay' has no effect without 'minMessagesPerTrigger': set both")
    return least


def _duration_s(options: Mapping[str, str], name: str, default: float) -> float:
    text = options.get(name.lower())
    if text is None:
        return default
    seconds = parse_duration_s(text)
    if seconds is None or seconds > _LONGEST_S:
        raise InvalidOptions(
            f"the option {name!r} is {text!r:.50}: use a duration of up to 7d, such as 500ms, 30s or 15m"
        )
    return seconds


def _decoding(options: Mapping[str, str]) -> Decoding:
    return Decoding(
        _unreadable(options),
        _size(options, "maxDecompressedBytes", MOST_DECOMPRESSED_BYTES) or DEFAULT_DECODING.max_decompressed_bytes,
        _size(options, "maxChunkBytes") or DEFAULT_DECODING.max_chunk_bytes,
    )


def _unreadable(options: Mapping[str, str]) -> Unreadable:
    text = options.get("unreadable", Unreadable.FAIL)
    try:
        return Unreadable(text.strip().lower())
    except ValueError:
        raise InvalidOptions(f"the option 'unreadable' is {text!r:.50}: use {', '.join(Unreadable)}") from None


def _number(options: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = options.get(name.lower())
    if text is None:
        return default
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit() and len(stripped) < 20 and 0 < int(stripped) <= most):
        raise InvalidOptions(f"the option {name!r} is {text!r:.50}: use a whole number of 1 … {most:,}")
    return int(stripped)


def _size(options: Mapping[str, str], name: str, most: int = _MOST) -> int:
    text = options.get(name.lower())
    if text is None:
        return 0
    match = _SIZE.fullmatch(text.strip())
    bytes_ = int(match[1]) * _SUFFIXES[match[2].lower()] if match else 0
    if not 0 < bytes_ <= most:
        raise InvalidOptions(
            f"the option {name!r} is {text!r:.50}: use a number of bytes of 1 … {most:,}, such as 1048576, 512k or 1g"
        )
    return bytes_


def _yes_or_no(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise InvalidOptions(f"the option {name!r} is {text!r:.50}: use true or false")
    return text.strip().lower() == "true"
