"""A deduplicated topic stores each message once: all observers saw it at one id.

Ids with two messages are left out: they are reported as corrupted.
"""

from __future__ import annotations

from tests.faults.checker.rule import Rule


class StoredTwice(Rule):
    name = "stored_twice"

    def end(self) -> None:
        facts = self.facts
        for partition in facts.partition_list:
            topic = facts.topic_of(partition.name)
            if topic is None or not topic.deduplicated:
                continue
            seen_here: dict[int, int] = {}
            for slot, one in enumerate(partition.content):
                if one < 0 or slot in partition.disputed:
                    continue
                if one in seen_here:
                    first = facts.where(partition, seen_here[one])
                    self.found(f"{facts.text(one)} is at {first} and at {facts.where(partition, slot)}")
                seen_here[one] = slot


RULE = StoredTwice
