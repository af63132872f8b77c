"""How a transaction becomes a multi, and what its refusals teach."""

from __future__ import annotations

from magnetar_metadata.paths import counter_path
from magnetar_metadata.store import ABSENT, ANY, Change, Check, Delete, Put
from magnetar_metadata.zookeeper.multi_plan import Kind, MultiPlan, Next, Operation, Refusal, Role


def _shape(plan: MultiPlan) -> list[tuple[str, str, str]]:
    return [(each.kind.value, each.role.value, each.path) for each in plan.operations()]


def _find(plan: MultiPlan, path: str) -> Operation:
    return next(each for each in plan.operations() if each.path == path)


def test_put_of_any_version_switches_between_set_and_create() -> None:
    plan = MultiPlan([Put("/a/b/c", b"", ANY)], ())
    assert _shape(plan) == [("set", "change", "/a/b/c")]
    assert plan.learn(_find(plan, "/a/b/c"), Refusal.NO_NODE) is Next.AGAIN
    assert _shape(plan) == [("create", "change", "/a/b/c")]
    assert plan.learn(_find(plan, "/a/b/c"), Refusal.NO_NODE) is Next.LOOK_FOR_PARENTS
    assert plan.parents() == ["/a", "/a/b"]
    plan.set_missing_parents(["/a/b"])
    assert _shape(plan) == [("create", "parent", "/a/b"), ("create", "change", "/a/b/c")]
    assert plan.learn(_find(plan, "/a/b"), Refusal.NODE_EXISTS) is Next.AGAIN
    assert plan.learn(_find(plan, "/a/b/c"), Refusal.NODE_EXISTS) is Next.AGAIN
    assert _shape(plan) == [("set", "change", "/a/b/c")]


def test_missing_parents_are_created_once_unless_the_transaction_does() -> None:
    changes: list[Change] = [Put("/a", b"", ABSENT), Put("/a/b/c", b"", ABSENT), Put("/a/b/d", b"", ABSENT)]
    plan = MultiPlan(changes, ())
    plan.set_missing_parents(["/a", "/a/b"])
    assert [path for _, _, path in _shape(plan)] == ["/a", "/a/b", "/a/b/c", "/a/b/d"]
    assert [each.index for each in plan.operations()] == [0, 1, 1, 2]


def test_counters_of_changed_subtrees_are_updated_last_and_once() -> None:
    changes: list[Change] = [Put("/r/a", b"", 0), Delete("/r/b", 0), Check("/s/c", 0), Put("/t/u/v", b"", 0)]
    plan = MultiPlan(changes, ("/r", "/s", "/t", "/t/u"))
    assert [each.path for each in plan.operations() if each.role is Role.COUNTER] == [
        counter_path(root) for root in ("/r", "/t", "/t/u")
    ]
    assert all(each.version == ANY for each in plan.operations()[4:])
    assert plan.learn(plan.operations()[-1], Refusal.NO_NODE) is Next.MAKE_COUNTERS


def test_counters_of_different_roots_are_different_nodes() -> None:
    roots = ["/a/b", "/a%2Fb", "/a", "/b", "/a%b", "/a%25b"]
    assert len({counter_path(root) for root in roots}) == len(roots)


def test_refusals_are_reported_except_missing_parents_of_a_create() -> None:
    changes: list[Change] = [Put("/a", b"", 3), Delete("/b", ANY), Check("/c", 0), Put("/d", b"", ABSENT)]
    plan = MultiPlan(changes, ())
    for operation in plan.operations():
        for why in Refusal:
            expected = Next.REPORT
            if operation.kind is Kind.CREATE and why is Refusal.NO_NODE:
                expected = Next.LOOK_FOR_PARENTS
            assert plan.learn(operation, why) is expected


def test_replaced_ephemeral_node_gets_a_different_version() -> None:
    """OWN-2: a client that expects the old node's version does not replace the new one."""
    changes: list[Change] = [Put("/a", b"", 0, ephemeral=True), Put("/b", b"", 7, ephemeral=True)]
    assert _shape(MultiPlan(changes, ())) == [
        ("delete", "change", "/a"),
        ("create", "change", "/a"),
        ("set", "change", "/a"),
        ("delete", "change", "/b"),
        ("create", "change", "/b"),
    ]
    assert [each.version for each in MultiPlan(changes, ()).operations() if each.kind is Kind.DELETE] == [0, 7]
