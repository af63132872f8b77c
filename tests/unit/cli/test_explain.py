"""What `magnetar explain subscription` prints: first the answer, then what to do, then the facts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from magnetar import MessageId
from magnetar.admin import ConsumerStats, DeliveryReason, PartExplanation, SubscriptionExplanation
from magnetar_cli.administration import explain
from magnetar_cli.command import app
from magnetar_cli.exit_codes import ExitCode
from tests.unit.cli.test_stats_views import IDLE, SUBSCRIPTION, rows

_TOPIC = "persistent://public/default/t"
_HELD = DeliveryReason("no_permits", "the receiver queue of consumer a is full", "Call receive.", {"who": "consumer a"})
_IDLE = DeliveryReason("no_backlog", "everything is acknowledged", "Publish.", normal=True)
_EXPIRED = DeliveryReason("expired", "2 entries expired", "Consume faster.")
_CONSUMER = ConsumerStats("a", 1, "10.0.0.1:5", 5, 0, 0, 7, "full", IDLE, 0, 0, {}, "python 3.13", reason=_HELD)
_STATS = replace(SUBSCRIPTION, subscription="s", type="SHARED", backlog_entries=9, consumers=(_CONSUMER,))
_PART = PartExplanation(_TOPIC, "b1", True, (_HELD,), _STATS, MessageId(-1, 3, 8), 1_700_000_000_000)


def _run(monkeypatch: pytest.MonkeyPatch, found: SubscriptionExplanation, *options: str) -> Any:
    monkeypatch.setattr(explain, "call_admin", lambda url, act: found)
    return CliRunner().invoke(app, ["explain", "subscription", "t", "s", *options], env={"COLUMNS": "200"})


def test_the_answer_comes_first_then_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """ADM-3"""
    found = SubscriptionExplanation(_TOPIC, "s", (_HELD, _EXPIRED), (_PART,))
    ended = _run(monkeypatch, found)
    answer, action, also, *_ = ended.output.splitlines()
    assert answer == f"s of {_TOPIC} is held back: the receiver queue of consumer a is full"
    assert action == "What to do: Call receive."
    assert also == "Also: 2 entries expired. Consume faster."
    facts = rows(ended.output)
    assert facts["backlog"] == "9 entries"
    assert facts["last entry"] == "3:8:-1, published at 2023-11-14 22:13:20.000 UTC"
    assert "consumer a is full" in ended.output.splitlines()[-1]
    assert ended.exit_code == ExitCode.HELD_BACK


def test_a_subscription_that_works_exits_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """ADM-3"""
    found = SubscriptionExplanation(_TOPIC, "s", (_IDLE,), (replace(_PART, loaded=False, stats=None, last=None),))
    ended = _run(monkeypatch, found)
    assert ended.output.startswith(f"s of {_TOPIC} has nothing to do: everything is acknowledged\n")
    assert "which had not loaded it before" in ended.output
    assert ended.exit_code == 0
    delivering = replace(found, reasons=(replace(_IDLE, code="delivering", text="nothing is held back"),))
    assert f"s of {_TOPIC} delivers: nothing" in _run(monkeypatch, delivering).output


def test_partitions_have_a_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """ADM-3"""
    parts = [replace(_PART, topic=f"{_TOPIC}-partition-{number}") for number in range(2)]
    parts[1] = replace(parts[1], owner_broker="", stats=None, reasons=(_IDLE,))
    found = SubscriptionExplanation(_TOPIC, "s", (replace(_HELD, partitions=(0,)), _IDLE), parts)
    lines = _run(monkeypatch, found).output.splitlines()
    assert lines[0].endswith("consumer a is full (partition 0)")
    assert lines[-2].split()[:4] == ["0", "b1", "9", "1"]
    assert lines[-1].split()[:3] == ["1", "no", "broker"]


def test_unacknowledged_messages_are_shown_where_brokers_count_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """ADM-3: not of Exclusive and Failover, where their number is always 0. Of Key_Shared, what waits was not delivered
    before."""
    found = SubscriptionExplanation(_TOPIC, "s", (_HELD,), (_PART,))
    assert {"not acknowledged", "waits for redelivery"} <= rows(_run(monkeypatch, found).output).keys()
    part = replace(_PART, stats=replace(_STATS, type="KEY_SHARED"))
    assert "waits for its consumers" in rows(_run(monkeypatch, replace(found, parts=(part,))).output)
    part = replace(_PART, stats=replace(_STATS, type="FAILOVER"))
    output = _run(monkeypatch, replace(found, parts=(part,))).output
    assert "not acknowledged" not in rows(output)
    assert "unacknowledged" not in output


def test_json_has_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """ADM-3"""
    ended = _run(monkeypatch, SubscriptionExplanation(_TOPIC, "s", (_HELD,), (_PART,)), "--json")
    shown = json.loads(ended.output)
    assert shown["reasons"][0]["code"] == "no_permits"
    assert shown["parts"][0]["stats"]["consumers"][0]["reason"]["facts"] == {"who": "consumer a"}
    assert ended.exit_code == 6
