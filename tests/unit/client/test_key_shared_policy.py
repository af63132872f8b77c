"""The policy of a consumer of a Key_Shared subscription."""

from __future__ import annotations

from typing import Any

import pulsar
import pytest

from magnetar import ConsumerKeySharedPolicy, ConsumerType, KeySharedMode
from magnetar._consuming.consumer_options import consumer_options
from magnetar.exceptions import InvalidConfiguration

STICKY = KeySharedMode.Sticky


@pytest.mark.parametrize("library", ["magnetar", "pulsar"])
def test_a_policy_is_made_as_in_the_stock_client(library: str) -> None:
    """(SUB-5)"""
    kind: Any = ConsumerKeySharedPolicy if library == "magnetar" else pulsar.ConsumerKeySharedPolicy
    mode: Any = KeySharedMode if library == "magnetar" else pulsar.KeySharedMode
    default = kind()
    assert (default.key_shared_mode, default.allow_out_of_order_delivery) == (mode.AutoSplit, False)
    sticky = kind(mode.Sticky, True, [(100, 200), (0, 5), (6, 6), (65_535, 65_535)])
    assert (sticky.key_shared_mode, sticky.allow_out_of_order_delivery) == (mode.Sticky, True)
    assert sticky.sticky_ranges == [(100, 200), (0, 5), (6, 6), (65_535, 65_535)]


@pytest.mark.parametrize("library", ["magnetar", "pulsar"])
@pytest.mark.parametrize(
    ("ranges", "text"),
    [
        (None, "sticky_ranges"),
        ([], "sticky_ranges"),
        ([(-1, 5)], "0 <= first <= last <= 65535"),
        ([(5, 65_536)], "0 <= first <= last <= 65535"),
        ([(6, 5)], "0 <= first <= last <= 65535"),
        ([(0, 5), (5, 9)], r"\(0, 5\) and \(5, 9\) overlap"),
        ([(50, 60), (0, 99)], r"\(0, 99\) and \(50, 60\) overlap"),
    ],
)
def test_ranges_that_are_missing_or_invalid_or_overlap_are_refused(
    library: str, ranges: list[tuple[int, int]] | None, text: str
) -> None:
    """(SUB-12)"""
    if library == "pulsar":
        if ranges != [] and ranges != [(6, 5)]:  # which the stock client leaves to the broker
            with pytest.raises(Exception, match=r".+"):
                pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, sticky_ranges=ranges)
        return
    with pytest.raises(InvalidConfiguration, match=text) as error:
        ConsumerKeySharedPolicy(STICKY, sticky_ranges=ranges)
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("Sticky",), "use KeySharedMode.AutoSplit or KeySharedMode.Sticky"),
        ((KeySharedMode.AutoSplit, False, [(0, 5)]), "no effect with KeySharedMode.AutoSplit"),
        ((STICKY, False, 5), "sticky_ranges = 5: use a list"),
        ((STICKY, False, [5]), "a range is"),
        ((STICKY, False, [(1, 2, 3)]), "a range is"),
        ((STICKY, False, [(1, "2")]), "a range is"),
    ],
)
def test_arguments_without_a_meaning_are_refused(arguments: Any, text: str) -> None:
    with pytest.raises(InvalidConfiguration, match=text):
        ConsumerKeySharedPolicy(*arguments)


def test_a_policy_needs_a_key_shared_subscription() -> None:
    policy = ConsumerKeySharedPolicy()
    with pytest.raises(InvalidConfiguration, match=r"use consumer_type = ConsumerType\.KeyShared"):
        consumer_options({"subscription_name": "s", "key_shared_policy": policy})
    options = {"subscription_name": "s", "key_shared_policy": policy, "consumer_type": ConsumerType.KeyShared}
    assert consumer_options(options).key_shared_policy is policy
