"""What planning a batch leaves behind: leases where something will be read, and nowhere else."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import magnetar.admin
from magnetar.admin import Plan
from magnetar.exceptions import ConnectError
from magnetar_spark.batch_reader import BatchReader
from magnetar_spark.errors import DataLost, NoSuchTopic
from magnetar_spark.log_slice import LogSlice
from magnetar_spark.options.offset_option import encode_position
from magnetar_spark.options.source_options import parse_batch_options
from tests.unit.spark.fake_service import FakeService


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> FakeService:
    """A topic `t` of three partitions."""
    made = FakeService()
    made.create("t", 3)

    @contextlib.asynccontextmanager
    async def admin(*_: object, **__: object) -> AsyncIterator[FakeService]:
        yield made

    monkeypatch.setattr(magnetar.admin, "AsyncAdmin", admin)
    return made


def reader(**options: str) -> BatchReader:
    return BatchReader(parse_batch_options({"url": "magnetar://localhost:1", "topic": "t", **options}), ["value"])


def leased(service: FakeService) -> list[int]:
    return [at for at in range(3) if service[f"t-partition-{at}"].leases]


def test_a_partition_of_which_nothing_is_read_has_no_lease(service: FakeService) -> None:
    """SPK-5: the others' tasks renew theirs"""
    service["t-partition-1"].publish([1, 2, 3])
    slices = [one for one in reader().partitions() if isinstance(one, LogSlice)]
    assert service.messages_of(slices) == [1, 2, 3]
    assert leased(service) == [1]


def test_a_batch_waits_for_its_topic(service: FakeService) -> None:
    """SPK-1: waitForTopic; or names the topic that is missing, and what to do"""

    def create() -> None:
        if service.requests.count("get_partitioned") >= 3:
            service.create("late")
            service["late"].publish([7])

    with pytest.raises(NoSuchTopic, match="there is no topic persistent://public/default/never: create it"):
        reader(topic="never").partitions()
    service.requests.clear()
    service.before["get_partitioned"] = create
    slices = [one for one in reader(topic="late", waitForTopic="1h").partitions() if isinstance(one, LogSlice)]
    assert service.messages_of(slices) == [7]


def test_min_tasks_sets_the_minimum_number_of_slices(service: FakeService) -> None:
    """SPK-3: minTasks, of little that there is to read"""
    for number in range(20):
        service[f"t-partition-{number % 2}"].publish([number])
    assert len(reader().partitions()) == 2
    slices = [one for one in reader(minTasks="7").partitions() if isinstance(one, LogSlice)]
    assert len(slices) == 7
    assert sorted(service.messages_of(slices)) == list(range(20))


def test_a_loss_advises_no_subscription_to_a_batch(service: FakeService) -> None:
    """SPK-2: a batch has no progressSubscription."""
    log = service["t-partition-1"]
    log.publish([1, 2, 3])
    begin = json.dumps({"t-partition-1": encode_position(log.first)})
    log.roll()
    log.publish([4])
    log.delete_ledgers_before(log.ledger_id)
    with pytest.raises(DataLost, match=r"are lost: from .*failOnDataLoss") as raised:
        reader(startingOffsets=begin).partitions()
    assert "progressSubscription" not in str(raised.value)


def _fails_before(service: FakeService) -> None:
    service.failing["plan"] = ConnectError("a broker moves")


def _fails_behind(service: FakeService) -> None:
    """The lease stands, and the answer is lost."""
    request_plan = service.plan

    async def plan(log: str, **fields: Any) -> Plan:
        answer = await request_plan(log, **fields)
        if log.endswith("-1"):
            raise ConnectError("the broker was killed")
        return answer

    service.plan = plan  # type: ignore[method-assign]


@pytest.mark.parametrize("fails", [_fails_before, _fails_behind])
def test_where_planning_fails_no_lease_is_left(service: FakeService, fails: Callable[[FakeService], None]) -> None:
    for at in range(3):
        service[f"t-partition-{at}"].publish([at])
    fails(service)
    with pytest.raises(Exception, match=r"a broker moves|the broker was killed"):
        reader().partitions()
    assert service.requests.count("plan") == 3
    assert leased(service) == []


def test_that_a_lease_is_not_given_back_fails_no_query(service: FakeService) -> None:
    service["t-partition-1"].publish([1])
    service.failing["end_lease"] = ConnectError("a broker moves")
    assert len(reader().partitions()) == 1
    assert leased(service) == [0, 1]


def test_all_batches_of_a_driver_share_a_lease_of_each_topic(service: FakeService) -> None:
    """SPK-5: each is a read of its own, and the slices of a partition know how many there are."""
    service["t-partition-1"].publish([1, 2, 3])
    slices = [one for _ in range(3) for one in reader().partitions() if isinstance(one, LogSlice)]
    leases = [one.lease.lease for one in slices if one.lease is not None]
    assert len({lease.lease_id for lease in leases}) == 1
    assert len({lease.read_id for lease in leases}) == 3
    assert len(service["t-partition-1"].leases) == 3
    assert [(one.part, one.parts) for one in slices] == [(0, 1)] * 3
