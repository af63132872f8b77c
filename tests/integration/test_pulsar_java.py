"""A stock client of another language, Pulsar's own of Java, on a real standalone.

That it works is what all checks of a group prove, so no other point of the specification is named here: those are for
tests that run everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pulsar
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

import magnetar
from magnetar import schema as schemas
from magnetar.admin import Admin
from magnetar.exceptions import NotFound
from magnetar.schema import KeyValue, KeyValueEncodingType, KeyValueSchema, Schema
from magnetar_cli.local_java import OLDEST_VERSION, find_installed_java
from magnetar_testing.standalone_process import StandaloneProcess
from tests.java_client import Act, run_java_checks
from tests.peers import PeerUnavailable, java_client_jars

# The client is fetched by the first run, which may take a minute.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("java")]

_LONG_MS: Final = 40_000

_PUBLISHING: Final = (
    "inBatches",
    "oneByOne",
    "compressed",
    "withAllThatAMessageHas",
    "inBatchesOfOneKeyEach",
    "underANameThatIsItsOwn",
    "toPartitions",
    "toPartitionsThatTheApplicationChooses",
    "toPartitionsThatAreAddedLater",
    "inChunks",
    "nothingThatIsTooLarge",
    "valuesOfPlainSchemas",
)
_CONSUMING: Final = (
    "alone",
    "shared",
    "oneActiveAtATime",
    "oneActiveForEachPartition",
    "byEveryWayToReceive",
    "withQueuesOfEverySize",
    "nothingWhilePaused",
    "fromManyTopics",
    "fromTheLatestOnAndUnderPropertiesOfItsOwn",
    "noMoreOnceUnsubscribed",
)
_ACKNOWLEDGING: Final = (
    "oneByOne",
    "upToOne",
    "withReceipts",
    "partsOfBatches",
    "partsOfBatchesWhichDoNotCountUnlessAskedFor",
)
_REDELIVERY: Final = (
    "ofWhatWasRefused",
    "ofWhatWasRefusedInOrder",
    "ofEverythingUnderANewEpoch",
    "ofWhatIsStillOnItsWay",
    "ofWhatWasNotAcknowledgedInTime",
    "ofSomeOnly",
    "toTheDeadLetters",
    "byTheRetryTopic",
    "lettersOfAnotherClient",
)
_KEY_SHARED: Final = ("autoSplit", "sticky")
_READING: Final = (
    "fromEitherEnd",
    "fromAnId",
    "fromATime",
    "afterASeek",
    "consumersThatSeek",
    "consumersThatSeekWithinABatch",
    "partitions",
    "theLastIds",
    "aTable",
)
_FINDING: Final = (
    "topicsOfAPattern",
    "topicsOfAPatternByAsking",
    "howManyPartitions",
    "nothingUnderNamesThatNobodyHas",
    "withATokenThatNobodyAsksFor",
    "aBrokerThatAnswersAsLongAsNothingIsSaid",
)
_REFUSALS: Final = ("ofDelays", "ofTransactions")
_ACCESS_MODES: Final = ("takingTurns", "fencing", "partitions")
_SCHEMAS: Final = (
    "ofRecords",
    "ofProtobuf",
    "ofKeysAndValues",
    "ofVersionsThatFollow",
    "ofTheTopicForBytes",
    "ofSeveralKindsByOneProducer",
    "notOfAnotherKind",
    "withMagnetarsClient",
)
_MOVING: Final = ("onWhileTopicsAreUnloaded", "withOneOfPython")
_RECOVERING: Final = ("fromKill9",)
_ALL: Final = {
    "Publishing": _PUBLISHING,
    "Consuming": _CONSUMING,
    "Acknowledging": _ACKNOWLEDGING,
    "Redelivery": _REDELIVERY,
    "KeyShared": _KEY_SHARED,
    "Reading": _READING,
    "Finding": _FINDING,
    "Schemas": _SCHEMAS,
    "Refusals": _REFUSALS,
    "AccessModes": _ACCESS_MODES,
    "Moving": _MOVING,
    "Recovering": _RECOVERING,
}


class Point(schemas.Record):
    x = schemas.Integer(required=True)
    name = schemas.String(required_default=True)


def _show_pair(pair: KeyValue[str, Point]) -> str:
    assert pair.value is not None
    return f"{pair.key} {pair.value.x} {pair.value.name}"


# By the kinds that the check names: our schema, and the text of a value.
_EXCHANGED: Final[dict[str, tuple[Schema[Any], Callable[[Any], str]]]] = {
    "avro": (schemas.AvroSchema(Point), lambda point: f"{point.x} {point.name}"),
    "json": (schemas.JsonSchema(Point), lambda point: f"{point.x} {point.name}"),
    "protobuf": (schemas.ProtobufSchema(Timestamp), lambda timestamp: str(timestamp.seconds)),
    "protobuf native": (schemas.ProtobufNativeSchema(Timestamp), lambda timestamp: str(timestamp.seconds)),
    **{
        f"pairs {encoding.name}": (
            KeyValueSchema(schemas.StringSchema(), schemas.AvroSchema(Point), encoding),
            _show_pair,
        )
        for encoding in KeyValueEncodingType
    },
    "string": (schemas.StringSchema(), str),
    "int32": (schemas.Int32Schema(), str),
    "double": (schemas.DoubleSchema(), str),
    "instant": (schemas.InstantSchema(), str),
    "local date time": (schemas.LocalDateTimeSchema(), str),
}


class _Acts:
    """What checks ask for that a client can't do."""

    def __init__(self, server: StandaloneProcess, admin: Admin) -> None:
        self._server = server
        self._topics, self._subscriptions = admin.topics, admin.subscriptions

    def by_name(self) -> dict[str, Act]:
        return {
            "partitions": self._partitions,
            "more partitions": self._more_partitions,
            "unload": self._unload,
            "kill and start": self._kill_and_start,
            "subscriptions": self._subscriptions_of,
            "exists": self._exists,
            "pulsar-client": self._pulsar_client,
            "magnetar exchange": self._exchange,
            "echo in chunks": self._echo_in_chunks,
            "magnetar retries": self._retry,
        }

    def _partitions(self, topic: str, partitions: str) -> str:
        self._topics.create_partitioned(topic, int(partitions))
        return ""

    def _more_partitions(self, topic: str, partitions: str) -> str:
        self._topics.update_partitioned(topic, int(partitions))
        return ""

    def _unload(self, topic: str) -> str:
        self._topics.unload(topic)
        return ""

    def _kill_and_start(self) -> str:
        self._server.kill()
        self._server.start()
        return ""

    def _subscriptions_of(self, topic: str) -> str:
        try:
            return " ".join(self._subscriptions.list(topic))
        except NotFound:
            return "no topic"

    def _exists(self, topic: str) -> str:
        return "yes" if topic in self._topics.list("public/default") else "no"

    def _exchange(self, topic: str, kind: str) -> str:
        """Receive a value, send it again, and return it as text."""
        schema, show = _EXCHANGED[kind]
        with closing(magnetar.Client(self._server.service_url)) as client:
            earliest = magnetar.InitialPosition.Earliest
            consumer = client.subscribe(topic, "magnetar", schema=schema, initial_position=earliest)
            value = consumer.receive(_LONG_MS).value()
            client.create_producer(topic, schema=schema).send(value)
        return show(value)

    def _echo_in_chunks(self, topic: str, messages: str) -> str:
        """Send again what is there, with Magnetar's client. Return how many messages it is."""
        with closing(magnetar.Client(self._server.service_url)) as client:
            reader = client.create_reader(topic, magnetar.MessageId.earliest)
            contents = [reader.read_next(_LONG_MS).data() for _ in range(int(messages))]
            producer = client.create_producer(topic, batching_enabled=False, chunking_enabled=True)
            for content in contents:
                producer.send(content)
        return str(len(contents))

    def _retry(self, topic: str) -> str:
        """Retry the next message of the subscription "s". Return how often it was retried before."""
        policy = magnetar.ConsumerDeadLetterPolicy(2)
        options: dict[str, Any] = {"dead_letter_policy": policy, "enable_retry": True}
        earliest, shared = magnetar.InitialPosition.Earliest, magnetar.ConsumerType.Shared
        with closing(magnetar.Client(self._server.service_url)) as client:
            consumer = client.subscribe(topic, "s", shared, initial_position=earliest, **options)
            message = consumer.receive(_LONG_MS)
            consumer.reconsume_later(message, 0, {"by": "Magnetar"})
        return message.properties().get("RECONSUMETIMES", "none")

    def _pulsar_client(self, topic: str) -> str:
        """Send 10 messages behind those that are there, and return them all."""
        client = pulsar.Client(self._server.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        producer = client.create_producer(topic, batching_enabled=True, batching_max_messages=3)
        for number in range(10, 20):
            producer.send_async(b"%d" % number, None, partition_key=f"p{number}", properties={"of": "Python"})
        producer.flush()
        consumer = client.subscribe(topic, "of Python", initial_position=pulsar.InitialPosition.Earliest)
        sent = []
        for _ in range(20):
            message = consumer.receive(_LONG_MS)
            sent.append(f"{message.data().decode()}/{message.partition_key()}/{message.properties()['of']}")
        client.close()
        return " ".join(sent)


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Of all checks, by their names: what is wrong."""
    if find_installed_java() is None:
        pytest.skip(f"no JDK {OLDEST_VERSION} or newer in JAVA_HOME or PATH")
    try:
        jars = java_client_jars()
    except PeerUnavailable as error:
        pytest.skip(str(error))
    folder: Path = tmp_path_factory.mktemp("java")
    names = [f"{group}.{check}" for group, checks in _ALL.items() for check in checks]
    with StandaloneProcess(folder / "data") as server, closing(Admin(server.service_url)) as admin:
        yield run_java_checks(folder, jars, server.pulsar_url, _Acts(server, admin).by_name(), *names)


@pytest.mark.parametrize("check", _PUBLISHING)
def test_publishing(problems: dict[str, str], check: str) -> None:
    """WIRE-1, PRD-8, CON-7: `inChunks` has Magnetar's client read what Java's has sent, and the reverse."""
    assert problems[f"Publishing.{check}"] == ""


@pytest.mark.parametrize("check", _CONSUMING)
def test_consuming(problems: dict[str, str], check: str) -> None:
    """WIRE-1, SUB-2, SUB-3, SUB-4, SUB-8, CON-1, CON-2"""
    assert problems[f"Consuming.{check}"] == ""


@pytest.mark.parametrize("check", _ACKNOWLEDGING)
def test_acknowledging(problems: dict[str, str], check: str) -> None:
    """WIRE-1, CON-3, CON-4: also for a stock client that does not ask for parts of batches."""
    assert problems[f"Acknowledging.{check}"] == ""


@pytest.mark.parametrize("check", _REDELIVERY)
def test_redelivery(problems: dict[str, str], check: str) -> None:
    """WIRE-1, CON-5, CON-6, CON-8, CON-9, CON-10: letters of either client are retried and counted by the other."""
    assert problems[f"Redelivery.{check}"] == ""


@pytest.mark.parametrize("check", _KEY_SHARED)
def test_key_shared(problems: dict[str, str], check: str) -> None:
    """WIRE-1, SUB-5, SUB-6, SUB-10, SUB-12"""
    assert problems[f"KeyShared.{check}"] == ""


@pytest.mark.parametrize("check", _READING)
def test_reading(problems: dict[str, str], check: str) -> None:
    """WIRE-1"""
    assert problems[f"Reading.{check}"] == ""


@pytest.mark.parametrize("check", _FINDING)
def test_finding(problems: dict[str, str], check: str) -> None:
    """WIRE-1, SUB-8"""
    assert problems[f"Finding.{check}"] == ""


@pytest.mark.parametrize("check", _SCHEMAS)
def test_schemas(problems: dict[str, str], check: str) -> None:
    """WIRE-1"""
    assert problems[f"Schemas.{check}"] == ""


@pytest.mark.parametrize("check", _REFUSALS)
def test_refusals(problems: dict[str, str], check: str) -> None:
    """WIRE-1: the client gets an error at once that it does not retry, and goes on."""
    assert problems[f"Refusals.{check}"] == ""


@pytest.mark.parametrize("check", _ACCESS_MODES)
def test_access_modes(problems: dict[str, str], check: str) -> None:
    """WIRE-1, PRD-2"""
    assert problems[f"AccessModes.{check}"] == ""


@pytest.mark.parametrize("check", _MOVING)
def test_moving(problems: dict[str, str], check: str) -> None:
    """WIRE-1"""
    assert problems[f"Moving.{check}"] == ""


@pytest.mark.parametrize("check", _RECOVERING)
def test_recovering(problems: dict[str, str], check: str) -> None:
    """WIRE-1, PRD-1, PRD-9, CON-3, CON-4: messages with a receipt are there, and acknowledged ones don't come again."""
    assert problems[f"Recovering.{check}"] == ""
