"""What a user can say to the data source, and what is said to those who can't mean it."""

from __future__ import annotations

import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from magnetar.admin import NextMessage
from magnetar_spark.errors import InvalidColumns, InvalidOptions
from magnetar_spark.option_names import OPTIONS
from magnetar_spark.options import SourceOptions, batch_options, stream_options
from magnetar_spark.user_schema import columns_of_schema

URL = "magnetar://here:6652"
LOG = "persistent://public/default/t"
NOON = "2026-01-01T12:00:00"


def batch(**options: str) -> SourceOptions:
    return batch_options({"url": URL, "topic": "t", **options})


def stream(**options: str) -> SourceOptions:
    return stream_options({"url": URL, "topic": "t", **options})


def test_every_option_has_an_effect() -> None:
    """SPK-1, SPK-2"""
    plain_batch, plain_stream = batch(), stream()
    effects = {
        "url": batch(url="magnetar://there:6652") != plain_batch,
        "listenerName": batch(listenerName="external") != plain_batch,
        "topic": batch(topic="u") != plain_batch,
        "topics": batch_options({"url": URL, "topics": "t,u"}) != plain_batch,
        "topicsPattern": batch_options({"url": URL, "topicsPattern": "t.*"}) != plain_batch,
        "startingOffsets": batch(startingOffsets="latest") != plain_batch,
        "endingOffsets": batch(endingOffsets="earliest") != plain_batch,
        "failOnDataLoss": batch(failOnDataLoss="false") != plain_batch,
        "columns": batch(columns="value") != plain_batch,
        "maxChunkBytes": batch(maxChunkBytes="1g") != plain_batch,
        "maxDecompressedBytes": batch(maxDecompressedBytes="1g") != plain_batch,
        "unreadable": batch(unreadable="null") != plain_batch,
        "timeZone": batch(timeZone="Asia/Tokyo", startingOffsets=NOON) != batch(timeZone="UTC", startingOffsets=NOON),
        "maxTasks": batch(maxTasks="77") != plain_batch,
        "batchLeaseSeconds": batch(batchLeaseSeconds="60") != plain_batch,
        "maxMessagesPerTrigger": stream(maxMessagesPerTrigger="5") != plain_stream,
        "maxBytesPerTrigger": stream(maxBytesPerTrigger="5k") != plain_stream,
        "progressSubscription": stream(progressSubscription="s") != plain_stream,
    }
    assert effects == dict.fromkeys(OPTIONS, True)
    assert stream(maxBytesPerTrigger="5k").max_bytes == 5120
    assert (plain_batch.starting.default, plain_stream.starting.default) == ("earliest", "latest")


def test_case_does_not_matter() -> None:
    assert batch_options({"URL": URL, "Topic": "t", "STARTINGOFFSETS": "Latest"}) == batch(startingOffsets="latest")


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
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest(wrong: str, meant: str) -> None:
    """SPK-1"""
    with pytest.raises(InvalidOptions, match=f"no option '{wrong}': did you mean '{meant}'"):
        batch(**{wrong: "x"})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topics": "u"}, "exactly one of 'topic', 'topics'"),
        ({"topic": ""}, "exactly one of"),
        ({"topic": "a/b"}, "it has two parts"),
        ({"topic": "non-persistent://public/default/t"}, "stores nothing"),
        ({"url": "pulsar://here:6650"}, "does not begin with magnetar://"),
        ({"startingOffsets": "soon"}, "no place in a topic"),
        ({"startingOffsets": "{"}, "is no JSON"),
        ({"startingOffsets": '{"t": {"ledger_id": -5, "entry_id": 0}}'}, "ledger_id is -5"),
        ({"startingOffsets": '{"t": {"ledger_id": 5, "entry_id": true}}'}, "entry_id is True"),
        ({"startingOffsets": '{"t": [1]}'}, "no place in a topic"),
        (
            {"startingOffsets": '{"t": 1, "persistent://public/default/t": 2}'},
            "names persistent://public/default/t twice",
        ),
        ({"startingOffsets": "0"}, "which is not above 0"),
        ({"failOnDataLoss": "perhaps"}, "give true or false"),
        ({"unreadable": "ignore"}, "give fail, skip, null"),
        ({"maxDecompressedBytes": "2g"}, "of 1 … 1,073,741,824"),
        ({"maxDecompressedBytes": "0"}, "of 1 … 1,073,741,824"),
        ({"timeZone": "Berlin"}, "'timeZone' is 'Berlin'"),
        ({"startingOffsets": NOON}, "has no time zone"),
        ({"endingOffsets": '{"t": "2026-01-01"}'}, "give the option timeZone"),
        ({"maxTasks": "-1"}, "not a whole number of 1"),
        ({"maxTasks": "9" * 5000}, "not a whole number of 1"),
        ({"batchLeaseSeconds": "1e3"}, "not a whole number of 1"),
        ({"columns": "value,valeu"}, "no column 'valeu', the nearest is 'value'"),
        ({"columns": "value,VALUE"}, "named 2 times"),
        ({"maxBytesPerTrigger": "5m"}, "is for spark.readStream"),
    ],
)
def test_what_can_not_be_meant(options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidOptions) as raised:
        batch(**options)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("a/b", "has another form than"),
        ("t/n/x/.*", "has another form than"),
        ("persistent://orders-.*", "has no namespace"),
        ("non-persistent://public/default/.*", "store nothing"),
        ("orders-(", "is no regular expression"),
        ("te.*nant/ns/x", "names no namespace"),
    ],
)
def test_patterns_that_are_none(pattern: str, told: str) -> None:
    with pytest.raises(InvalidOptions) as raised:
        batch_options({"url": URL, "topicsPattern": pattern})
    assert told in str(raised.value)


def test_places_by_partition_and_topic() -> None:
    given = '{"t": "latest", "u-partition-1": {"ledger_id": 7, "entry_id": 3, "batch_index": -1}, "w": 1700000000000}'
    bound = batch(startingOffsets=given).starting
    assert bound.of("persistent://public/default/t-partition-5") == "latest"
    assert bound.of("persistent://public/default/u-partition-1") == NextMessage(7, 3, 0)
    assert bound.of("persistent://public/default/u-partition-0") == "earliest"
    assert bound.of("persistent://public/default/w") == 1_700_000_000_000
    with pytest.raises(InvalidOptions, match="not among what is read"):
        bound.check_names("startingOffsets", [LOG])
    place = batch(startingOffsets='{"t": {"ledger_id": 7, "entry_id": 3}}').starting
    with pytest.raises(InvalidOptions, match="places are of one of them"):
        place.check_names("startingOffsets", [f"{LOG}-partition-0"])


def test_the_url_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAGNETAR_URL", raising=False)
    with pytest.raises(InvalidOptions, match="give the option 'url'"):
        batch_options({"topic": "t"})
    monkeypatch.setenv("MAGNETAR_URL", URL)
    assert batch_options({"topic": "t"}).url == URL


def test_a_schema_of_the_users_own() -> None:
    some = StructType([StructField("index", LongType()), StructField("value", BinaryType())])
    assert columns_of_schema(some, ("key",)) == ("index", "value")
    with pytest.raises(InvalidColumns, match="'value' as string, but it is binary"):
        columns_of_schema(StructType([StructField("value", StringType())]), ("value",))
    with pytest.raises(InvalidColumns, match="no column 'body'"):
        columns_of_schema(StructType([StructField("body", StringType())]), ("value",))
