"""The methods of the administration clients are those that applications were written against."""

from __future__ import annotations

import inspect

from magnetar.admin import Admin, AsyncAdmin
from tests.unit.admin_records import SURFACE, find_difference
from tests.unit.client.admin_surface import describe_surface, group_classes


def test_methods_have_the_recorded_signatures() -> None:
    """Methods may be added to admin_surface.txt; none is changed or removed."""
    difference = find_difference(SURFACE, describe_surface())
    assert not difference, difference


def test_both_clients_have_the_same_documented_methods() -> None:
    with Admin("magnetar://localhost:1") as admin:
        synchronous = group_classes(admin)
    for group, asynchronous in group_classes(AsyncAdmin("magnetar://localhost:1")).items():
        methods = {name: one for name, one in vars(synchronous[group]).items() if inspect.isfunction(one)}
        others = dict(inspect.getmembers(asynchronous, inspect.isfunction))
        for name in [name for name in others if not name.startswith("_")]:
            assert inspect.iscoroutinefunction(others[name]), f"{group}.{name}"
            assert inspect.getdoc(methods[name]) == inspect.getdoc(others[name]) is not None, f"{group}.{name}"
