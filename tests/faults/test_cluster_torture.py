"""A cluster whose brokers, bookies, ZooKeeper's servers and clients are struck under load loses nothing; and what finds
that out can find the contrary."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar_cli.local_java import NoJava, find_java
from magnetar_wire.randomness import SeededRandomness
from tests.faults.client_work import PLAIN
from tests.faults.cluster_clients import Progress
from tests.faults.cluster_nemesis import Kind, Parts, Round, Sort, Strike, next_round
from tests.faults.cluster_torture import PLACES, ClusterTorture
from tests.faults.standalone_checker import check
from tests.faults.standalone_history import Histories
from tests.running import run

# A dead broker's topics take messages again within five seconds of its session's end. Here machines are shared with
# other tests: the figure itself is what the torture reports.
_GENEROUS_S = 45.0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_cluster_loses_nothing_whatever_is_struck(tmp_path: Path) -> None:
    """OWN-1, OWN-2, STO-1, STO-2, CHK-33, CHK-58: nothing with a receipt is lost or out of order, what was acknowledged
    with a receipt comes no more, and no ledger is left that nobody knows of or that lacks a replica; topics of a broker
    that was killed are taken over when its session is over."""
    try:
        find_java()
    except NoJava as error:
        pytest.skip(str(error))

    async def body() -> None:
        async with ClusterTorture(tmp_path, "a test", brokers=2) as torture:
            owner = (await torture.owners.of([PLAIN]))[PLAIN].broker_id
            other = next(name for name in torture.cluster.brokers if name != owner)
            await torture.round(Round(Sort.ALONE, (Strike(Kind.KILL, owner, for_s=6.0),), 0.0))
            await torture.round(
                Round(
                    Sort.BORNE,
                    (
                        Strike(Kind.STOP, other, for_s=0.5),
                        Strike(Kind.BREAK, owner, at_s=1.0, for_s=0.5),
                        Strike(Kind.KILL, "bookie-2", for_s=1.0),
                        Strike(Kind.KILL, "zookeeper-1", for_s=1.0),
                        Strike(Kind.KILL, "publish-1", at_s=0.5),
                        Strike(Kind.UNLOAD, PLACES[1], at_s=0.2),
                    ),
                    0.5,
                )
            )
            wild = [Strike(Kind.KILL, name, for_s=0.5) for name in torture.cluster.names]
            await torture.round(Round(Sort.WILD, (*wild, Strike(Kind.KILL, "consume-1", at_s=0.2)), 0.0))
            await torture.end()
        report = torture.report
        assert report.good, str(report)
        assert len(report.resumptions) == 1
        assert report.resumptions[0].resumed_s < _GENEROUS_S
        assert report.verdict.sent > 1000
        assert report.verdict.receipts > 100

    run(body(), timeout_s=290)


# ── what is struck ──


def test_what_everybody_bears_strikes_one_of_each_kind_at_most() -> None:
    parts = Parts(["broker-1", "broker-2"], ["bookie-1", "bookie-2"], ["zookeeper-1"], ["publish-1"], ["t0"])
    chance = SeededRandomness("rounds")
    rounds = [next_round(chance, parts) for _ in range(500)]
    assert {one.sort for one in rounds} == set(Sort)
    for one in rounds:
        struck = [strike.target for strike in one.strikes]
        assert len(struck) == len(set(struck))
        if one.sort is Sort.ALONE:
            assert len(struck) == 1
        if one.sort is Sort.BORNE:
            for kind in ("broker", "bookie", "zookeeper"):
                assert sum(name.startswith(kind) for name in struck) <= 1
    wild = [strike.target for one in rounds if one.sort is Sort.WILD for strike in one.strikes]
    assert {"broker-1", "broker-2", "bookie-1", "bookie-2", "zookeeper-1", "publish-1", "t0"} == set(wild)
    again = SeededRandomness("rounds")
    assert [next_round(again, parts) for _ in range(500)] == rounds


# ── what is known of it ──


@pytest.fixture
def histories(tmp_path: Path) -> Iterator[Histories]:
    histories = Histories(tmp_path)
    yield histories
    histories.close()


def test_progress_knows_what_is_missing_still(histories: Histories) -> None:
    progress = Progress(histories.folder, ["t0.keep", "t0.cumulative", "t1.keep"])
    producer, consumer = histories.of("producer"), histories.of("consumer")
    producer.say("ok", producer="t0.p", numbers=[0, 1], partition=-1)
    consumer.say("got", consumer="t0.cumulative#1", items=[["t0.p", 1, [5, 1, -1, -1]], ["t0.p", 2, [5, 2, -1, -1]]])
    progress.read_on()
    assert progress.left(kept=False) == {"t0.cumulative": 1}
    assert progress.left(kept=True) == {"t0.keep": 2}
    # What came before its receipt did is not missing afterwards.
    producer.say("ok", producer="t0.p", numbers=[2], partition=-1)
    progress.read_on()
    assert progress.left(kept=False) == {"t0.cumulative": 1}
    consumer.say("got", consumer="t0.cumulative#2", items=[["t0.p", 0, [5, 0, -1, -1]]])
    progress.read_on()
    assert progress.left(kept=False) == {}
    assert progress.left(kept=True) == {"t0.keep": 3}


def test_progress_knows_when_a_topic_took_something_again(histories: Histories) -> None:
    progress = Progress(histories.folder, [])
    lines = [
        '{"at": 10.0, "what": "ok", "producer": "t0.p", "numbers": [1], "partition": -1}',
        '{"at": 12.0, "what": "ok", "producer": "t2.p", "numbers": [1], "partition": 1}',
        '{"at": 15.0, "what": "ok", "producer": "t0.p", "numbers": [2], "partition": -1}',
        '{"at": 16.0, "what": "ok", "pro',  # it was killed
    ]
    (histories.folder / "producer.jsonl").write_text("\n".join(lines))
    progress.read_on()
    assert progress.first_receipt_after("t0", 9.0) == 10.0
    assert progress.first_receipt_after("t0", 10.0) == 15.0
    assert progress.first_receipt_after("t0", 15.0) is None
    assert progress.first_receipt_after("t2-partition-1", 0.0) == 12.0
    assert progress.first_receipt_after("t2-partition-0", 0.0) is None
    assert (progress.last_receipt("t0"), progress.last_receipt("t1")) == (15.0, 0.0)


def test_each_life_of_a_reader_goes_forward(histories: Histories) -> None:
    producer, reader = histories.of("producer"), histories.of("reader")
    producer.say("will", producer="t0.p", to=1)
    items = [["t0.p", 0, [5, 0, -1, -1]], ["t0.p", 1, [5, 1, -1, -1]]]
    for life in ("t0.reader#1", "t0.reader#2"):
        reader.say("opened", consumer=life)
        reader.say("got", consumer=life, items=items)
    assert check(histories).problems == []
    reader.say("got", consumer="t0.reader#2", items=items[:1])
    assert check(histories).problems == ["t0.reader: (5, 0, -1, -1) came after (5, 1, -1, -1)"]
