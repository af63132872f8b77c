"""The parts of the rig that tortures systems, each by itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.randomness import Randomness
from tests.faults.checker import Verdict
from tests.faults.checker.recorder import Recorder, digest
from tests.faults.mistakes import mistakes_in
from tests.faults.torture import fault_injector, spark_reading
from tests.faults.torture.__main__ import main
from tests.faults.torture.fault import Fault
from tests.faults.torture.fault_injector import FaultInjector
from tests.faults.torture.progress import Progress
from tests.faults.torture.report import Report, Resumption
from tests.faults.torture.schedule import Injection
from tests.faults.torture.spark_reading import Row
from tests.faults.torture.system import System
from tests.running import run

# ── injections ──


@dataclass
class Parts:
    """The part of a system that the injector needs."""

    names: list[str]
    did: list[str] = field(default_factory=list)
    # How often each reports that it is not ready yet.
    not_ready: Counter[str] = field(default_factory=Counter)

    async def ready(self, name: str) -> str:
        self.did.append(f"ready? {name}")
        self.not_ready[name] -= 1
        return "it starts" if self.not_ready[name] >= 0 else ""


@dataclass(frozen=True, eq=False)
class Noted(Fault):
    def targets(self, system: System) -> Sequence[str]:
        return system.names

    async def begin(self, system: System, target: str, chance: Randomness) -> None:
        cast(Any, system).did.append(f"begin {target}")

    async def heal(self, system: System, target: str) -> None:
        cast(Any, system).did.append(f"heal {target}")


def inject_all(
    folder: Path, parts: Parts, *together: Injection, target: str | None = None
) -> tuple[FaultInjector, list[Any]]:
    """And what was written down of it."""
    with Recorder(folder, "rig") as recorder:
        injector = FaultInjector(cast(System, parts), recorder, SeededRandomness("strikes"))

        async def body() -> None:
            for one in together:
                await injector.inject(one, target)

        run(body())
    return injector, [json.loads(line) for line in (folder / "rig.jsonl").read_text().splitlines()[1:]]


def test_fault_is_recorded_as_healed_once_target_is_ready(tmp_path: Path) -> None:
    parts = Parts(["b1"], not_ready=Counter({"b1": 2}))
    injector, recorded = inject_all(tmp_path, parts, Injection(Noted("KILL", "broker"), 0.0, 0.0))
    assert parts.did == ["begin b1", "heal b1", *["ready? b1"] * 3]
    assert [(one["what"], one["fault"]) for one in recorded] == [("fault", 1), ("healed", 1)]
    assert (recorded[0]["kind"], recorded[0]["target"]) == ("KILL", "b1")
    assert injector.done == {"KILL broker": 1}
    assert not injector.problems


def test_fault_without_target_is_counted_but_not_recorded(tmp_path: Path) -> None:
    injector, recorded = inject_all(tmp_path, Parts([]), Injection(Noted("KILL", "broker"), 0.0, 0.0))
    assert (recorded, injector.done, injector.nobody) == ([], {}, {"KILL broker": 1})


def test_target_has_one_fault_at_a_time(tmp_path: Path) -> None:
    fault = Noted("KILL", "broker")
    parts = Parts(["b1"])
    with Recorder(tmp_path, "rig") as recorder:
        injector = FaultInjector(cast(System, parts), recorder, SeededRandomness("strikes"))
        again: list[bool] = []

        class EndsDuringFault(Noted):
            async def begin(self, system: System, target: str, chance: Randomness) -> None:
                again.append(injector.possible(fault))
                await injector.inject(Injection(fault, 0.0, 0.0))

        run(injector.inject(Injection(EndsDuringFault("PAUSE", "broker"), 0.0, 0.0)))
    assert again == [False]
    assert (injector.done, injector.nobody) == ({"PAUSE broker": 1}, {"KILL broker": 1})
    assert injector.possible(fault)


def test_process_that_may_exit_from_its_fault_is_remembered(tmp_path: Path) -> None:
    class Spoilt(Noted):
        may_end = True

    injector, _ = inject_all(tmp_path, Parts(["b1", "b2"]), Injection(Noted("KILL", "bookie"), 0.0, 0.0), target="b1")
    assert injector.may_have_ended == set()
    injector, _ = inject_all(
        tmp_path / "spoilt", Parts(["b1", "b2"]), Injection(Spoilt("DISK", "bookie"), 0.0, 0.0), target="b2"
    )
    assert injector.may_have_ended == {"b2"}


def test_target_that_never_recovers_is_reported_as_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_injector, "STUCK_S", 0.3)
    parts = Parts(["b1"], not_ready=Counter({"b1": 1_000_000}))
    injector, recorded = inject_all(tmp_path, parts, Injection(Noted("KILL", "broker"), 0.0, 0.0))
    assert [one["what"] for one in recorded] == ["fault"]
    (problem,) = injector.problems
    assert "in vain until b1 is ready: it starts" in problem


# ── what is recorded during a run ──


def test_progress_finds_first_persisted_message_after_a_time(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    lines = [
        '{"at":10.0,"what":"receipt","producer":"t.p","place":"t","items":[[1,5,1,-1]]}',
        '{"at":12.0,"what":"receipt","producer":"u.p","place":"u-partition-1","items":[[1,6,1,-1]]}',
        '{"at":13.0,"what":"got","consumer":"a \\"what\\":\\"receipt\\"","place":"t"}',
        '{"at":15.0,"what":"receipt","producer":"t.p","place":"t","items":[[2,5,2,-1]]}',
        '{"at":16.0,"what":"receipt","producer":"t.p","pla',  # it is being written, or was killed
    ]
    path = tmp_path / "publish-1-1.jsonl"
    path.write_text("\n".join(lines))
    progress.read_on()
    assert [progress.first_receipt_after("t", at) for at in (9.0, 10.0, 15.0)] == [10.0, 15.0, None]
    assert progress.first_receipt_after("u-partition-1", 0.0) == 12.0
    assert progress.first_receipt_after("u-partition-0", 0.0) is None
    with path.open("a") as file:
        file.write('ce":"t","items":[[3,5,3,-1]]}\n')
    progress.read_on()
    assert progress.first_receipt_after("t", 15.0) == 16.0


# ── Spark's reading ──


def test_spark_rows_are_recorded_by_partition_in_order(tmp_path: Path) -> None:
    def row(partition: int | None, entry: int, why: str | None = None) -> Row:
        topic = "persistent://public/default/t"
        return Row(topic, partition, 5, entry, -1, "t.p", entry, "00000000", "k", why)

    rows = [row(0, 1), row(0, 2), row(0, 3, "damaged"), row(1, 4)]
    partition_names = ["t-partition-0", "t-partition-1", "t-partition-2"]
    with Recorder(tmp_path, "spark") as recorder:
        spark_reading.write(rows, recorder, partition_names)
    recorded = [json.loads(line) for line in (tmp_path / "spark.jsonl").read_text().splitlines()[1:]]
    scans = [one for one in recorded if one["what"] == "scan"]
    assert [(one["place"], [item[1] for item in one["items"]]) for one in scans] == [
        ("t-partition-0", [1, 2]),
        ("t-partition-1", [4]),
    ]
    assert scans[0]["items"][0] == ["t.p", 1, "00000000", "k", 5, 1, -1]
    assert [(one["place"], one["id"], one["why"]) for one in recorded if one["what"] == "unreadable"] == [
        ("t-partition-0", [5, 3, -1], "damaged")
    ]
    counts = {one["place"]: one["messages"] for one in recorded if one["what"] == "scanned"}
    assert counts == {"t-partition-0": 3, "t-partition-1": 1, "t-partition-2": 0}


def test_a_message_is_known_by_the_columns_of_sparks_source() -> None:
    from random import Random

    from tests.faults.torture.messages import make_message

    for size, key in ((0, None), (None, "k"), (40, "ü"), (9000, None)):
        sent = make_message("t.p", 7, Random(1), size, key)
        columns = (sent.payload, None if key is None else key.encode(), sent.properties, sent.event_ms or None)
        assert spark_reading.identify(*columns) == ("t.p", 7, sent.digest, key, None)
        assert sent.digest == digest(sent.payload, key, sent.properties, sent.event_ms)
    *nobody, why = spark_reading.identify(b"who am I?", None, {}, None)
    assert nobody == [None] * 4
    assert why


# ── the report ──


@pytest.mark.parametrize(
    ("verdict", "problems", "clean"),
    [(Verdict(), [], True), (Verdict(), ["stuck"], False), (None, [], False), (None, ["stuck"], False)],
)
def test_a_run_is_clean_only_if_it_was_judged(verdict: Verdict | None, problems: list[str], clean: bool) -> None:
    assert Report("7", "cluster", verdict=verdict, problems=problems).clean is clean


def test_a_mistake_of_a_process_is_no_clean_run_unless_it_follows_from_a_fault(tmp_path: Path) -> None:
    log = tmp_path / "bookie.log"
    log.write_text("WARNING the loop stood still for 3 s\n")
    report = Report("7", "cluster", verdict=Verdict(), said=mistakes_in([log]))
    assert (len(report.said), report.wrong, report.clean) == (1, [], True)
    with log.open("a") as more:
        more.write("Traceback (most recent call last):\n  ...\nKeyError: 7\n")
    report.said = mistakes_in([log])
    (problem,) = report.wrong
    assert "KeyError: 7" in problem
    assert f"PROBLEM: {problem}" in str(report)
    assert (len(report.said), report.clean) == (2, False)


def test_report_lists_unchecked_ledgers_and_uninjected_faults() -> None:
    report = Report("7", "cluster", not_struck=["KILL broker"])
    assert "nobody knows of ledgers" in str(report)
    assert "not injected: KILL broker" in str(report)
    report.ledgers = 7
    assert "7 ledgers are left, all whole" in str(report)


def test_report_contains_all_results(tmp_path: Path) -> None:
    report = Report("7", "cluster", seconds=60.0, calm_share=0.25, faults=Counter({"KILL broker": 2}))
    report.verdict = Verdict()
    report.verdict.found("lost", "message 7")
    report.problems.append("stuck")
    report.resumptions.append(Resumption("KILL broker-1", 3, 4.1, 0.9))
    report.write(tmp_path / "report.json")
    written = json.loads((tmp_path / "report.json").read_text())
    assert (written["clean"], written["seed"], written["faults"]) == (False, "7", {"KILL broker": 2})
    assert written["resumptions"][0]["resumed_s"] == 0.9
    assert written["verdict"]["counts"] == {"lost": 1}
    for what in ("2 KILL broker", "message 7", "stuck", "4.1 s", "25% calm"):
        assert what in str(report)


@pytest.mark.parametrize(
    ("flag", "named"),
    [
        ("--faults=KILL,WINK", "WINK"),
        ("--workloads=nobody", "nobody"),
        ("--sorts=mild", "mild"),
        ("--minutes=0", "--minutes"),
        ("--brokers=-1", "--brokers"),
    ],
)
def test_invalid_option_is_named_and_exits_with_status_2(
    capsys: pytest.CaptureFixture[str], flag: str, named: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([flag])
    assert ended.value.code == 2
    assert named in capsys.readouterr().err


def test_a_run_needs_a_folder_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "histories").mkdir()
    assert main(["--standalone", f"--folder={tmp_path}"]) == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_spark_task_identifies_each_message() -> None:
    pa = pytest.importorskip("pyarrow")
    from random import Random

    from tests.faults.torture.messages import make_message

    sent = [make_message("t.p", number, Random(number), 40, "k" if number % 2 else None) for number in range(20)]
    columns = (
        pa.array([one.payload for one in sent] + [b"who am I?"], pa.binary()),
        pa.array([None if one.key is None else one.key.encode() for one in sent] + [None], pa.binary()),
        pa.array([list((one.properties or {}).items()) for one in sent] + [None], pa.map_(pa.string(), pa.string())),
        pa.array([one.event_ms * 1000 or None for one in sent] + [None], pa.timestamp("us", tz="UTC")),
    )
    assert any(one.event_ms for one in sent)
    *known, nobodys = spark_reading.identify_all(*columns).to_pylist()
    assert [tuple(one.values()) for one in known] == [("t.p", one.number, one.digest, one.key, None) for one in sent]
    assert [nobodys.pop("why") is None, *nobodys.values()] == [False] + [None] * 4
    nothing = spark_reading.identify_all(*(column.slice(0, 0) for column in columns))
    assert list(Row._fields[5:]) == [one.name for one in nothing.type]
