"""A delivered or scanned message is the one that was sent, and all observers find the same message at an id."""

from __future__ import annotations

from tests.faults.checker.history import Line
from tests.faults.checker.ids import id_text, ledger_of
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import NOBODYS, number_of


class Corrupted(Rule):
    name = "corrupted"

    def begin(self) -> None:
        self._partitions_of_ledger: dict[int, set[str]] = {}

    def on_got(self, line: Line) -> None:
        self._look(line, line.fields["consumer"])

    def on_scan(self, line: Line) -> None:
        self._look(line, line.fields["reader"])

    def on_unreadable(self, line: Line) -> None:
        who = line.fields.get("consumer") or line.fields.get("reader")
        partition, one = line.partition_name, line.fields["id"]
        self.found(f"{one} in {partition} was unreadable to {who}: {line.fields['why'][:200]}")

    def _look(self, line: Line, who: str) -> None:
        facts = self.facts
        partition = facts.partition(line.partition_name)
        content, producers, keys = partition.content, facts.producers, facts.keys
        for item, one, slot in zip(line.fields["items"], line.messages, line.slots, strict=True):
            if content[slot] != one and NOBODYS not in (content[slot], one):
                seen = facts.text(content[slot])
                self.found(f"{facts.where(partition, slot)} is {facts.text(one)} to {who}, and was {seen} before")
            if one == NOBODYS:
                continue  # for another rule
            producer, number = producers[item[0]], number_of(one)
            if _crc(item[2]) != producer.digests[number]:
                self.found(
                    f"{facts.text(one)} at {facts.where(partition, slot)} has the digest {item[2]} to {who}, "
                    f"and was sent with {producer.digests[number]:08x}"
                )
            elif keys.get(item[3], -1) != producer.keys[number]:
                sent = facts.key_list[producer.keys[number]]
                self.found(
                    f"{facts.text(one)} at {facts.where(partition, slot)} has the key {item[3]!r} to {who}, "
                    f"and was sent with {sent!r}"
                )
        for packed in {line.ids[0], line.ids[-1]} if line.ids else ():
            self._check_ledger_partition(packed, partition.name)

    def _check_ledger_partition(self, packed: int, partition: str) -> None:
        """Check that a ledger belongs to one partition, for the first and last id of a line, which is often enough."""
        partitions = self._partitions_of_ledger.setdefault(ledger_of(packed), set())
        if partition in partitions:
            return
        if partitions:
            others = ", ".join(sorted(partitions))
            self.found(f"{id_text(packed)} was seen in {partition}, and its ledger in {others}, too")
        partitions.add(partition)


def _crc(digest: str) -> int:
    try:
        return int(digest, 16)
    except ValueError:
        return -1


RULE = Corrupted
