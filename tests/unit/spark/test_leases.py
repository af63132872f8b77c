"""Leases are renewed often enough that some renewals may fail, whatever becomes of others."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import cast

import pytest

from magnetar.admin import AsyncAdmin
from magnetar.exceptions import ConnectError
from magnetar_spark.leases.batch_lease import new_lease
from magnetar_spark.leases.lease_renewals import RENEWALS
from magnetar_spark.leases.stream_leases import Leases
from tests.running import until
from tests.unit.spark.fake_service import FakeService

LOG = "persistent://public/default/t"


@pytest.mark.parametrize("trouble", [ConnectError("a broker moves"), ValueError("a mistake")])
async def test_a_renewal_that_fails_is_made_up_for_in_half_of_a_leases_time(trouble: Exception) -> None:
    """SPK-5: a lease surely holds for half of its time only"""
    assert RENEWALS // 2 >= 3

    service = FakeService()
    service.create("t")
    log = service["t"]
    lease = new_lease(60)
    log.leases[lease.lease_id] = (1, 60)
    leases = Leases(cast(AsyncAdmin, service), lease)
    leases.took(LOG, log.incarnation)
    service.failing["renew_lease"] = trouble
    await until(lambda: service.asked.count("renew_lease") >= 3, "it went on after that")
    await leases.end()
    assert log.leases == {}
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_ended_lease_is_logged_only_once(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        service = FakeService()
        service.create("t", 2)
        lease = new_lease(60)
        leases = Leases(cast(AsyncAdmin, service), lease)
        kept = service["t-partition-0"]
        kept.leases[lease.lease_id] = (1, 60)
        for index in range(2):
            leases.took(f"{LOG}-partition-{index}", service[f"t-partition-{index}"].incarnation)
        await until(lambda: service.asked.count("renew_lease") >= 6, "the other one is renewed")
        await leases.end()
        assert caplog.text.count("t-partition-1 has ended") == 1
        assert "t-partition-0 has" not in caplog.text

    with caplog.at_level(logging.WARNING):
        await go()


async def test_logs_of_a_broker_that_hangs_hold_up_no_others() -> None:
    """SPK-5: more of them than are ever asked at a time, and each for longer than a lease lasts"""

    class HalfHangs:
        def __init__(self) -> None:
            self.reading = self
            self.renewed: Counter[str] = Counter()
            self.given_up: Counter[str] = Counter()

        async def renew_lease(self, log: str, incarnation: str, lease_id: bytes, lease_ms: int) -> None:
            if int(log) % 2 and lease_ms:
                try:
                    await asyncio.Event().wait()
                finally:
                    self.given_up[log] += 1
            self.renewed[log] += 1

    service = HalfHangs()
    leases = Leases(cast(AsyncAdmin, service), new_lease(600))
    for number in range(400):
        leases.took(str(number), "i")
    await until(lambda: all(service.renewed[str(number)] >= 3 for number in range(0, 400, 2)), "they are renewed")
    # And those are asked again.
    await until(lambda: all(service.given_up[str(number)] >= 2 for number in range(1, 400, 2)), "they are asked")
    await leases.end()
    assert asyncio.all_tasks() == {asyncio.current_task()}
