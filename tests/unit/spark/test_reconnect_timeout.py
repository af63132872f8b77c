"""How long a query that runs waits for brokers and bookies that were restarted under it."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import magnetar.admin
from magnetar.exceptions import ConnectError, InvalidArgument, MagnetarException
from magnetar_spark.errors import BrokersAway
from magnetar_spark.log_slice import LogSlice
from magnetar_spark.options.columns import build_spark_schema
from magnetar_spark.stream_reader import StreamReader
from tests.unit.spark.fake_service import FakeService

ANYTHING = ReadAllAvailable()


class Service(FakeService):
    """Knows how long it may take to answer."""

    def __init__(self) -> None:
        super().__init__()
        self.timeout_s = 0.0
        self.create("t")
        self["t"].publish([1, 2])

    def as_made(self, _url: str, timeout_s: float, **_: Any) -> Service:
        self.timeout_s = timeout_s
        return self

    def set_operation_timeout(self, seconds: float) -> None:
        self.timeout_s = seconds

    async def close(self) -> None: ...


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    service = Service()
    monkeypatch.setattr(magnetar.admin, "AsyncAdmin", service.as_made)
    return service


def reader(**options: str) -> StreamReader:
    given = {
        "url": "magnetar://localhost:1",
        "topic": "t",
        "startingOffsets": "earliest",
        "columns": "value",
        **options,
    }
    return StreamReader(given, build_spark_schema(("value",)))


@pytest.mark.parametrize(("options", "seconds"), [({}, 600.0), ({"reconnectSeconds": "77"}, 77.0)])
def test_a_stream_that_has_begun_outlasts_a_restart_of_the_cluster(
    service: Service, options: dict[str, str], seconds: float
) -> None:
    """SPK-1: by default requests of the driver and of tasks are retried for ten minutes; the first one is not, since
    somebody waits for the query to begin."""
    stream = reader(**options)
    service.before["get_partitioned"] = lambda: timeouts.append(service.timeout_s)
    timeouts: list[float] = []
    start = stream.initialOffset()
    try:
        service["t"].publish([3])
        end = stream.latestOffset(start, ANYTHING)
        slices = [one for one in stream.partitions(start, end) if isinstance(one, LogSlice)]
    finally:
        stream.stop()
    assert timeouts[0] < 600.0
    assert service.timeout_s == seconds
    assert [one.connection.reconnect_s for one in slices] == [seconds]


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (ConnectError("nobody is there"), BrokersAway, r"600 s.*reconnectSeconds\): nobody is there"),
        (InvalidArgument("never"), InvalidArgument, "^never$"),
    ],
)
def test_stream_outage_error_names_the_reconnect_option(
    service: Service, error: MagnetarException, raised: type[Exception], message: str
) -> None:
    stream = reader()
    start = stream.initialOffset()
    service.failing["plan"] = error
    try:
        with pytest.raises(raised, match=message):
            stream.latestOffset(start, ANYTHING)
    finally:
        stream.stop()
