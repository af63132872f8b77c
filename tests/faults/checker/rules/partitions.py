"""Messages with the same key are in one partition, and a message is in one partition, even if it was resent.

When a topic grows its keys move, and each producer notices in its own time: then a key may be in one partition for each
number of partitions that the topic had. Messages sent before stay where they are. One without a key may go anywhere.
"""

from __future__ import annotations

from collections import defaultdict

from tests.faults.checker.rule import Rule
from tests.faults.checker.things import Partition, Topic


class PartitionRule(Rule):
    name = "places"

    def end(self) -> None:
        of_topic: dict[str, list[Partition]] = defaultdict(list)
        for partition in self.facts.partition_list:
            topic = self.facts.topic_of(partition.name)
            if topic is not None:
                of_topic[topic.name].append(partition)
        for name, partitions in of_topic.items():
            if len(partitions) > 1:
                self._look(self.facts.topics[name], partitions)

    def _look(self, topic: Topic, partitions: list[Partition]) -> None:
        facts = self.facts
        partition_of: dict[int, Partition] = {}
        key_partitions: dict[int, set[str]] = defaultdict(set)
        first_partitions: dict[int, set[str]] = defaultdict(set)
        grew_at = topic.partitions[1][0] if len(topic.partitions) > 1 else float("inf")
        for partition in partitions:
            for slot, one in enumerate(partition.content):
                if one < 0 or slot in partition.disputed or facts.producer_of(one).topic is not topic:
                    continue
                if partition_of.setdefault(one, partition) is not partition:
                    self.found(f"{facts.text(one)} is in {partition_of[one].name} and in {partition.name}")
                    continue
                key = facts.key_of(one)
                if facts.key_list[key] is not None:
                    key_partitions[key].add(partition.name)
                    if facts.sent_at(one) < grew_at:
                        first_partitions[key].add(partition.name)
        for key, names in sorted(key_partitions.items()):
            before = first_partitions.get(key, set())
            if len(names) > len(topic.partitions) or len(before) > 1:
                self.found(f"the key {facts.key_list[key]!r} of {topic.name} is in {', '.join(sorted(names))}")


RULE = PartitionRule
