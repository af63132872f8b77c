"""Lists of topics, with any names and patterns."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from magnetar_broker.server.topic_list_rules import Listing, TopicPattern, UnusablePattern, differences
from magnetar_wire.topic_name import MAX_PARTITION_INDEX, TopicName
from tests.examples import examples

_TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), min_size=1, max_size=8)
_LOCAL = st.one_of(
    _TEXT.filter(lambda text: text not in (".", "..")),
    st.from_regex(r"\A[a-c]-partition-[0-9]{1,3}\Z"),
    st.from_regex(r"\A(-partition-){1,2}[0-9]{0,2}\Z"),
)
_NAMES = st.lists(_LOCAL.map(lambda local: f"persistent://public/default/{local}"), max_size=8, unique=True)
_PATTERNS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.text("ab.*+?()[]{}|\\^$-,01:/=!<p", max_size=40),
)


@given(_NAMES, _NAMES, st.integers(1, 200))
@examples(50)
def test_differences_make_one_list_of_the_other(before: list[str], after: list[str], max_bytes: int) -> None:
    known = set(before)
    for piece in differences(before, after, max_bytes):
        assert known.issuperset(piece.deleted)
        assert known.isdisjoint(piece.new)
        size = Listing.of([*piece.new, *piece.deleted]).bytes
        assert size <= max_bytes or len(piece.new) + len(piece.deleted) == 1
        known = (known - set(piece.deleted)) | set(piece.new)
    assert known == set(after)
    assert Listing.of(known) == Listing.of(after)


@given(_PATTERNS, _NAMES)
@examples(100)
def test_any_topic_pattern_is_usable_or_refused(pattern: str, names: list[str]) -> None:
    try:
        taken = TopicPattern(pattern, 1000)
    except UnusablePattern:
        return
    for name in names:
        taken.matches(name)


@given(_LOCAL, st.integers(0, MAX_PARTITION_INDEX))
def test_a_pattern_means_a_topic_and_all_of_its_partitions(local: str, index: int) -> None:
    """The same topics as by the names' own rules."""
    topic = TopicName.parse(f"persistent://public/default/{local}")
    pattern = TopicPattern(f"persistent://{re.escape(str(topic.base).partition('://')[2])}", 10_000)
    assert pattern.matches(str(topic))
    if not topic.is_partition:
        assert pattern.matches(str(topic.partition(index)))
        assert not pattern.matches(f"{topic}-partition-0{index}")
