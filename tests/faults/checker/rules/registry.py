"""The versions of a topic's schema: each has one definition, for ever, and each definition one version.

They are observed in the answers to offers, in lists of all versions, and in decoded messages, whose versions have their
producers' definitions. A registration with an answer is in every later list. A definition that the topic must refuse is
never registered, and one that it must accept is never refused.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tests.faults.checker.history import Line
from tests.faults.checker.rule import Rule


@dataclass(slots=True)
class _Versions:
    """What is known of one topic."""

    definitions: dict[int, str] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    # By definition, since when it is known to be registered.
    since: dict[str, float] = field(default_factory=dict)
    # When the last list began.
    listed_at: float = float("-inf")
    # What was reported already.
    reported: set[tuple[int | None, str]] = field(default_factory=set)


class Registry(Rule):
    name = "registry"

    def begin(self) -> None:
        self._topics: dict[str, _Versions] = defaultdict(_Versions)

    def on_offered(self, line: Line) -> None:
        topic, definition, result = (line.fields[name] for name in ("topic", "definition", "result"))
        compatible = self.facts.definitions[topic, definition].compatible
        if result == "registered":
            self._observe(topic, line.fields.get("version"), definition, line.at, f"an answer at {line.at:.3f}")
        elif result == "refused" and compatible:
            self.found(f"{definition}, which is compatible, was refused by {topic}: {line.fields['why'][:300]}")

    def on_registry(self, line: Line) -> None:
        topic, listed = line.fields["topic"], line.fields["versions"]
        known = self._topics[topic]
        present = {definition for _, definition in listed}
        for definition, at in known.since.items():
            if at <= line.fields["since"] and definition not in present:
                version = known.versions.get(definition, "?")
                self.found(
                    f"{definition}, version {version} of {topic} since {at:.3f} or before, is not in the list of "
                    f"{line.fields['since']:.3f} to {line.at:.3f}"
                )
        known.listed_at = max(known.listed_at, line.fields["since"])
        for version, definition in listed:
            self._observe(topic, version, definition, line.at, f"a list at {line.at:.3f}")

    def end(self) -> None:
        for topic, known in sorted(self._topics.items()):
            later = sum(at > known.listed_at for at in known.since.values())
            if later:
                self.not_judged(f"whether {later} registrations of {topic} remained, since no list began after them")

    def on_decoded(self, line: Line) -> None:
        who = f"{line.fields['consumer']} at {line.at:.3f}"
        pairs = set()
        for name, _, version, _ in line.fields["items"]:
            producer = self.facts.producers.get(name)
            if producer is not None and producer.definition:
                pairs.add((producer.topic.name, version, producer.definition))
        for topic, version, definition in sorted(pairs):
            self._observe(topic, version, definition, line.at, who)

    def _observe(self, topic: str, version: int | None, definition: str, at: float, who: str) -> None:
        known = self._topics[topic]
        known.since.setdefault(definition, at)
        if (version, definition) in known.reported:
            return
        for problem in self._problems(known, topic, version, definition):
            known.reported.add((version, definition))
            self.found(f"{problem}, by {who}")
        if version is not None:
            known.definitions.setdefault(version, definition)
            known.versions.setdefault(definition, version)

    def _problems(self, known: _Versions, topic: str, version: int | None, definition: str) -> list[str]:
        found = []
        offered = self.facts.definitions.get((topic, definition))
        if offered is None:
            found.append(f"version {version} of {topic} is {definition}, which nobody offered")
        elif not offered.compatible:
            found.append(f"version {version} of {topic} is {definition}, which is not compatible")
        if version is not None and known.definitions.get(version, definition) != definition:
            found.append(f"version {version} of {topic} is {definition}, and was {known.definitions[version]} before")
        if version is not None and known.versions.get(definition, version) != version:
            found.append(f"{definition} is version {version} of {topic}, and was {known.versions[definition]} before")
        return found


RULE = Registry
