"""Where a bundle is cut so that either part has as many topics."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar_broker.ownership.namespace_bundles import split_point_by_topics
from magnetar_wire.bundles import LAST_HASH, BundleRange

_NEAR = st.integers(0, 40) | st.integers(LAST_HASH - 20, LAST_HASH) | st.integers(0, LAST_HASH)


@st.composite
def bundles(draw: st.DrawFn) -> BundleRange:
    lower, upper = sorted(draw(st.lists(_NEAR, min_size=2, max_size=2, unique=True)))
    return BundleRange(lower, upper)


@given(bundles(), st.lists(_NEAR, max_size=30))
def test_no_other_cut_divides_the_topics_better(bundle: BundleRange, topics: list[int]) -> None:
    """OWN-1."""
    inside = [one for one in topics if one in bundle]

    def difference(at: int) -> int:
        below = sum(one < at for one in inside)
        return abs(len(inside) - 2 * below)

    # All cuts that separate topics: right behind one of them.
    cuts = [one + 1 for one in inside if bundle.lower < one + 1 < bundle.upper and any(other > one for other in inside)]
    at = split_point_by_topics(bundle, topics)
    if at is None:
        assert not cuts
        return
    lower, upper = BundleRange(bundle.lower, at), BundleRange(at, bundle.upper)
    assert all((one in lower) != (one in upper) for one in inside)
    assert any(one in lower for one in inside)
    assert any(one in upper for one in inside)
    assert difference(at) == min(map(difference, cuts))
