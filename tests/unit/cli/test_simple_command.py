"""Commands that are declared: what they print of a call's result."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from magnetar_cli.administration import simple_command
from magnetar_cli.administration.simple_command import Argument, SimpleCommand, add_command


class _FakeAdmin:
    """Implements `subscriptions.skip_all` and `subscriptions.delete`."""

    @property
    def subscriptions(self) -> _FakeAdmin:
        return self

    def skip_all(self, topic: str, subscription: str) -> int:
        return 1234

    def delete(self, topic: str, subscription: str) -> None:
        return


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    def act_on_fake(url: str, act: Callable[[Any], object], *, changes: bool) -> object:
        assert changes
        return act(_FakeAdmin())

    monkeypatch.setattr(simple_command, "administered", act_on_fake)
    app = typer.Typer()
    arguments = (Argument("topic", str), Argument("subscription", str))
    add_command(
        app,
        SimpleCommand(
            "skip",
            "subscriptions.skip_all",
            "Skip.",
            arguments=arguments,
            confirms="Skip {topic}",
            prints="{subscription} of {topic}: {entries:,} skipped",
            result="entries",
        ),
    )
    add_command(
        app, SimpleCommand("delete", "subscriptions.delete", "Delete.", arguments=arguments, prints="{topic}: deleted")
    )
    return app


def _run(app: typer.Typer, *words: str) -> str:
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def test_a_command_prints_the_result_of_its_call(app: typer.Typer) -> None:
    assert _run(app, "skip", "orders", "billing", "--yes") == "billing of orders: 1,234 skipped\n"


def test_a_result_is_an_object_in_json(app: typer.Typer) -> None:
    printed = json.loads(_run(app, "skip", "orders", "billing", "--yes", "--json"))
    assert printed == {"topic": "orders", "subscription": "billing", "entries": 1234}


def test_a_command_without_a_result_has_no_json(app: typer.Typer) -> None:
    assert _run(app, "delete", "orders", "billing") == "orders: deleted\n"
    assert CliRunner().invoke(app, ["delete", "orders", "billing", "--json"]).exit_code == 2
