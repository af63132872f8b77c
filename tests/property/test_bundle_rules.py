"""The rules of bundles against dumb models: whose a hash is, splits, what a broker holds, who gets the next one."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from magnetar_broker.ownership.bundle_map import BundleMap
from magnetar_broker.ownership.load_rules import (
    Candidate,
    LoadReportRule,
    RecentAssignments,
    ReportedLoad,
    order_by_load,
)
from magnetar_broker.ownership.namespace_bundles import (
    decode_bundle_at,
    decode_bundles,
    is_bundle,
    split_bundle_starts,
    split_point_by_range,
)
from magnetar_wire.bundles import LAST_HASH, BundleRange
from magnetar_wire.topic_name import NamespaceName

HASHES = st.integers(0, LAST_HASH) | st.sampled_from([0, 1, LAST_HASH - 1, LAST_HASH])
NAMESPACES = [NamespaceName("t", name) for name in "ab"]
# Few, so that ranges meet.
CUTS = [0, 10, 20, 30, 40, LAST_HASH]
RANGES = [BundleRange(low, high) for low in CUTS for high in CUTS if low < high]


@st.composite
def starts(draw: st.DrawFn) -> list[int]:
    inner = draw(st.sets(st.integers(1, LAST_HASH - 1) | st.integers(1, 20), max_size=12))
    return draw(st.sampled_from([[], [0, *sorted(inner)]]))


@given(starts(), HASHES)
def test_every_hash_has_one_bundle(begins: list[int], topic_hash: int) -> None:
    """OWN-1."""
    bundles = decode_bundles(begins)
    (found,) = [bundle for bundle in bundles if topic_hash in bundle]
    assert decode_bundle_at(begins, topic_hash) == found
    assert is_bundle(begins, found)
    assert bundles[0].lower == 0
    assert bundles[-1].upper == LAST_HASH
    assert all(left.upper == right.lower for left, right in itertools.pairwise(bundles))


@given(starts(), HASHES, HASHES)
def test_a_split_cuts_one_bundle_and_leaves_the_others(begins: list[int], topic_hash: int, at: int) -> None:
    """OWN-1."""
    before = decode_bundles(begins)
    whole = decode_bundle_at(begins, topic_hash)
    try:
        after = decode_bundles(split_bundle_starts(begins, whole, at))
    except ValueError:
        assert not whole.lower < at < whole.upper
        return
    halves = [BundleRange(whole.lower, at), BundleRange(at, whole.upper)]
    assert list(after) == sorted([bundle for bundle in before if bundle != whole] + halves)
    assert not is_bundle(split_bundle_starts(begins, whole, at), whole)
    try:
        middle = split_point_by_range(whole)
    except ValueError:
        assert whole.upper - whole.lower == 1
    else:
        lower, upper = BundleRange(whole.lower, middle), BundleRange(middle, whole.upper)
        assert abs((lower.upper - lower.lower) - (upper.upper - upper.lower)) <= 1


@given(st.lists(st.integers(0, LAST_HASH), min_size=1, max_size=5), HASHES)
def test_foreign_beginnings_are_no_bundles(begins: list[int], topic_hash: int) -> None:
    try:
        bundles = decode_bundles(begins)
    except ValueError:
        assert begins[0] != 0 or sorted(set(begins)) != begins or begins[-1] == LAST_HASH
    else:
        assert sum(topic_hash in bundle for bundle in bundles) == 1


@given(st.lists(st.tuples(st.sampled_from(NAMESPACES), st.sampled_from(RANGES), st.booleans()), max_size=40))
def test_bundle_map_finds_values_by_topic_hash(steps: list[tuple[NamespaceName, BundleRange, bool]]) -> None:
    held: BundleMap[int] = BundleMap()
    model: dict[tuple[NamespaceName, BundleRange], int] = {}
    for number, (namespace, bundle, adds) in enumerate(steps):
        overlapping = [
            value
            for (name, one), value in sorted(model.items(), key=lambda item: item[0][1])
            if name == namespace and one.lower < bundle.upper and bundle.lower < one.upper
        ]
        assert held.find_overlapping(namespace, bundle) == overlapping
        assert held.get(namespace, bundle) == model.get((namespace, bundle))
        if adds and not overlapping:
            held.add(namespace, bundle, number)
            model[namespace, bundle] = number
        elif not adds and (namespace, bundle) in model:
            held.remove(namespace, bundle)
            del model[namespace, bundle]
        for name in NAMESPACES:
            for cut in CUTS:
                for topic_hash in (max(0, cut - 1), cut, min(cut + 1, LAST_HASH)):
                    found = [value for (other, one), value in model.items() if other == name and topic_hash in one]
                    assert held.find(name, topic_hash) == (found[0] if found else None)
        assert len(held) == len(model)
        assert sorted(held) == sorted(model.values())


@given(
    st.lists(
        st.tuples(st.floats(0, 2), st.floats(0, 3), st.integers(0, 50)),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 60),
)
def test_bundles_go_to_the_least_loaded_and_are_spread_over_the_idle(
    brokers: list[tuple[float, float, int]], count: int
) -> None:
    """OWN-3's choice of the least loaded, which OWN-1 needs: nobody that is busier gets one while another has half a
    core to spare; and those that have end as level as their bundles of before let them."""
    recent = RecentAssignments()
    candidates = [
        Candidate(f"b{number}", (1, b""), cpu, lag, bundles) for number, (cpu, lag, bundles) in enumerate(brokers)
    ]
    given_to = {one.broker_id: 0 for one in candidates}
    for _ in range(count):
        chosen = order_by_load(candidates, recent)[0]
        recent.add(chosen)
        given_to[chosen.broker_id] += 1
    least = min(one.load for one in candidates)
    for one in candidates:
        assert given_to[one.broker_id] == 0 or one.load == least
    level = [one.bundles + given_to[one.broker_id] for one in candidates if given_to[one.broker_id]]
    assert max(level) - min(level) <= 1
    for one in candidates:
        if one.load == least and not given_to[one.broker_id]:
            assert one.bundles >= max(level) - 1
    # A report that is newer knows of them.
    newer = Candidate("b0", (2, b""), 0.0, 0.0, 0)
    assert recent.count(newer) == 0


@given(
    st.floats(0, 1), st.floats(0, 1), st.integers(0, 3), st.floats(0, 1), st.floats(0, 1), st.integers(0, 3),
    st.floats(0, 100),
)  # fmt: skip
def test_load_is_reported_when_changed_or_outdated(
    cpu: float, lag: float, bundles: int, cpu_now: float, lag_now: float, bundles_now: int, since_s: float
) -> None:
    rule = LoadReportRule(threshold=0.1, min_interval_s=5.0, max_interval_s=60.0)
    due = rule.is_due(ReportedLoad(cpu, lag, bundles), ReportedLoad(cpu_now, lag_now, bundles_now), since_s)
    changed = abs(cpu_now - cpu) >= 0.1 or abs(lag_now - lag) >= 0.1
    assert due == (bundles != bundles_now or since_s >= 60.0 or (since_s >= 5.0 and changed))
