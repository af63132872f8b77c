"""A stream's leases are renewed often enough that some renewals may fail, independently of others."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import cast

import pytest

from magnetar.admin import AsyncAdmin
from magnetar.exceptions import ConnectError
from magnetar_spark.leases.lease import create_lease
from magnetar_spark.leases.lease_renewals import RENEWALS_PER_LEASE
from magnetar_spark.leases.stream_leases import StreamLeases
from tests.running import until
from tests.unit.spark.fake_service import FakeService

LOG = "persistent://public/default/t"


@pytest.mark.parametrize("trouble", [ConnectError("a broker moves"), ValueError("a mistake")])
async def test_a_renewal_that_fails_is_made_up_for_in_half_of_a_leases_time(trouble: Exception) -> None:
    """SPK-5: a lease surely holds for half of its time only"""
    assert RENEWALS_PER_LEASE // 2 >= 3

    service = FakeService()
    service.create("t")
    log = service["t"]
    lease = create_lease(60)
    log.leases[lease.lease_id] = (1, 60)
    leases = StreamLeases(cast(AsyncAdmin, service), lease)
    leases.add_log(LOG, log.incarnation)
    service.failing["renew_lease"] = trouble
    await until(lambda: service.requests.count("renew_lease") >= 3, "it went on after that")
    await leases.release_all()
    assert log.leases == {}
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_ended_lease_is_logged_only_once(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        service = FakeService()
        service.create("t", 2)
        lease = create_lease(60)
        leases = StreamLeases(cast(AsyncAdmin, service), lease)
        held = service["t-partition-0"]
        held.leases[lease.lease_id] = (1, 60)
        for index in range(2):
            leases.add_log(f"{LOG}-partition-{index}", service[f"t-partition-{index}"].incarnation)
        await until(lambda: service.requests.count("renew_lease") >= 6, "the other one is renewed")
        await leases.release_all()
        assert caplog.text.count("t-partition-1 has ended") == 1
        assert "t-partition-0 has" not in caplog.text

    with caplog.at_level(logging.WARNING):
        await go()


async def test_logs_of_a_broker_that_hangs_hold_up_no_others() -> None:
    """SPK-5: more of them than are renewed at a time, and each for longer than a lease lasts"""

    class HalfHangs:
        def __init__(self) -> None:
            self.reading = self
            self.renewed: Counter[str] = Counter()
            self.cancelled: Counter[str] = Counter()

        async def renew_lease(self, log: str, incarnation: str, lease_id: bytes, lease_ms: int) -> None:
            if int(log) % 2 and lease_ms:
                try:
                    await asyncio.Event().wait()
                finally:
                    self.cancelled[log] += 1
            self.renewed[log] += 1

    service = HalfHangs()
    leases = StreamLeases(cast(AsyncAdmin, service), create_lease(600))
    for number in range(400):
        leases.add_log(str(number), "i")
    await until(lambda: all(service.renewed[str(number)] >= 3 for number in range(0, 400, 2)), "they are renewed")
    # The others are requested again.
    await until(lambda: all(service.cancelled[str(number)] >= 2 for number in range(1, 400, 2)), "they are repeated")
    await leases.release_all()
    assert asyncio.all_tasks() == {asyncio.current_task()}
