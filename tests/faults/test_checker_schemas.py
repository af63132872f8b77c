"""A schema that evolves, as the checker sees it: versions that change, and values that are not those that were sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.checker import BrokenHistory, Verdict, judge
from tests.faults.invented_histories import RIG, Story

OLD: dict[str, list[Any]] = {"id": [], "city": ["Ulm"]}
NEW: dict[str, list[Any]] = {"id": [], "speed": [1.0]}
SENT: list[dict[str, Any]] = [{"id": 0, "city": "Bern"}, {"id": 1, "speed": 2.5}]


class Scene:
    """Two producers with a definition each, which get the versions 0 and 1, and a message of each."""

    def __init__(self) -> None:
        self.story = Story()
        say = self.story.say
        say(RIG, "topic", topic="t", partitions=0, order="producer", deduplicated=False)
        say(RIG, "subscription", subscription="t.s", topic="t", type="Shared", durable=True)
        for version, (name, fields) in enumerate({"old": OLD, "new": NEW}.items()):
            self.offer(name, fields)
            say("p", "producer", producer=name, topic="t", definition=name)
            items = [[0, "00000000", None]]
            say("p", "sending", producer=name, items=items, values=[SENT[version]])
            self.answer(name, "registered", version)
        self.offer("wrong", {"id": [], "must": []}, compatible=False)

    def offer(self, name: str, fields: dict[str, list[Any]], *, compatible: bool = True) -> None:
        self.story.say("p", "offering", topic="t", definition=name, fields=fields, compatible=compatible)

    def answer(self, name: str, result: str, version: int | None = None) -> None:
        more = {} if version is None else {"version": version}
        self.story.say("p", "offered", topic="t", definition=name, result=result, why="", **more)

    def list_versions(self, *names: str, since: float | None = None) -> None:
        versions = [[version, name] for version, name in enumerate(names)]
        begun = self.story.now if since is None else since
        self.story.say(RIG, "registry", since=begun, topic="t", versions=versions)

    def consume(self, consumer: str, definition: str, *values: dict[str, Any]) -> None:
        more = {"definition": definition} if definition else {}
        name = f"t.s#{consumer}"
        self.story.say(consumer, "opening", consumer=name, subscription="t.s", **more)
        items = [[writer, 0, version, values[version]] for version, writer in enumerate(("old", "new"))]
        self.story.say(consumer, "decoded", consumer=name, items=items)

    def judged(self, folder: Path) -> Verdict:
        return judge(self.story.write(folder / "history"))

    def findings(self, folder: Path) -> dict[str, int]:
        return dict(self.judged(folder).counts)


def test_correct_evolution_is_clean(tmp_path: Path) -> None:
    """Readers of both definitions and one without read both, and a refusal, an unknown answer and an early list are no
    findings.
    """
    scene = Scene()
    since = scene.story.now
    scene.offer("later", {"id": []})
    scene.answer("later", "registered", 2)
    scene.list_versions("old", "new", since=since)
    scene.answer("wrong", "refused")
    scene.answer("wrong", "unknown")
    scene.answer("old", "unknown")
    scene.answer("new", "registered")
    scene.consume("old reader", "old", {"id": 0, "city": "Bern"}, {"id": 1, "city": "Ulm"})
    scene.consume("new reader", "new", {"id": 0, "speed": 1.0}, {"id": 1, "speed": 2.5})
    scene.consume("any reader", "", *SENT)
    scene.list_versions("old", "new", "later")
    verdict = scene.judged(tmp_path)
    assert verdict.clean, str(verdict)
    assert not [text for text in verdict.not_judged if "registry" in text]
    assert verdict.figures["messages decoded"] == 6
    assert verdict.figures["definitions registered"] == 4


@pytest.mark.parametrize(
    "value",
    [{"id": 1, "city": "Bern"}, {"id": 1}, {"id": 1.0, "city": "Ulm"}, {"id": True, "city": "Ulm"}, {**SENT[1]}],
)
def test_value_other_than_sent_is_found(tmp_path: Path, value: dict[str, Any]) -> None:
    scene = Scene()
    scene.consume("reader", "old", SENT[0], value)
    assert scene.findings(tmp_path) == {"decoded": 1}


def test_value_of_consumer_without_definition_other_than_sent_is_found(tmp_path: Path) -> None:
    scene = Scene()
    scene.consume("reader", "", SENT[0], {**SENT[1], "city": "Ulm"})
    assert scene.findings(tmp_path) == {"decoded": 1}


def test_failed_decoding_is_found_unless_the_registry_was_unavailable(tmp_path: Path) -> None:
    scene = Scene()
    scene.consume("reader", "old", SENT[0], {"id": 1, "city": "Ulm"})
    for temporary in (True, False):
        fields = {"items": [["old", 0]], "temporary": temporary, "why": "no such version"}
        scene.story.say("reader", "undecoded", consumer="t.s#reader", **fields)
    assert scene.findings(tmp_path) == {"decoded": 1}


def test_value_of_unsent_message_is_found(tmp_path: Path) -> None:
    scene = Scene()
    scene.consume("reader", "old", SENT[0], {"id": 1, "city": "Ulm"})
    for name, number in [("old", 1), ("nobody", 0)]:
        scene.story.say("reader", "decoded", consumer="t.s#reader", items=[[name, number, 0, {"id": 2, "city": "Rom"}]])
    assert scene.findings(tmp_path) == {"decoded": 2}


def test_version_with_two_definitions_is_found_once(tmp_path: Path) -> None:
    scene = Scene()
    scene.offer("other", {"id": []})
    scene.answer("other", "registered", 1)
    scene.answer("other", "registered", 1)
    assert scene.findings(tmp_path) == {"registry": 1}


def test_definition_with_two_versions_is_found(tmp_path: Path) -> None:
    scene = Scene()
    scene.list_versions("old", "new", "old")
    assert scene.findings(tmp_path) == {"registry": 1}


def test_version_of_message_that_is_not_its_producers_is_found(tmp_path: Path) -> None:
    """The second message carries the version of the first one's definition, so both facts about it are wrong."""
    scene = Scene()
    scene.story.say("any", "opening", consumer="t.s#any", subscription="t.s")
    scene.story.say("any", "decoded", consumer="t.s#any", items=[["new", 0, 0, SENT[1]]])
    verdict = scene.judged(tmp_path)
    assert dict(verdict.counts) == {"registry": 2}
    assert {finding.text.partition(",")[0] for finding in verdict.findings} == {
        "version 0 of t is new",
        "new is version 0 of t",
    }


def test_lost_registration_is_found_in_every_later_list(tmp_path: Path) -> None:
    scene = Scene()
    scene.list_versions("old")
    scene.list_versions("old", "new")
    scene.list_versions("old")
    assert scene.findings(tmp_path) == {"registry": 2}


def test_registered_incompatible_definition_is_found(tmp_path: Path) -> None:
    scene = Scene()
    scene.answer("wrong", "unknown")
    scene.list_versions("old", "new", "wrong")
    assert scene.findings(tmp_path) == {"registry": 1}


def test_refusal_of_compatible_definition_is_found(tmp_path: Path) -> None:
    scene = Scene()
    scene.offer("later", {"id": []})
    scene.answer("later", "refused")
    assert scene.findings(tmp_path) == {"registry": 1}


def test_definition_that_nobody_offered_is_found(tmp_path: Path) -> None:
    scene = Scene()
    scene.list_versions("old", "new", "strange")
    assert scene.findings(tmp_path) == {"registry": 1}


def test_registrations_after_the_last_list_are_not_judged(tmp_path: Path) -> None:
    scene = Scene()
    scene.list_versions("old", "new")
    scene.offer("later", {"id": []})
    scene.answer("later", "registered", 2)
    assert [text for text in scene.judged(tmp_path).not_judged if "registry" in text] == [
        "registry: whether 1 registrations of t remained, since no list began after them"
    ]


def test_history_without_needed_lines_is_broken(tmp_path: Path) -> None:
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("producer", {"producer": "other", "topic": "t", "definition": "unknown"}),
        ("opening", {"consumer": "t.s#other", "subscription": "t.s", "definition": "unknown"}),
        ("offered", {"topic": "t", "definition": "unknown", "result": "refused", "why": ""}),
        ("sending", {"producer": "old", "items": [[1, "00000000", None]]}),
        ("offering", {"topic": "t", "definition": "old", "fields": {}, "compatible": True}),
    ]
    for number, (what, fields) in enumerate(wrong):
        scene = Scene()
        scene.story.say(RIG, what, **fields)
        with pytest.raises(BrokenHistory, match=what):
            scene.judged(tmp_path / str(number))
