"""A driver's leases are renewed often enough that one renewal may fail."""

from __future__ import annotations

from typing import cast

from magnetar.admin import AsyncAdmin
from magnetar.exceptions import ConnectError
from magnetar_spark.leases import RENEWALS, Leases, new_lease
from tests.running import run, until
from tests.unit.spark.fake_service import FakeService


def test_a_renewal_that_fails_is_made_up_for_in_half_of_a_leases_time() -> None:
    """SPK-5: a lease surely holds for half of its time only"""
    assert RENEWALS // 2 >= 3

    async def go() -> None:
        service = FakeService()
        service.create("t")
        log = service["t"]
        lease = new_lease(60)
        log.leases[lease.lease_id] = (1, 60)
        leases = Leases(cast(AsyncAdmin, service), lease)
        leases.took("persistent://public/default/t", log.incarnation)
        service.failing["renew_lease"] = ConnectError("a broker moves")
        await until(lambda: service.asked.count("renew_lease") >= 3, "it went on after that")
        await leases.end()
        assert log.leases == {}

    run(go())
