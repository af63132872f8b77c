"""The table of admin calls, and what is made from it: handlers, methods and the guide."""

from __future__ import annotations

import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any, Final

from magnetar.admin import Admin, AsyncAdmin
from magnetar_protos import admin_pb2, reading_pb2
from magnetar_wire.admin.call import Partitions, Scope
from magnetar_wire.admin.calls import ADMIN_CALLS
from magnetar_wire.transport import Code, Rejected
from tests.unit.admin_records import WIRE, describe_wire, find_difference
from tests.unit.broker.broker_scene import URL as URL_OF_SCENE
from tests.unit.broker.broker_scene import running_broker
from tests.unit.client.admin_surface import GROUPS, group_classes

PROJECT: Final = Path(__file__).resolve().parents[2]
URL: Final = "magnetar://localhost:1"
ROWS: Final = ADMIN_CALLS.values()


def _generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate_admin", PROJECT / "client" / "generate_admin.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_methods_and_guide_are_in_step_with_the_table() -> None:
    for path, text in _generator().generate().items():
        assert path.read_text() == text, f"{path.name} is out of step: run `python client/generate_admin.py`"


async def test_every_row_has_a_handler_at_each_broker_that_needs_one() -> None:
    """The calls that a broker serves are those of the table."""
    async with running_broker() as scene:
        connection = scene.transport.connect(URL_OF_SCENE.removeprefix("magnetar://"))

        async def is_served(method: str) -> bool:
            try:
                await connection.call(method, b"", timeout_s=30.0)
            except Rejected as error:
                return error.code is not Code.UNIMPLEMENTED
            return True

        for row in ROWS:
            assert await is_served(f"admin.{row.name}") is not row.is_between_brokers, row.name
            assert await is_served(f"here.{row.name}") is row.has_owner, row.name
        assert not await is_served("admin.format_disk")
        assert not await is_served("here.format_disk")
        await connection.close()


def test_every_row_has_methods_in_both_clients_and_a_line_in_the_guide() -> None:
    guide = (PROJECT / "client" / "administration.md").read_text()
    named = []
    with Admin(URL) as admin:
        synchronous, asynchronous = group_classes(admin), group_classes(AsyncAdmin(URL))
    for row in ROWS:
        assert bool(row.methods) is not row.is_between_brokers, row.name
        for method in row.methods:
            group, _, name = method.name.partition(".")
            for written in (name, *method.aliases):
                assert inspect.isfunction(getattr(synchronous[group], written))
                assert inspect.iscoroutinefunction(getattr(asynchronous[group], written))
                assert f"`{group}.{written}`" in guide
                named.append(f"{group}.{written}")
        assert f"| `{row.name}` |" in guide or row.is_between_brokers, row.name
    public = [f"{group}.{name}" for group in GROUPS for name in dir(asynchronous[group]) if not name.startswith("_")]
    assert set(named) == set(public)


def test_rows_fit_their_messages() -> None:
    for row in ROWS:
        assert "problem" in row.response.DESCRIPTOR.fields_by_name, row.name
        if row.scope is Scope.TOPIC:
            assert row.topic_field in row.request.DESCRIPTOR.fields_by_name, row.name
        else:
            assert row.partitions is Partitions.REFUSED, row.name


def test_every_call_of_the_proto_files_has_a_row() -> None:
    """The messages of the two files are those of rows, and parts of them."""
    used: set[str] = set()

    def visit(message: Any) -> None:
        if message.full_name not in used:
            used.add(message.full_name)
            for field in message.fields:
                if field.message_type is not None:
                    visit(field.message_type)

    for row in ROWS:
        visit(row.request.DESCRIPTOR)
        visit(row.response.DESCRIPTOR)
    for file in (admin_pb2, reading_pb2):
        for message in file.DESCRIPTOR.message_types_by_name.values():
            assert message.full_name in used, message.full_name


def test_heads_of_requests_name_the_calls_and_responses_of_the_table() -> None:
    """The comment above a request in the .proto files names each call that has it, no other one, and the responses."""
    described: dict[str, str] = {}
    for file in ("admin", "reading"):
        text = (PROJECT / "protos" / "magnetar_protos" / f"{file}.proto").read_text()
        described |= {name: comment for comment, name in re.findall(r"((?:^//.*\n)+)message (\w+)", text, re.MULTILINE)}
    for name, comment in described.items():
        rows = [row for row in ROWS if row.request.__name__ == name]
        assert bool(rows) is comment.startswith("// call"), name
        if rows:
            calls = {row.name for row in rows}
            fields = set(rows[0].request.DESCRIPTOR.fields_by_name) - calls
            assert set(re.findall(r"`(\w+)`", comment)) - fields == calls, name
            for row in rows:
                assert re.search(rf"\b{row.response.__name__}\b", comment), row.name
    assert {row.request.__name__ for row in ROWS} <= set(described)


def test_names_and_messages_on_the_wire_are_the_recorded_ones() -> None:
    """Brokers and clients of other versions find each other. Calls may be added to admin_wire.txt."""
    difference = find_difference(WIRE, describe_wire())
    assert not difference, difference


def test_calls_that_clients_repeated_before_are_repeated_now() -> None:
    """What a client sends again after a lost answer, written down apart from the table."""
    changes = {
        *("create_cluster", "update_cluster", "delete_cluster"),
        *("create_tenant", "update_tenant", "delete_tenant"),
        *("create_namespace", "update_namespace", "delete_namespace", "unload_namespace", "unload_bundle"),
        *("change_policies", "change_namespace_properties", "clear_namespace_backlog", "unsubscribe_namespace"),
        *("split_bundle", "create_topic", "delete_topic", "truncate_topic", "unload_topic"),
        *("change_topic_policies", "store_topic_policies"),
        *("create_partitioned", "grow_partitioned", "delete_partitioned", "terminate_partitioned"),
        *("create_subscription", "delete_subscription", "reset_subscription", "skip", "expire"),
        *("expire_all", "set_subscription_properties"),
        *("set_dynamic_setting", "delete_dynamic_setting", "delete_schema"),
    }
    assert {row.name for row in ROWS if not row.idempotent} == changes
    repeated = {"unload_topic", "unload_bundle", "terminate_partitioned", "set_subscription_properties"}
    assert {row.name for row in ROWS if row.repeated_at_owner} == repeated


def test_every_path_has_a_summary() -> None:
    """`/openapi.json` shows it: the route's own, or the docstring of a method that is not written by hand."""
    for row in ROWS:
        for route in row.routes:
            has_summary = route.summary or any(method.doc for method in row.methods)
            assert has_summary or route.client_only, f"{row.name}: {route.path} has no summary"
