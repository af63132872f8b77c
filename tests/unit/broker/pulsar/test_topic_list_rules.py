"""Lists of topics: what their hash is, which topics a pattern means, what has changed."""

from __future__ import annotations

import pytest

from magnetar_broker.server.topic_list_rules import Listing, TopicPattern, UnusablePattern, differences

_NS = "persistent://public/default/"


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        ((), "00000000"),
        (("a",), "e4a876e3"),
        (("b-partition-1", "a", "b-partition-0"), "ea6926f0"),
        # Java sorts by UTF-16 units: U+1F600 comes before U+FF21.
        (("ü", "\U0001f600", "\uff21"), "bdec2152"),
    ],
)
def test_the_hash_is_pulsars(topics: tuple[str, ...], expected: str) -> None:
    """As `TopicList.calculateHash` of Pulsar 4.0.7 has it. WIRE-1."""
    assert Listing.of(_NS + name for name in topics).hash == expected
    assert Listing.of(_NS + name for name in reversed(topics)).hash == expected


@pytest.mark.parametrize(
    ("pattern", "means"),
    [
        (_NS + "a.*", {"a", "ab-partition-0"}),
        ("public/default/a.*", {"a", "ab-partition-0"}),
        (f"^{_NS}a", {"a"}),
        (f"(?i){_NS}A", {"a"}),
        (f"non-{_NS}a", {"a"}),
        (_NS + "ab", {"ab-partition-0"}),
        (_NS + "ab-partition-0", set()),
        (_NS + ".*-partition-.*", {"c-partition-01", "-partition-1"}),
        ("a.*", set()),
        (".*", {"a", "ab-partition-0", "c-partition-01", "-partition-1"}),
    ],
)
def test_a_pattern_means_whole_topics_without_domain_and_partition(pattern: str, means: set[str]) -> None:
    """As `TopicList.filterTopics` of Pulsar 4.0.7. WIRE-1."""
    one = TopicPattern(pattern, 1000)
    names = ["a", "ab-partition-0", "c-partition-01", "-partition-1"]
    assert {name for name in names if one.matches(_NS + name)} == means
    assert one.matches("non-persistent://public/default/a") == one.matches(_NS + "a")


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", "x://a", "persistent://a://b", "(?:\\pL?){900}", "a" * 1001])
def test_unusable_topic_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(UnusablePattern, match="pattern"):
        TopicPattern(pattern, 1000)


def test_a_pattern_that_would_take_for_ever_elsewhere_does_not() -> None:
    one = TopicPattern(_NS + "(a|a?)+(a|a?)+(a|a?)+b", 1000)
    assert not one.matches(_NS + "a" * 700)
    assert one.matches(_NS + "a" * 700 + "b")


def test_topic_list_difference_is_split_to_fit_the_maximum() -> None:
    before = ["deleted", *(f"stays{number}" for number in range(10))]
    after = [*before[1:], *(f"nü{number}" for number in range(10))]
    [whole_deleted, whole_new] = differences(before, after, 1_000_000)
    assert (whole_deleted.deleted, whole_deleted.new) == (["deleted"], [])
    assert (whole_new.deleted, whole_new.new) == ([], after[10:])
    pieces = list(differences(before, after, 20))
    assert [name for piece in pieces for name in piece.new] == after[10:]
    assert all(len(piece.new) == 2 for piece in pieces[1:])  # 8 bytes each
    assert [list(one.new) for one in differences([], ["x" * 100], 20)] == [["x" * 100]]
    assert not list(differences(before, before, 20))
