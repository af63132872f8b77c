"""Systems under load and faults lose nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar_cli.local_java import NoJava, find_java
from tests.faults.checker.recorder import Recorder
from tests.faults.torture import faults, workloads
from tests.faults.torture.__main__ import torture
from tests.faults.torture.cluster import Cluster
from tests.faults.torture.report import Report
from tests.faults.torture.rig import Plan
from tests.faults.torture.standalone import Standalone

pytestmark = pytest.mark.slow

_CLUSTER_S, _STANDALONE_S = 60.0, 15.0


def check_report(report: Report, kinds: int, receipts: int) -> None:
    """It is clean, and was not so because nothing happened."""
    assert report.clean, str(report)
    assert report.verdict is not None
    assert len(report.faults) >= kinds, str(report)
    assert report.calm_share > 0.2, str(report)
    assert report.verdict.figures["messages with a receipt"] > receipts, str(report)
    assert report.verdict.figures["acknowledgements with a receipt"] > receipts / 10, str(report)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_cluster_loses_nothing_under_faults(tmp_path: Path) -> None:
    """OWN-1, OWN-2, STO-1, STO-2, MSG-4, WIRE-1, CHK-33, CHK-58: no message with a receipt is lost or out of order, by
    either protocol; none whose acknowledgement has a receipt is redelivered; every ledger that is left has an owner and
    all replicas; and the partitions of a broker that fails alone are taken over when its session is over.
    """
    try:
        find_java()
    except NoJava as error:
        pytest.skip(str(error))
    # The times are reported, and are no findings: other tests use this machine, too.
    plan = Plan("a test", _CLUSTER_S, workloads.all(), faults.all(), times=False)
    report = torture(
        tmp_path, plan, lambda folder, recorder: Cluster(folder, recorder, brokers=2, bookies=4, zookeepers=1)
    )
    check_report(report, kinds=4, receipts=2000)
    assert report.resumptions, str(report)
    assert report.ledgers
    if not report.not_done:  # with Spark, that is
        assert report.verdict is not None
        topics = [topic for workload in workloads.all() for topic in workload.topics if topic.is_persistent]
        not_scanned = [topic.name for topic in topics if not (topic.retains_all or topic.appears)]
        appearing = [f" in {topic.name}," for topic in topics if topic.appears]
        unscanned = [
            text
            for text in report.verdict.not_judged
            if "of which nothing was scanned" in text and not any(name in text for name in appearing)
        ]
        assert len(unscanned) == len(not_scanned), unscanned
        assert all(any(f" in {name}," in text for name in not_scanned) for text in unscanned), unscanned


@pytest.mark.timeout(600)
def test_standalone_loses_nothing_under_faults(tmp_path: Path) -> None:
    """CHK-33, CHK-58, ACK-1, PRD-9, PRD-10: what had a receipt is there, in order; what was acknowledged comes no more,
    and no ledger is left that nobody knows of."""
    # At the end, retention takes a minute.
    quick = [one for one in workloads.all() if one.name != "keeping"]
    plan = Plan("a test", _STANDALONE_S, quick, faults.all(), times=False, spark=False)
    report = torture(tmp_path, plan, Standalone)
    check_report(report, kinds=2, receipts=1000)
    assert any(name.startswith("KILL") for name in report.faults), str(report)


def test_failed_system_start_is_reported(tmp_path: Path) -> None:
    class Broken(Standalone):
        async def __aenter__(self) -> Broken:
            raise OSError("its disk is missing")

    def make(folder: Path, recorder: Recorder) -> Broken:
        return Broken(folder, recorder)

    report = torture(tmp_path, Plan("a test", 1.0, (), ()), make)
    assert not report.clean
    assert report.problems == ["the run broke off: OSError: its disk is missing"]
    assert "its disk is missing" in (tmp_path / "rig.err").read_text()
    assert '"clean": false' in (tmp_path / "report.json").read_text()
