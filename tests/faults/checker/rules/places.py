"""What carries one key lies in one place, and one message in one place, even if it was sent again.

When a topic grows its keys move, and each producer learns of it in its own time: then a key may lie in one place for
each number of partitions there has been. What was sent before it grew lies where it lay. A message without a key may go
anywhere.
"""

from __future__ import annotations

from collections import defaultdict

from tests.faults.checker.rule import Rule
from tests.faults.checker.things import Place, Topic


class Places(Rule):
    name = "places"

    def end(self) -> None:
        of_topic: dict[str, list[Place]] = defaultdict(list)
        for place in self.facts.place_list:
            topic = self.facts.topic_of(place.name)
            if topic is not None:
                of_topic[topic.name].append(place)
        for name, places in of_topic.items():
            if len(places) > 1:
                self._look(self.facts.topics[name], places)

    def _look(self, topic: Topic, places: list[Place]) -> None:
        facts = self.facts
        place_of: dict[int, Place] = {}
        key_places: dict[int, set[str]] = defaultdict(set)
        first_places: dict[int, set[str]] = defaultdict(set)
        grew_at = topic.partitions[1][0] if len(topic.partitions) > 1 else float("inf")
        for place in places:
            for slot, one in enumerate(place.content):
                if one < 0 or slot in place.disputed or facts.producer_of(one).topic is not topic:
                    continue
                if place_of.setdefault(one, place) is not place:
                    self.found(f"{facts.text(one)} is in {place_of[one].name} and in {place.name}")
                    continue
                key = facts.key_of(one)
                if facts.key_list[key] is not None:
                    key_places[key].add(place.name)
                    if facts.sent_at(one) < grew_at:
                        first_places[key].add(place.name)
        for key, names in sorted(key_places.items()):
            before = first_places.get(key, set())
            if len(names) > len(topic.partitions) or len(before) > 1:
                self.found(f"the key {facts.key_list[key]!r} of {topic.name} is in {', '.join(sorted(names))}")


RULE = Places
