"""What an application sees first: imports, URLs, names, and options."""

from __future__ import annotations

import inspect
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import magnetar
from magnetar import _unsupported, exceptions
from magnetar._connections.service_url import parse_service_url
from magnetar._consuming.consumer_options import consumer_options
from magnetar._options import producer_options
from tests.unit.client.scene import sync_scene

_ERRORS = [
    "UnknownError",
    "InvalidConfiguration",
    "Timeout",
    "LookupError",
    "ConnectError",
    "ReadError",
    "AuthenticationError",
    "AuthorizationError",
    "ErrorGettingAuthenticationData",
    "BrokerMetadataError",
    "BrokerPersistenceError",
    "ChecksumError",
    "ConsumerBusy",
    "NotConnected",
    "AlreadyClosed",
    "InvalidMessage",
    "ConsumerNotInitialized",
    "ProducerNotInitialized",
    "ProducerBusy",
    "InvalidTopicName",
    "InvalidUrl",
    "TooManyLookupRequestException",
    "ServiceUnitNotReady",
    "OperationNotSupported",
    "ProducerQueueIsFull",
    "MessageTooBig",
    "TopicNotFound",
    "SubscriptionNotFound",
    "ConsumerNotFound",
    "UnsupportedVersionError",
    "TopicTerminated",
    "CryptoError",
    "IncompatibleSchema",
    "ConsumerAssignError",
    "CumulativeAcknowledgementNotAllowedError",
    "NotAllowedError",
    "ProducerFenced",
    "MemoryBufferIsFull",
    "Interrupted",
]


def test_importing_is_cheap() -> None:
    """Nothing heavy comes before it is used; gRPC not before something is connected."""
    code = """
import sys, magnetar
assert not {"grpc", "pydantic", "google.protobuf", "asyncio", "lz4", "zstandard"} & set(sys.modules), "at import"
magnetar.Result.Ok, magnetar.CompressionType.LZ4, magnetar.Timeout
client = magnetar.Client("magnetar://nobody:1")
assert "grpc" not in sys.modules, "for a client"
client.close()
from magnetar.asyncio import Client, ConsumerType, PulsarException, Timeout
assert magnetar.asyncio.Client is magnetar.aio.Client is Client
assert magnetar.aio.PulsarException is PulsarException is magnetar.PulsarException
assert magnetar.asyncio.ConsumerType is magnetar.aio.ConsumerType and magnetar.asyncio.Timeout is magnetar.Timeout
assert "grpc" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


def test_every_name_is_there() -> None:
    for name in magnetar.__all__:
        assert getattr(magnetar, name) is not None
        assert name in dir(magnetar)
    with pytest.raises(AttributeError, match="nonsense"):
        magnetar.nonsense  # type: ignore[attr-defined]  # noqa: B018 (looked at on purpose)


def test_there_is_a_class_for_each_result() -> None:
    """The names are those of Pulsar's Python client; one base for all."""
    for name in _ERRORS:
        kind = getattr(magnetar, name)
        assert kind is getattr(exceptions, name)
        assert issubclass(kind, magnetar.MagnetarException)
        assert kind("text").error() is magnetar.Result[name]
    assert magnetar.PulsarException is magnetar.MagnetarException
    assert issubclass(exceptions.Timeout, TimeoutError)


def test_numbers_of_results_are_those_of_the_stock_client() -> None:
    pulsar = pytest.importorskip("_pulsar")
    theirs = {name: value.value for name, value in pulsar.Result.__members__.items()}
    ours = {result.name: result.value for result in magnetar.Result if result.value < 100}
    assert ours == theirs


def test_pulsar_client_names_exist_and_unsupported_ones_raise() -> None:
    for name in _unsupported.__all__:
        if name != "Unsupported":
            with pytest.raises(exceptions.OperationNotSupported, match=name):
                getattr(magnetar, name)("something", other="thing")
    with pytest.raises(exceptions.InvalidConfiguration, match=r"schema = 'x': use a schema, such as JsonSchema"):
        producer_options({"schema": "x"})
    assert producer_options({"schema": magnetar.schema.BytesSchema()}).value_schema is None
    assert consumer_options({"subscription_name": "s", "schema": bytes}).value_schema is None
    message_id = magnetar.MessageId(1, 2, 3, 4)
    assert magnetar.MessageId.wrap(message_id) is message_id


def test_a_client_shows_nothing_that_is_not_an_application_s() -> None:
    pulsar = pytest.importorskip("pulsar")
    for kind in (magnetar.Client, magnetar.aio.Client):
        assert {name for name in dir(kind) if not name.startswith("_")} <= set(dir(pulsar.Client))


def test_loggers_are_handlers_of_python_s(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, own = logging.getLogger("magnetar"), logging.getLogger("application")
    before, level = list(ours.handlers), ours.level
    records: list[logging.LogRecord] = []
    own.setLevel(logging.INFO)
    keep = logging.Handler()
    keep.emit = records.append  # type: ignore[assignment, method-assign]
    own.addHandler(keep)
    try:
        file = tmp_path / "log"
        for logger in (
            magnetar.FileLogger(magnetar.LoggerLevel.Info, str(file)),
            magnetar.ConsoleLogger(magnetar.LoggerLevel.Error),
            own,
            own,
            logging.getLogger(),
        ):
            magnetar.Client("magnetar://localhost:6652", logger=logger).close()
        logging.getLogger("magnetar._threads.event_loop").info("a line")
        assert file.read_text().count("a line") == 1
        assert "a line" not in capsys.readouterr().out
        assert [record.getMessage() for record in records] == ["a line"]
    finally:
        own.removeHandler(keep)
        for handler in ours.handlers[:]:
            if handler not in before:
                ours.removeHandler(handler)
                handler.close()
        ours.setLevel(level)
    with pytest.raises(exceptions.InvalidConfiguration, match="logger"):
        magnetar.Client("magnetar://localhost:6652", logger=7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("magnetar://localhost:6652", ("localhost:6652",)),
        ("magnetar://localhost", ("localhost:6652",)),
        ("magnetar://a:1,b:2,a:1/", ("a:1", "b:2")),
        ("magnetar://[::1]:7,[::2]", ("[::1]:7", "[::2]:6652")),
    ],
)
def test_urls(url: str, addresses: tuple[str, ...]) -> None:
    assert parse_service_url(url) == addresses


@pytest.mark.parametrize(
    "url",
    [
        "pulsar://localhost:6650",
        "localhost:6652",
        "magnetar://",
        "magnetar://a:0",
        "magnetar://a:65536",
        "magnetar://a:1,",
        "magnetar://a:b",
        "magnetar://::1",
        "magnetar://a/b:1",
        "magnetar://user@host:1",
        "magnetar://a:" + "9" * 5_000,
        "",
        5,
        None,
    ],
)
def test_urls_that_are_refused(url: Any) -> None:
    with pytest.raises(exceptions.InvalidUrl, match="magnetar://host:port"):
        magnetar.Client(url)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"authentication": object()}, exceptions.OperationNotSupported),
        ({"tls_trust_certs_file_path": "/x"}, exceptions.OperationNotSupported),
        ({"io_threads": 0}, exceptions.OperationNotSupported),
        ({"concurrent_lookup_requests": None}, exceptions.OperationNotSupported),
        ({"listener_name": ""}, exceptions.InvalidConfiguration),
        ({"keep_alive_interval_seconds": 0.5}, exceptions.InvalidConfiguration),
        ({"operation_timeout_seconds": 0}, exceptions.InvalidConfiguration),
        ({"connection_timeout_ms": "soon"}, exceptions.InvalidConfiguration),
        ({"nonsense": 1}, exceptions.InvalidConfiguration),
    ],
)
def test_options_of_a_client(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(options))):
        magnetar.Client("magnetar://localhost:6652", **options)
    with pytest.raises(error):
        magnetar.aio.Client("magnetar://localhost:6652", **options)


def test_options_that_disable_unsupported_features_are_accepted() -> None:
    """Applications pass them to the stock client: no statistics in its log, no file."""
    magnetar.Client("magnetar://localhost:6652", stats_interval_in_seconds=0, log_conf_file_path="").close()


def test_an_error_of_an_option_shows_nothing_of_the_library_that_checks_it() -> None:
    with sync_scene() as made:
        with pytest.raises(exceptions.InvalidConfiguration, match=r"^options: message_routing_mode is CustomPartition"):
            made.client().create_producer("t", message_routing_mode=magnetar.PartitionsRoutingMode.CustomPartition)
        backoff: Any = 5
        with pytest.raises(
            exceptions.InvalidConfiguration, match=r"^negative_ack_redelivery_backoff = 5: use a MultiplierRedelivery"
        ):
            made.client().subscribe("t", "s", negative_ack_redelivery_backoff=backoff)


@pytest.mark.parametrize("method", ["Client.create_producer", "Producer.send", "Producer.send_async"])
def test_parameters_are_those_of_the_stock_client(method: str) -> None:
    """By name and by index, so that an application moves by changing its import."""
    pulsar = pytest.importorskip("pulsar")
    kind, name = method.split(".")
    theirs = list(inspect.signature(getattr(getattr(pulsar, kind), name)).parameters)
    ours = list(inspect.signature(getattr(getattr(magnetar, kind), name)).parameters)
    assert ours[: len(theirs)] == theirs


def test_a_client_knows_every_option_of_the_stock_client() -> None:
    """What has no meaning here yet is refused by name, and its default is taken."""
    pulsar = pytest.importorskip("pulsar")
    for name, parameter in inspect.signature(pulsar.Client.__init__).parameters.items():
        if name not in ("self", "service_url"):
            magnetar.Client("magnetar://localhost:6652", **{name: parameter.default}).close()


def test_methods_are_those_of_the_stock_client() -> None:
    pulsar = pytest.importorskip("pulsar")
    for kind in ("Producer", "MessageId"):
        for name in dir(getattr(pulsar, kind)):
            if not name.startswith("_"):
                assert hasattr(getattr(magnetar, kind), name), f"{kind}.{name}"
