"""What the checker reads, and its command: the format, histories that are cut off or broken."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults import checker
from tests.faults.checker import BrokenHistory, judge
from tests.faults.checker.__main__ import main
from tests.faults.checker.history import FORMAT
from tests.faults.checker.kinds import KINDS, field_names
from tests.faults.checker.recorder import FORMAT as RECORDED_FORMAT
from tests.faults.checker.recorder import Recorder, digest
from tests.faults.invented_histories import RIG, Story, invent

HERE = Path(checker.__file__).parent


def test_the_document_and_the_reader_know_the_same_kinds_and_fields() -> None:
    documented = {"history": {"format", "writer"}}
    for row in re.findall(r"^\| `.*", (HERE / "history.md").read_text(), re.MULTILINE):
        _, kinds, fields, *_ = row.split("|")
        for kind in re.findall("`([a-z_]+)`", kinds):
            documented[kind] = set(re.findall("`([a-z_]+)`", fields))
    assert documented == {kind: field_names(kind) for kind in KINDS}


def test_checker_reads_history_written_by_recorder(tmp_path: Path) -> None:
    assert RECORDED_FORMAT == FORMAT
    with Recorder(tmp_path, "rig") as rig:
        rig.say("topic", topic="t", partitions=0, order="producer", deduplicated=False)
        rig.say("producer", producer="p", topic="t")
        rig.say("sending", producer="p", items=[[0, digest(b"x"), None]])
        rig.say("receipt", producer="p", place="t", items=[[0, 1, 0, -1]])
        rig.say("scan", reader="r", place="t", items=[["p", 0, digest(b"x"), None, 1, 0, -1]])
        rig.say("scanned", reader="r", place="t", messages=1)
        rig.say("ended")
    verdict = judge(tmp_path)
    assert verdict.clean
    assert verdict.not_judged == []


def test_a_digest_is_of_all_that_a_message_is_made_of() -> None:
    digests = [
        digest(None),
        digest(b""),
        digest(b"x"),
        digest(b"x", ""),
        digest(b"x", "k"),
        digest(b"x", None, {"a": "b"}),
        digest(b"x", None, None, 1),
    ]
    assert len(set(digests)) == len(digests)
    assert digest(b"x", None, {"a": "1", "b": "2"}) == digest(b"x", None, {"b": "2", "a": "1"})


def test_checker_imports_only_itself_and_standard_library() -> None:
    for path in HERE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                own = name == "tests.faults.checker" or name.startswith("tests.faults.checker.")
                assert own or name.partition(".")[0] in sys.stdlib_module_names, f"{path.name} imports {name}"


def test_a_last_line_that_is_cut_off_does_not_count(tmp_path: Path) -> None:
    """A killed writer's file may end at any byte: here within its last receipt."""
    for cut in (1, 2, 30, 60):
        story = Story()
        story.say(RIG, "topic", topic="t", partitions=0, order="producer", deduplicated=False)
        story.say(RIG, "subscription", subscription="t.s", topic="t", type="Shared", durable=True)
        story.say("p", "producer", producer="p", topic="t")
        story.say("p", "sending", producer="p", items=[[0, "00000000", None]])
        story.say("p", "receipt", producer="p", place="t", items=[[0, 1, 0, -1]])
        story.say("spark", "scanned", reader="spark", place="t", messages=0)
        folder = story.write(tmp_path / f"{cut}")
        whole = (folder / "p.jsonl").read_bytes()
        assert dict(judge(folder).counts) == {"lost": 1}
        (folder / "p.jsonl").write_bytes(whole[:-cut])
        assert judge(folder).clean


def test_files_may_be_empty_or_cut_off_in_their_first_line(tmp_path: Path) -> None:
    folder = invent(1).story.write(tmp_path / "history")
    (folder / "empty.jsonl").write_bytes(b"")
    (folder / "cut.jsonl").write_bytes(b'{"at": 1.0, "what": "hist')
    (folder / "other.txt").write_bytes(b"not a history")
    assert judge(folder, times=False).clean


def test_kinds_that_it_does_not_know_are_counted(tmp_path: Path) -> None:
    story = invent(1).story
    story.say(RIG, "weather", sky="blue")
    story.say(RIG, "weather", sky="grey")
    verdict = judge(story.write(tmp_path / "history"), times=False)
    assert verdict.clean
    assert verdict.figures["lines of kinds that the judge doesn't know"] == {"weather": 2}


def test_unfinished_history_lists_unjudged_checks(tmp_path: Path) -> None:
    story = invent(3).story
    end = next(at for at, line in enumerate(story.lines) if line["what"] == "producer_closed")
    del story.lines[end:]
    verdict = judge(story.write(tmp_path / "history"), times=False)
    assert verdict.clean
    assert any("did not come to it" in text for text in verdict.not_judged)
    assert any("was not drained" in text for text in verdict.not_judged)
    assert any("nothing was scanned" in text for text in verdict.not_judged)


TOPIC = {"what": "topic", "topic": "t", "partitions": 0, "order": "producer", "deduplicated": False}
PRODUCER = {"what": "producer", "producer": "p", "topic": "t"}
SENDING = {"what": "sending", "producer": "p", "items": [[0, "00000000", None]]}


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([{**TOPIC, "partitions": "0"}], "partitions"),
        ([{**TOPIC, "partitions": True}], "partitions"),
        ([{**TOPIC, "order": "none"}], "order"),
        ([{name: value for name, value in TOPIC.items() if name != "deduplicated"}], "deduplicated"),
        ([PRODUCER], "'t', which no earlier line creates"),
        ([TOPIC, PRODUCER, PRODUCER], "again"),
        ([TOPIC, SENDING], "'p', which no earlier line opens"),
        ([TOPIC, PRODUCER, {**SENDING, "items": [[1, "00000000", None]]}], "number 0"),
        ([TOPIC, PRODUCER, {**SENDING, "items": [[0, "g", None]]}], "digest"),
        ([TOPIC, PRODUCER, {**SENDING, "items": [[0, "00000000", 5]]}], "items"),
        ([TOPIC, PRODUCER, {**SENDING, "items": [[0, "00000000"]]}], "items"),
        (
            [TOPIC, PRODUCER, {"what": "receipt", "producer": "p", "place": "t", "items": [[0, 1, 0, -1]]}],
            "has not announced",
        ),
        (
            [TOPIC, PRODUCER, SENDING, {"what": "receipt", "producer": "p", "place": "t", "items": [[0, 1, -2, -1]]}],
            "no id",
        ),
        ([TOPIC, {"what": "opening", "consumer": "t.s#1", "subscription": "t.s"}], "which no earlier line creates"),
        ([{"what": "closing", "consumer": "t.s#1"}], "which no earlier line opens"),
        ([{"what": "error", "why": "x"}], "producer"),
        ([{"what": "healed", "fault": 1}], "never began"),
        ([TOPIC, {"what": "scanned", "reader": "r", "place": "t", "messages": 1}], "1 messages"),
        ([{**TOPIC, "at": 0.5}], "before the line before it"),
        ([{"what": "ended", "at": "now"}], "a time `at`"),
        (["no JSON"], "no JSON"),
        ([[]], "no JSON object"),
    ],
)
def test_a_broken_history_is_not_judged(tmp_path: Path, lines: list[Any], why: str) -> None:
    first = {"at": 1.0, "what": "history", "format": 1, "writer": "w"}
    written = [first, *({"at": 2.0, **line} if isinstance(line, dict) else line for line in lines)]
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in written)
    (tmp_path / "w.jsonl").write_text(text)
    with pytest.raises(BrokenHistory, match=re.escape(why)) as caught:
        judge(tmp_path)
    assert f"w.jsonl, line {len(written)}" in str(caught.value)


@pytest.mark.parametrize(
    "first", ['{"at": 1.0, "what": "ended"}', '{"at": 1, "what": "history", "format": 2, "writer": "w"}']
)
def test_file_must_begin_with_header_of_supported_format(tmp_path: Path, first: str) -> None:
    (tmp_path / "w.jsonl").write_text(f"{first}\n")
    with pytest.raises(BrokenHistory, match="line 1"):
        judge(tmp_path)


def test_a_folder_must_have_a_history(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(BrokenHistory, match=r"no f"):
            judge(folder)


def test_lines_of_all_files_are_merged_by_time(tmp_path: Path) -> None:
    """More files than may be open at a time are no matter, if their writers did not live at once."""
    story = Story()
    for number in range(300):
        story.say(f"w{number:03}", "weather", number=number)
    folder = story.write(tmp_path / "history")
    found = [line.fields["number"] for line in checker.history.read(folder) if line.what == "weather"]
    assert found == list(range(300))


def test_command_reports_verdict_and_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    invented = invent(5)
    clean = invented.story.write(tmp_path / "clean")
    assert main([str(clean), "--no-times"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "clean"

    line = next(line for line in invented.story.of("scan"))
    line["items"][0][2] = "00000000"
    wrong = invented.story.write(tmp_path / "wrong")
    assert main([str(wrong), "--no-times"]) == 1
    output = capsys.readouterr().out
    assert "corrupted: 1 findings" in output
    assert "NOT CLEAN" in output

    assert main([str(wrong), "--no-times", "--json"]) == 1
    as_json = json.loads(capsys.readouterr().out)
    assert as_json["counts"] == {"corrupted": 1}
    assert as_json["clean"] is False

    assert main([str(tmp_path / "nowhere")]) == 2
    assert "broken history" in capsys.readouterr().err


def test_of_many_findings_some_are_shown_and_all_are_counted(tmp_path: Path) -> None:
    story = invent(5).story
    scanned = [item for line in story.of("scan") for item in line["items"]]
    for item in scanned:
        item[2] = f"{int(item[2], 16) ^ 1:08x}"
    verdict = judge(story.write(tmp_path / "history"), times=False)
    assert verdict.counts["corrupted"] == len(scanned) > 20
    assert len(verdict.findings) == 20
    assert f"and {len(scanned) - 20} more" in str(verdict)
