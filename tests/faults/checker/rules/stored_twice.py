"""On deduplicated topics a message is stored once: whoever looked has seen it at one id.

Ids at which two have seen two messages are left out: that is told of as corrupted.
"""

from __future__ import annotations

from tests.faults.checker.rule import Rule


class StoredTwice(Rule):
    name = "stored_twice"

    def end(self) -> None:
        facts = self.facts
        for place in facts.place_list:
            topic = facts.topic_of(place.name)
            if topic is None or not topic.deduplicated:
                continue
            seen_here: dict[int, int] = {}
            for slot, one in enumerate(place.content):
                if one < 0 or slot in place.disputed:
                    continue
                if one in seen_here:
                    first = facts.where(place, seen_here[one])
                    self.found(f"{facts.text(one)} is at {first} and at {facts.where(place, slot)}")
                seen_here[one] = slot


RULE = StoredTwice
