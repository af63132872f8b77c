"""A message whose acknowledgement has a receipt is not redelivered to a consumer that connected after the receipt.

A message may be in flight to one consumer while another's acknowledgement of it gets a receipt. So the rule checks
consumers that were opened after the receipt, or that reconnected after it. The latter is sure only if the consumer was
seen with its former connection after the receipt, and got the message after it was seen with the new one.
"""

from __future__ import annotations

from tests.faults.checker.history import Line
from tests.faults.checker.ids import whole_entry
from tests.faults.checker.rule import Rule


class _Link:
    """One consumer's connection for one partition."""

    __slots__ = ("connection", "last_seen_at", "made_after", "seen_at", "seen_before_at")

    def __init__(self, opening_at: float) -> None:
        self.connection: tuple[str, int] | None = None
        # It was made after this, and first seen then.
        self.made_after = opening_at
        self.seen_at = opening_at
        # The last two lines: the state in the last one began after the one before it was written.
        self.last_seen_at = opening_at
        self.seen_before_at = opening_at


class Redelivered(Rule):
    name = "redelivered"

    def begin(self) -> None:
        self._links: dict[tuple[str, str], _Link] = {}
        self._again: list[tuple[str, float, float, str]] = []

    def on_connected(self, line: Line) -> None:
        link = self._link(line)
        connection = (line.fields["broker"], line.fields["connection"])
        if connection != link.connection:
            link.connection = connection
            link.made_after = link.seen_before_at
            link.seen_at = line.at
        link.seen_before_at, link.last_seen_at = link.last_seen_at, line.at

    def on_got(self, line: Line) -> None:
        facts, consumer = self.facts, self.facts.consumer(line)
        partition = facts.partition(line.partition_name)
        found = consumer.subscription.acknowledged.get(partition.index)
        if found is None or not consumer.subscription.durable:
            return
        link = self._link(line)
        delivered_after = link.made_after if link.seen_at <= line.fields["since"] else consumer.opening_at
        for packed, slot, one in zip(line.ids, line.slots, line.messages, strict=True):
            receipt_at = found.receipts.at(packed, slot, partition.slots.get(whole_entry(packed)))
            if receipt_at < delivered_after:
                text = (
                    f"{facts.text(one)} at {facts.where(partition, slot)} has a receipt for its acknowledgement, "
                    f"received at "
                    f"{receipt_at:.3f}, and came to {consumer.name} at {line.at:.3f}, connected after "
                    f"{delivered_after:.3f}"
                )
                self._again.append((consumer.subscription.name, receipt_at, line.at, text))

    def _link(self, line: Line) -> _Link:
        name = (line.fields["consumer"], line.partition_name)
        link = self._links.get(name)
        if link is None:
            link = self._links[name] = _Link(self.facts.consumer(line).opening_at)
        return link

    def end(self) -> None:
        for subscription, receipt_at, got_at, text in self._again:
            if not self.facts.acts.brought_back(subscription, receipt_at, got_at):
                self.found(text)


RULE = Redelivered
