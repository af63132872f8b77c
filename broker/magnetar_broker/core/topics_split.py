"""Where a bundle is cut so that either part has as many topics."""

from __future__ import annotations

from collections.abc import Iterable

from magnetar_wire.bundles import BundleRange

__all__ = ["middle_of_topics"]


def middle_of_topics(bundle: BundleRange, topic_hashes: Iterable[int]) -> int | None:
    """The first hash of the upper part; None: the topics that are in it can't be told apart.

    Of 3 topics at 10, 20 and 90 the lower part gets the first, and the cut is halfway to the next: at 15.
    """
    hashes = sorted(one for one in topic_hashes if one in bundle)
    # Topics of one hash stay together: the gap that is nearest to the middle.
    for place in sorted(range(1, len(hashes)), key=lambda place: abs(len(hashes) - 2 * place)):
        below, above = hashes[place - 1], hashes[place]
        cut = below + (above - below + 1) // 2
        if below < cut < bundle.upper:
            return cut
    return None
