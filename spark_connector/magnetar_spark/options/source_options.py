"""The options of a query, parsed and checked once. An error names the option, its value and what to use instead."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.exceptions import InvalidUrl
from magnetar_spark.errors import InvalidOptions
from magnetar_spark.log_slice import DEFAULT_RECONNECT_S
from magnetar_spark.options.columns import COLUMNS, choose_columns
from magnetar_spark.options.decoding_options import (
    DEFAULT_DECODING,
    MAX_DECOMPRESSED_BYTES,
    DecodingOptions,
    Unreadable,
)
from magnetar_spark.options.offset_option import EARLIEST, LATEST, OffsetOption, parse_offset_option
from magnetar_spark.options.offset_times import parse_zone
from magnetar_spark.options.option_names import check_option_names, refuse_batch_options, refuse_stream_options
from magnetar_spark.options.option_values import parse_boolean, parse_duration_s, parse_number, parse_size
from magnetar_spark.options.topic_selection import TopicSelection, parse_topic_options

__all__ = [
    "SourceOptions",
    "parse_batch_options",
    "parse_column_option",
    "parse_query_columns",
    "parse_stream_options",
]

_URL_IN_ENVIRONMENT: Final = "MAGNETAR_URL"
_DEFAULT_BATCH_LEASE_S: Final = 3600
# The longest lease that brokers accept.
_MAX_BATCH_LEASE_S: Final = 24 * 3600
_MAX_RECONNECT_S: Final = 24 * 3600
# Cores of this process's host, the driver's: they are the cluster's only if all runs on one host.
_TASKS_PER_CORE: Final = 4
_MAX_TASKS: Final = 100_000
# The default of Kafka's connector.
_DEFAULT_TRIGGER_DELAY_S: Final = 15 * 60.0
# To Spark, a SELECT from a table without options looks like a query without options.
_NONE_GIVEN: Final = (
    ". If this is a table: Spark passes none of its OPTIONS to a query, so set them in each query, SELECT … "
    "FROM t WITH (url '…', topic '…')"
)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    url: str
    listener_name: str
    topics: TopicSelection
    # The option `columns`; empty: not given, which means all columns, or those of the schema that Spark passes.
    columns: tuple[str, ...]
    starting: OffsetOption
    ending: OffsetOption
    # Maximum size of one micro-batch; 0: no limit.
    max_messages: int
    max_bytes: int
    fail_on_data_loss: bool
    decoding: DecodingOptions
    # The durable subscription that is moved to the query's position; empty: none.
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
    # A batch plans only the messages that its filters may accept.
    push_filters: bool


def parse_batch_options(given: Mapping[str, str]) -> SourceOptions:
    """Parse the options of `spark.read`. Raises InvalidOptions."""
    options = {name.lower(): value for name, value in given.items()}
    check_option_names(given)
    refuse_stream_options(options)
    return _parse_options(options, EARLIEST)


def parse_stream_options(given: Mapping[str, str]) -> SourceOptions:
    """Parse the options of `spark.readStream`. Raises InvalidOptions."""
    options = {name.lower(): value for name, value in given.items()}
    check_option_names(given)
    refuse_batch_options(options)
    return _parse_options(options, LATEST)


def parse_query_columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns of a query that may be a batch or a stream. Raises InvalidOptions."""
    check_option_names(given)
    options = {name.lower(): value for name, value in given.items()}
    return _parse_options(options, EARLIEST).columns or COLUMNS


def parse_column_option(options: Mapping[str, str]) -> tuple[str, ...]:
    """Parse the option `columns`; empty: it is not given. Raises InvalidColumns."""
    names = [name for name in options.get("columns", "").split(",") if name.strip()]
    return choose_columns(names) if names else ()


def _parse_options(options: Mapping[str, str], default_start: str) -> SourceOptions:
    url = _parse_url(options)
    if not options:
        raise InvalidOptions(f"the option 'topic' is missing{_NONE_GIVEN}")
    min_tasks, max_tasks = _parse_task_numbers(options)
    zone = parse_zone(options["timezone"]) if "timezone" in options else None
    starting = options.get("startingoffsets", default_start)
    return SourceOptions(
        url=url,
        listener_name=options.get("listenername", "").strip(),
        topics=parse_topic_options(options),
        columns=parse_column_option(options),
        starting=parse_offset_option("startingOffsets", starting, default_start, zone),
        ending=parse_offset_option("endingOffsets", options.get("endingoffsets", LATEST), LATEST, zone),
        max_messages=parse_number(options, "maxMessagesPerTrigger", 0),
        max_bytes=parse_size(options, "maxBytesPerTrigger", 0),
        fail_on_data_loss=parse_boolean(options, "failOnDataLoss", True),
        decoding=_parse_decoding(options),
        progress_subscription=_parse_subscription(options),
        batch_lease_s=parse_number(options, "batchLeaseSeconds", _DEFAULT_BATCH_LEASE_S, _MAX_BATCH_LEASE_S),
        reconnect_s=parse_number(options, "reconnectSeconds", DEFAULT_RECONNECT_S, _MAX_RECONNECT_S),
        max_tasks=max_tasks,
        min_tasks=min_tasks,
        min_messages=_parse_min_messages(options),
        max_trigger_delay_s=parse_duration_s(options, "maxTriggerDelay", _DEFAULT_TRIGGER_DELAY_S),
        wait_for_topic_s=parse_duration_s(options, "waitForTopic", 0),
        push_filters=parse_boolean(options, "pushFilters", False),
    )


def _parse_url(options: Mapping[str, str]) -> str:
    url = options.get("url", "").strip() or os.environ.get(_URL_IN_ENVIRONMENT, "").strip()
    if not url:
        raise InvalidOptions(
            "the option 'url' is missing: set it to magnetar://host:6652[,host:6652…], the addresses of "
            f"brokers, or set {_URL_IN_ENVIRONMENT} in the environment of the "
            f"driver{'' if options else _NONE_GIVEN}"
        )
    from magnetar._connections.service_url import parse_service_url

    try:
        parse_service_url(url)
    except InvalidUrl as error:
        raise InvalidOptions(f"the option 'url' is invalid: {error}") from None
    return url


def _parse_subscription(options: Mapping[str, str]) -> str:
    name = options.get("progresssubscription", "").strip()
    if "progresssubscription" in options and not name:
        raise InvalidOptions("the option 'progressSubscription' is empty: set a name, or leave it out")
    return name


def _parse_task_numbers(options: Mapping[str, str]) -> tuple[int, int]:
    minimum = parse_number(options, "minTasks", 0, _MAX_TASKS)
    maximum = parse_number(options, "maxTasks", max(minimum, _TASKS_PER_CORE * (os.cpu_count() or 1)), _MAX_TASKS)
    if minimum > maximum:
        raise InvalidOptions(f"the option 'minTasks' is {minimum}: minTasks must not exceed maxTasks ({maximum})")
    return minimum, maximum


def _parse_min_messages(options: Mapping[str, str]) -> int:
    minimum = parse_number(options, "minMessagesPerTrigger", 0)
    maximum = parse_number(options, "maxMessagesPerTrigger", 0)
    if maximum and minimum > maximum:
        raise InvalidOptions(
            f"the option 'minMessagesPerTrigger' is {minimum}: minMessagesPerTrigger must not exceed "
            f"maxMessagesPerTrigger ({maximum})"
        )
    if "maxtriggerdelay" in options and not minimum:
        raise InvalidOptions("the option 'maxTriggerDelay' has no effect without 'minMessagesPerTrigger': set both")
    return minimum


def _parse_decoding(options: Mapping[str, str]) -> DecodingOptions:
    return DecodingOptions(
        _parse_unreadable(options),
        parse_size(options, "maxDecompressedBytes", DEFAULT_DECODING.max_decompressed_bytes, MAX_DECOMPRESSED_BYTES),
        parse_size(options, "maxChunkBytes", DEFAULT_DECODING.max_chunk_bytes),
    )


def _parse_unreadable(options: Mapping[str, str]) -> Unreadable:
    text = options.get("unreadable", Unreadable.FAIL)
    try:
        return Unreadable(text.strip().lower())
    except ValueError:
        raise InvalidOptions(f"the option 'unreadable' is {text!r:.50}: use {', '.join(Unreadable)}") from None
