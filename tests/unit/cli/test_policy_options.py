"""The options of `magnetar namespaces policies`, which are made from the table of policies."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from magnetar.admin import (
    AutoTopicCreation,
    BacklogQuota,
    DelayedDelivery,
    NamespacePolicies,
    Persistence,
    Retention,
    TopicPolicies,
)
from magnetar_cli.administration.policy_options import policy_options, read_policies
from magnetar_cli.command import app
from tests.unit.broker.http.admin_scene import running_http


def test_options_and_values_of_both_levels_have_the_same_policies() -> None:
    for of_topics, kind in ((False, NamespacePolicies), (True, TopicPolicies)):
        options = {option.name for option in policy_options(of_topics=of_topics)} - {"remove", "partitions", "every"}
        assert options == set(kind.__dataclass_fields__)


def test_values_are_read_by_their_kind() -> None:
    values: dict[str, Any] = {
        "persistence": "3,3,2",
        "auto_topic_creation": True,
        "partitions": 4,
        "retention": "time_minutes=60,size-mb=-1",
        "message_ttl_seconds": 5,
        "backlog_quota_size": "policy=producer_exception,limit_size_bytes=9",
        "delayed_delivery": "active=true",
        "subscription_types_enabled": "Shared,Failover",
        "properties": "a-b=c=d",
        "schema_compatibility": "FULL",
        "remove": ["publish-rate"],
    }
    policies, removed = read_policies(NamespacePolicies, values)
    assert policies == NamespacePolicies(
        persistence=Persistence(3, 3, 2),
        auto_topic_creation=AutoTopicCreation(True, 4),
        retention=Retention(60, -1),
        message_ttl_seconds=5,
        backlog_quota_size=BacklogQuota("producer_exception", 9),
        delayed_delivery=DelayedDelivery(True),
        subscription_types_enabled=("Shared", "Failover"),
        properties={"a-b": "c=d"},
        schema_compatibility="FULL",
    )
    assert removed == ["publish_rate"]


@pytest.mark.parametrize(
    ("values", "hint"),
    [
        ({"persistence": "3,3"}, "e.g. 3,3,2"),
        ({"retention": "60"}, "write time_minutes=…,size_mb=…"),
        ({"retention": "time_minutes=60"}, "give at least time_minutes=…,size_mb=…"),
        ({"retention": "time_minutes=x,size_mb=1"}, "use a whole number"),
        ({"retention": "nonsense=1"}, "use time_minutes, size_mb"),
        ({"delayed_delivery": "active=maybe"}, "use true or false"),
        ({"properties": "x"}, "write e.g. team=storage"),
        ({"partitions": 4}, "give both"),
        ({"remove": ["nonsense"]}, "use one of persistence"),
    ],
)
def test_values_that_do_not_fit_are_refused_with_what_does(values: dict[str, Any], hint: str) -> None:
    with pytest.raises(typer.BadParameter, match=re.escape(hint)):
        read_policies(NamespacePolicies, values)


@pytest.mark.parametrize("level", ["topics", "namespaces"])
def test_the_help_has_each_option_and_its_values_on_a_narrow_terminal(level: str) -> None:
    shown = CliRunner().invoke(app, [level, "policies", "--help"], env={"COLUMNS": "80"}, terminal_width=80).stdout
    for option in policy_options(of_topics=level == "topics"):
        assert option.name == "every" or f"--{option.name.replace('_', '-')}" in shown
    text = " ".join(shown.split())
    assert "policy (producer_request_hold or producer_exception or consumer_backlog_eviction)." in text
    for words in ("limit_size_bytes", "limit_time_seconds", "delete_when_subscriptions_caught_up", "ALWAYS_COMPATIBLE"):
        assert words in text
    assert "Of Exclusive, Shared" in text


async def test_policies_without_an_effect_are_marked() -> None:
    """TOP-4: what is set by the command is shown with what is not yet in effect."""
    async with running_http() as scene:

        async def run(*options: str) -> tuple[str, str]:
            command = ["namespaces", "policies", "public/default", *options, "--url", f"http://{scene.address}"]
            ended = await asyncio.to_thread(CliRunner().invoke, app, command)
            assert ended.exit_code == 0, ended.stderr
            return ended.stdout, ended.stderr

        shown, _ = await run()
        assert shown == "no policy is set: they are as in the brokers' settings (--all lists them)\n"
        await run("--persistence", "1,1,1")
        shown, warnings = await run("--compaction-threshold-bytes", "5")
        assert "compactionThreshold is stored, and not yet in effect" in warnings
        lines = {line.split("  ")[0].strip(): line for line in shown.splitlines()}
        assert "5 (stored, not yet in effect)" in lines["compaction threshold bytes"]
        assert "not yet in effect" not in lines["persistence"]
        assert (lines.keys() & {"compaction threshold bytes", "persistence", "retention"}) == {
            "compaction threshold bytes",
            "persistence",
        }
        shown, _ = await run("--remove", "compaction_threshold_bytes", "--remove", "properties")
        lines = {line.split("  ")[0].strip(): line for line in shown.splitlines()}
        assert "as in the brokers' settings" in lines["compaction threshold bytes"]
        assert lines["properties"].split() == ["properties", "none"]
        shown, _ = await run("--all")
        assert "no other policy" not in shown
        assert "those of its tenant" in next(line for line in shown.splitlines() if line.startswith("allowed clusters"))
        shown, _ = await run("--compaction-threshold-bytes", "7", "--json")
        found = json.loads(shown)
        assert (found["retention"], found["compaction_threshold_bytes"]) == (None, 7)
        assert found["not_in_effect"] == ["compaction_threshold_bytes"]
