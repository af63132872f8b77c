"""A scene of filters that are pushed down: what `spark.read` plans of a fake service's logs."""

from __future__ import annotations

import contextlib
import datetime
import random
from collections.abc import AsyncIterator

import pytest
from pyspark.sql.datasource import Filter

import magnetar.admin
from magnetar_spark.batch_reader import PushFiltersReader
from magnetar_spark.log_slice import LogSlice
from magnetar_spark.options.source_options import parse_batch_options
from tests.unit.spark.fake_service import FakeService

__all__ = ["INDEX", "PARTITION", "TIME", "moment", "plan_slices", "use_fake_service"]

INDEX, TIME, PARTITION = ("index",), ("broker_time",), ("partition",)


def moment(ms: float) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(milliseconds=ms)


def use_fake_service(monkeypatch: pytest.MonkeyPatch) -> FakeService:
    """Return the service that readers reach from now on."""
    made = FakeService()

    @contextlib.asynccontextmanager
    async def admin(*_: object, **__: object) -> AsyncIterator[FakeService]:
        yield made

    monkeypatch.setattr(magnetar.admin, "AsyncAdmin", admin)
    return made


def plan_slices(service: FakeService, filters: list[Filter], **options: str) -> list[LogSlice]:
    given = {"url": "magnetar://localhost:1", "topic": "t", "pushFilters": "true", **options}
    reader = PushFiltersReader(parse_batch_options(given), ["value"], str(random.random()))
    assert list(reader.pushFilters(filters)) == filters, "Spark would not evaluate them"
    return [one for one in reader.partitions() if isinstance(one, LogSlice)]
