"""How far behind a stream is, measured over many logs, and at what rate messages are published."""

from __future__ import annotations

from typing import cast

from magnetar.admin import AsyncAdmin
from magnetar.exceptions import ConnectError
from magnetar_spark.stream.lag_report import BatchMetrics, LagReport
from magnetar_spark.stream.offsets import LogOffset
from tests.unit.spark.fake_service import FakeService

LOGS = [f"persistent://public/default/t-partition-{number}" for number in range(3)]


class Scene:
    """Three logs of four messages each."""

    def __init__(self) -> None:
        self.now = 100.0
        self.service = FakeService()
        self.service.create("t", 3)
        for number, log in enumerate(LOGS):
            self.service[log].publish(range(10 * number, 10 * number + 4))
        self.lag = LagReport(cast(AsyncAdmin, self.service), lambda: self.now)

    def offsets(self) -> dict[str, LogOffset]:
        return {log: LogOffset(self.service[log].incarnation, self.service[log].first) for log in LOGS}

    async def behind(self) -> list[int]:
        await self.lag.update(self.offsets(), {}, BatchMetrics())
        shown = self.lag.format()
        assert shown is not None
        assert shown["total"]["messages_behind"] == sum(
            shown[log]["messages_behind"] for log in shown.keys() - {"total"}
        )
        return [shown[log]["messages_behind"] for log in LOGS if log in shown]

    @property
    def rate(self) -> float:
        shown = self.lag.format()
        assert shown is not None
        return float(shown["total"]["published_per_second"])


async def test_lag_of_unplanned_logs_is_refreshed_at_intervals() -> None:
    """SPK-2: at first, and again when a while has passed; by a question that takes no lease"""
    scene = Scene()
    assert await scene.behind() == [4, 4, 4]
    count = len(scene.service.requests)
    scene.service[LOGS[1]].publish([15])
    assert await scene.behind() == [4, 4, 4]
    assert len(scene.service.requests) == count
    scene.now += 1.5
    assert await scene.behind() == [4, 5, 4]
    assert not any(scene.service[log].leases for log in LOGS)


async def test_lag_of_an_unreachable_log_retains_its_last_value() -> None:
    """SPK-2: and fails no query"""
    scene = Scene()
    scene.service.failing["plan"] = ConnectError("a broker moves")
    assert await scene.behind() == [4, 4]
    assert await scene.behind() == [4, 4, 4]
    scene.now += 1.5
    for log in LOGS:
        scene.service[log].publish([99])
    scene.service.failing["plan"] = ConnectError("a broker moves")
    assert sorted(await scene.behind()) == [4, 5, 5]


async def test_a_deleted_log_has_no_messages_and_the_number_of_a_recreated_one_is_unknown() -> None:
    """SPK-2: a micro-batch waits for more of the other logs, and does not wait where a number is unknown"""
    scene = Scene()
    offsets = scene.offsets()
    assert await scene.lag.count_messages_behind(offsets) == 12
    del scene.service.logs[LOGS[2]]
    assert await scene.lag.count_messages_behind(offsets) == 8
    scene.service.failing["plan"] = ConnectError("a broker moves")
    assert await scene.lag.count_messages_behind(offsets) is None
    scene.service.create("t-partition-2")
    assert await scene.lag.count_messages_behind(offsets) is None
    offsets = scene.offsets()
    assert await scene.lag.count_messages_behind(offsets) == 8


async def test_deleted_log_is_excluded_from_lag_and_not_queried_again() -> None:
    """SPK-2: its messages are not counted as lag"""
    scene = Scene()
    offsets = scene.offsets()
    await scene.lag.update(offsets, {}, BatchMetrics())
    del scene.service.logs[LOGS[2]]
    scene.now += 1.5
    await scene.lag.update(offsets, {}, BatchMetrics())
    count = len(scene.service.requests)
    await scene.lag.update(offsets, {}, BatchMetrics())
    assert len(scene.service.requests) == count
    shown = scene.lag.format()
    assert shown is not None
    assert shown.keys() == {*LOGS[:2], "total"}
    assert shown["total"]["messages_behind"] == 8


async def test_the_rate_at_which_messages_are_published() -> None:
    """SPK-2: a log that was deleted and made again counts from then on"""
    scene = Scene()
    await scene.behind()
    assert scene.rate == 0
    scene.now += 2
    scene.service[LOGS[0]].publish([90, 91])
    scene.service[LOGS[1]].publish([92])
    await scene.behind()
    assert scene.rate == 1.5
    scene.now += 4
    del scene.service.logs[LOGS[2]]
    scene.service.create("t-partition-2")
    scene.service[LOGS[0]].publish([93, 94])
    await scene.behind()
    assert scene.rate == 0.5
