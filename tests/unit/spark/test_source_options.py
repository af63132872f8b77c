"""The options of the data source, and the errors for invalid ones."""

from __future__ import annotations

import re

import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from magnetar.admin import MessagePosition
from magnetar_spark.errors import InvalidColumns, InvalidOptions
from magnetar_spark.options import other_connectors
from magnetar_spark.options.columns import COLUMNS
from magnetar_spark.options.option_names import OPTIONS
from magnetar_spark.options.source_options import SourceOptions, parse_batch_options, parse_stream_options
from magnetar_spark.options.table_schema import choose_schema_columns
from magnetar_wire.topic_name import TopicName

URL = "magnetar://here:6652"
LOG = "persistent://public/default/t"
NOON = "2026-01-01T12:00:00"


def batch(**options: str) -> SourceOptions:
    return parse_batch_options({"url": URL, "topic": "t", **options})


def stream(**options: str) -> SourceOptions:
    return parse_stream_options({"url": URL, "topic": "t", **options})


def test_every_option_has_an_effect() -> None:
    """SPK-1, SPK-2"""
    plain_batch, plain_stream = batch(), stream()
    effects = {
        "url": batch(url="magnetar://there:6652") != plain_batch,
        "listenerName": batch(listenerName="external") != plain_batch,
        "topic": batch(topic="u") != plain_batch,
        "topics": parse_batch_options({"url": URL, "topics": "t,u"}) != plain_batch,
        "topicsPattern": parse_batch_options({"url": URL, "topicsPattern": "t.*"}) != plain_batch,
        "startingOffsets": batch(startingOffsets="latest") != plain_batch,
        "endingOffsets": batch(endingOffsets="earliest") != plain_batch,
        "failOnDataLoss": batch(failOnDataLoss="false") != plain_batch,
        "columns": batch(columns="value") != plain_batch,
        "maxChunkBytes": batch(maxChunkBytes="1g") != plain_batch,
        "reconnectSeconds": stream(reconnectSeconds="5") != plain_stream,
        "maxDecompressedBytes": batch(maxDecompressedBytes="1g") != plain_batch,
        "unreadable": batch(unreadable="null") != plain_batch,
        "timeZone": batch(timeZone="Asia/Tokyo", startingOffsets=NOON) != batch(timeZone="UTC", startingOffsets=NOON),
        "maxTasks": batch(maxTasks="77") != plain_batch,
        "minTasks": batch(minTasks="2") != plain_batch,
        "waitForTopic": batch(waitForTopic="2") != plain_batch,
        "pushFilters": batch(pushFilters="true") != plain_batch,
        "batchLeaseSeconds": batch(batchLeaseSeconds="60") != plain_batch,
        "maxMessagesPerTrigger": stream(maxMessagesPerTrigger="5") != plain_stream,
        "maxBytesPerTrigger": stream(maxBytesPerTrigger="5k") != plain_stream,
        "minMessagesPerTrigger": stream(minMessagesPerTrigger="5") != plain_stream,
        "maxTriggerDelay": stream(minMessagesPerTrigger="5", maxTriggerDelay="2h") != stream(minMessagesPerTrigger="5"),
        "progressSubscription": stream(progressSubscription="s") != plain_stream,
    }
    assert effects == dict.fromkeys(OPTIONS, True)
    assert stream(maxBytesPerTrigger="5k").max_bytes == 5120
    assert [batch(waitForTopic=text).wait_for_topic_s for text in ("7", "250ms", "3 s", "2M", "1h", "1d", "0")] == [
        *(7, 0.25, 3, 120, 3600, 86_400, 0)
    ]
    assert (plain_batch.starting.default, plain_stream.starting.default) == ("earliest", "latest")


def test_topics_are_named_by_load_too() -> None:
    """SPK-1: Spark passes load("t") as `path`, and load(["t", "u"]) as `paths`."""
    assert parse_batch_options({"url": URL, "path": "t"}).topics == batch().topics
    listed = parse_batch_options({"url": URL, "topics": "t, u"}).topics
    assert parse_batch_options({"url": URL, "paths": '["t","u"]'}).topics == listed
    assert parse_batch_options({"url": URL, "topics": '["t,u"]'}).topics.names == (TopicName.parse("t,u"),)


def test_case_does_not_matter() -> None:
    assert parse_batch_options({"URL": URL, "Topic": "t", "STARTINGOFFSETS": "Latest"}) == batch(
        startingOffsets="latest"
    )


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("maxMessagePerTrigger", "maxMessagesPerTrigger"),
        ("failOnDataLos", "failOnDataLoss"),
        ("subscribePattern", "topicsPattern"),
        ("kafka.bootstrap.servers", "url"),
        ("service.url", "url"),
        ("maxOffsetsPerTrigger", "maxMessagesPerTrigger"),
        ("minOffsetsPerTrigger", "minMessagesPerTrigger"),
        ("minPartitions", "minTasks"),
        ("subscribe", "topics"),
        ("assign", "topics"),
        ("startingOffsetsByTimestamp", "startingOffsets"),
        ("endingOffsetsByTimestamp", "endingOffsets"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest(wrong: str, meant: str) -> None:
    """SPK-1"""
    with pytest.raises(InvalidOptions, match=f"no option '{wrong}': did you mean '{meant}'") as raised:
        batch(**{wrong: "x"})
    assert "There are" not in str(raised.value)


def test_the_error_for_an_unknown_option_lists_all_where_there_is_no_hint() -> None:
    """SPK-1"""
    with pytest.raises(InvalidOptions) as raised:
        batch(zzz="x")
    assert str(raised.value) == f"there is no option 'zzz'. There are {', '.join(OPTIONS)}"


@pytest.mark.parametrize(
    ("foreign", "message"),
    [
        (
            "groupId",
            "there are no consumer groups: a query's position is in its checkpoint.*'progressSubscription'",
        ),
        ("kafka.group.id", "there are no consumer groups"),
        ("kafka.security.protocol", "leave it out: no Kafka client runs here"),
        ("pulsar.client.authParams", "leave it out: no Pulsar client runs here"),
        ("kafkaConsumer.pollTimeoutMs", "leave it out: tasks read entries from the bookies"),
        ("includeHeaders", "leave it out: headers are in the column 'properties'"),
        ("startingOffsetsByTimestamp", "takes a time"),
    ],
)
def test_options_of_other_connectors_are_refused_with_advice(foreign: str, message: str) -> None:
    """SPK-1"""
    with pytest.raises(InvalidOptions, match=f"no option '{foreign}': .*{message}") as raised:
        batch(**{foreign: "x"})
    assert "There are url, " not in str(raised.value)


def test_hints_name_options_and_columns_that_there_are() -> None:
    """SPK-1: a hint for a name that has become an option, or that names one which there is not, would be stale."""
    option_hints = other_connectors._OPTIONS | other_connectors._PREFIXES
    assert not {name.lower() for name in OPTIONS} & option_hints.keys()
    assert not set(COLUMNS) & other_connectors._COLUMNS.keys()
    for hint in option_hints.values():
        assert set(re.findall(r"'(\w+)'", hint)) <= {*OPTIONS, "properties"}, hint
    for hint in other_connectors._COLUMNS.values():
        assert set(re.findall(r"'(\w+)'", hint)) <= {*COLUMNS}, hint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": ""}, "exactly one of the options 'topic', 'topics'"),
        ({"topics": "u"}, "are given 2 times: by the option 'topic', 't' and by the option 'topics', 'u'. Keep"),
        ({"path": "u"}, "are given 2 times: by the option 'topic', 't' and by load(…), 'u'. Keep exactly one"),
        (
            {"topic": "", "path": "a,b"},
            "load(…) takes one topic, but 'a,b' has a comma: for several topics use the option ",
        ),
        ({"topic": "a,b"}, "the option 'topic' takes one topic, but 'a,b' has a comma"),
        ({"topic": "", "paths": "[1]"}, "load([…]) lists values that are not names"),
        ({"topic": "a/b"}, "it has two parts"),
        ({"topic": "non-persistent://public/default/t"}, "is non-persistent"),
        (
            {"url": "pulsar://here:6650"},
            "does not begin with magnetar://, but is for Pulsar's clients. The port here is 6652 by default: write ",
        ),
        ({"url": "http://here:8080"}, "does not begin with magnetar://, but is for HTTP. The port here is 6652"),
        ({"url": "here:6652"}, "does not begin with magnetar://: write magnetar://host:port"),
        ({"startingOffsets": "soon"}, "not a position in a topic"),
        ({"startingOffsets": "{"}, "is not valid JSON"),
        ({"startingOffsets": '{"t": {"ledger_id": -5, "entry_id": 0}}'}, "ledger_id is -5"),
        ({"startingOffsets": '{"t": {"ledger_id": 5, "entry_id": true}}'}, "entry_id is True"),
        ({"startingOffsets": '{"t": [1]}'}, "not a position in a topic"),
        (
            {"startingOffsets": '{"t": 1, "persistent://public/default/t": 2}'},
            "names persistent://public/default/t twice",
        ),
        ({"startingOffsets": "0"}, "which is not positive"),
        ({"failOnDataLoss": "perhaps"}, "use true or false"),
        ({"unreadable": "ignore"}, "use fail, skip, null"),
        ({"maxDecompressedBytes": "2g"}, "of 1 … 1,073,741,824"),
        ({"maxDecompressedBytes": "0"}, "of 1 … 1,073,741,824"),
        ({"timeZone": "Berlin"}, "'timeZone' is 'Berlin'"),
        ({"startingOffsets": NOON}, "has no time zone"),
        ({"endingOffsets": '{"t": "2026-01-01"}'}, "set the option timeZone"),
        ({"maxTasks": "-1"}, "use a whole number of 1"),
        ({"maxTasks": "9" * 5000}, "use a whole number of 1"),
        ({"batchLeaseSeconds": "1e3"}, "use a whole number of 1"),
        ({"columns": "value,valeu"}, "no column 'valeu': did you mean 'value'"),
        ({"columns": "value,VALUE"}, "selected 2 times"),
        ({"maxBytesPerTrigger": "5m"}, "is for spark.readStream"),
        ({"maxTriggerDelay": "5m"}, "is for spark.readStream"),
        ({"minTasks": "5", "maxTasks": "4"}, "'minTasks' is 5: minTasks must not exceed maxTasks (4)"),
        ({"waitForTopic": "a while"}, "use a duration of up to 7d, such as 500ms"),
        ({"waitForTopic": "8d"}, "use a duration of up to 7d"),
    ],
)
def test_invalid_options_are_refused_with_the_reason(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOptions) as raised:
        batch(**options)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxTriggerDelay": "5m"}, "has no effect without 'minMessagesPerTrigger'"),
        ({"endingOffsets": "latest"}, "'endingOffsets' is for spark.read: a stream has no end. Leave it out"),
        ({"pushFilters": "true"}, "'pushFilters' is for spark.read: a stream plans micro-batches without filters"),
        (
            {"batchLeaseSeconds": "5"},
            "'batchLeaseSeconds' is for spark.read: a stream renews its leases while it runs",
        ),
        (
            {"minMessagesPerTrigger": "9", "maxMessagesPerTrigger": "8"},
            "must not exceed maxMessagesPerTrigger (8)",
        ),
    ],
)
def test_stream_options_that_do_not_fit_together(options: dict[str, str], message: str) -> None:
    """SPK-2"""
    with pytest.raises(InvalidOptions) as raised:
        stream(**options)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("a/b", "is invalid: use"),
        ("t/n/x/.*", "is invalid: use"),
        ("persistent://orders-.*", "has no namespace"),
        ("non-persistent://public/default/.*", "non-persistent topics"),
        ("orders-(", "is not a valid regular expression"),
        ("te.*nant/ns/x", "has an invalid namespace"),
    ],
)
def test_patterns_that_are_none(pattern: str, message: str) -> None:
    with pytest.raises(InvalidOptions) as raised:
        parse_batch_options({"url": URL, "topicsPattern": pattern})
    assert message in str(raised.value)


def test_starting_positions_are_set_by_partition_and_topic() -> None:
    given = '{"t": "latest", "u-partition-1": {"ledger_id": 7, "entry_id": 3, "batch_index": -1}, "w": 1700000000000}'
    bound = batch(startingOffsets=given).starting
    assert bound.get_offset("persistent://public/default/t-partition-5") == "latest"
    assert bound.get_offset("persistent://public/default/u-partition-1") == MessagePosition(7, 3, 0)
    assert bound.get_offset("persistent://public/default/u-partition-0") == "earliest"
    assert bound.get_offset("persistent://public/default/w") == 1_700_000_000_000
    with pytest.raises(InvalidOptions, match="which is not read"):
        bound.check_names("startingOffsets", [LOG])
    option = batch(startingOffsets='{"t": {"ledger_id": 7, "entry_id": 3}}').starting
    with pytest.raises(InvalidOptions, match="each with positions of its own"):
        option.check_names("startingOffsets", [f"{LOG}-partition-0"])


def test_a_position_without_a_topic() -> None:
    """SPK-1: it is taken where one partition is read, and else the error shows how it is written."""
    bound = batch(startingOffsets='{"ledger_id": 7, "entry_id": 3, "batch_index": 2}').starting
    assert bound.get_offset(LOG) == MessagePosition(7, 3, 2)
    bound.check_names("startingOffsets", [LOG])
    for logs in ([], [f"{LOG}-partition-0", f"{LOG}-partition-1"]):
        with pytest.raises(InvalidOptions, match=f"but {len(logs)} partitions are read") as raised:
            bound.check_names("startingOffsets", logs)
        shown = str(raised.value).partition("name it, ")[2]
        written = batch(startingOffsets=shown).starting
        assert written.get_offset(str(TopicName.parse(logs[0] if logs else "my-topic"))) == MessagePosition(7, 3, 2)
    for text, entry in (("7:3:0", 3), ("10:30", 30), ("7:3:-1", 3)):
        with pytest.raises(
            InvalidOptions, match=rf"startingOffsets is '{text}': write a position as .*: {entry}, .*date"
        ):
            batch(startingOffsets=text)
    kafka = '{"t": {"0": 23, "1": -2}}'
    with pytest.raises(
        InvalidOptions, match=r"which is not a position: ledger_id is None, .*; use earliest, latest, a time"
    ):
        batch(startingOffsets=kafka)


def test_url_defaults_to_the_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAGNETAR_URL", raising=False)
    with pytest.raises(InvalidOptions, match="the option 'url' is missing"):
        parse_batch_options({"topic": "t"})
    monkeypatch.setenv("MAGNETAR_URL", URL)
    assert parse_batch_options({"topic": "t"}).url == URL


def test_a_schema_of_the_users_own() -> None:
    some = StructType([StructField("index", LongType()), StructField("value", BinaryType())])
    assert choose_schema_columns(some) == choose_schema_columns(some, ("index", "value")) == ("index", "value")
    with pytest.raises(InvalidColumns, match="'columns' is 'key', but the schema of this table or query has 'index,v"):
        choose_schema_columns(some, ("key",))
    with pytest.raises(InvalidColumns, match="'value' as string, but it is binary"):
        choose_schema_columns(StructType([StructField("value", StringType())]), ("value",))
    with pytest.raises(InvalidColumns, match="no column 'body'"):
        choose_schema_columns(StructType([StructField("body", StringType())]), ("value",))
