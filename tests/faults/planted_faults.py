"""Single violations for tests of the checker. Each alters a correct history as if one thing had gone wrong, and no
other. Each is named for the rule that must find it; `Inapplicable` if the history has no line for it.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from tests.faults.invented_histories import RIG, Invented, Story

__all__ = ["PLANTS", "Inapplicable"]

Line = dict[str, Any]


class Inapplicable(Exception):
    pass


def _choose(chance: random.Random, among: list[Any]) -> Any:
    if not among:
        raise Inapplicable
    return chance.choice(among)


def _receipted(story: Story) -> set[tuple[str, int]]:
    return {(line["producer"], item[0]) for line in story.of("receipt") for item in line["items"]}


def _copies(invented: Invented) -> Counter[tuple[str, int]]:
    return Counter(message[:2] for log in invented.logs.values() for _, message in log)


def _items(story: Story, *kinds: str) -> list[tuple[Line, int]]:
    return [(line, at) for kind in kinds for line in story.of(kind) for at in range(len(line["items"]))]


def _once_with_receipt(invented: Invented) -> set[tuple[str, int]]:
    copies = _copies(invented)
    return {one for one in _receipted(invented.story) if copies[one] == 1}


def _first_scan(story: Story, line: Line) -> Line:
    return story.of("scan", place=line["place"])[0]


def _insert_before_end(story: Story, *lines: tuple[str, str, dict[str, Any]]) -> None:
    """The run ended a moment later."""
    ended = story.lines.pop()
    for by, what, fields in lines:
        story.say(by, what, **fields)
    story.now += 0.01
    story.lines.append({**ended, "at": story.now})


def stored_message_missing(invented: Invented, chance: random.Random) -> None:
    story, once = invented.story, _once_with_receipt(invented)
    # Not the first of a partition: a log's beginning may be trimmed.
    behind = [(line, at) for line, at in _items(story, "scan") if at or line is not _first_scan(story, line)]
    line, at = _choose(chance, [(line, at) for line, at in behind if tuple(line["items"][at][:2]) in once])
    del line["items"][at]
    (scanned,) = story.of("scanned", place=line["place"])
    scanned["messages"] -= 1


def message_never_handed_over(invented: Invented, chance: random.Random) -> None:
    story = invented.story
    # In a Key_Shared subscription it would be a fault of order, too.
    drained = _choose(chance, [one for one in story.of("drained") if "Key_Shared" not in one["subscription"]])
    of_it = [line for line in story.of("got") if line["consumer"].startswith(f"{drained['subscription']}#")]
    receipted = _receipted(story)
    deleted = _choose(chance, sorted({tuple(item[:2]) for line in of_it for item in line["items"]} & receipted))
    for line in of_it:
        line["items"] = [item for item in line["items"] if tuple(item[:2]) != deleted]


def forgotten_after_it_was_handed_over(invented: Invented, chance: random.Random) -> None:
    """It came to one that did not acknowledge it, and never again to anybody."""
    story = invented.story
    of_it = [line for line in story.lines if ".Shared#" in line.get("consumer", "")]
    stored = {tuple(item[1:]) for line in story.of("receipt") for item in line["items"]}
    got = [line for line in of_it if line["what"] == "got"]
    deleted = _choose(chance, sorted({(line["place"], *item[4:7]) for line in got for item in line["items"]}))
    if deleted[1:] not in stored:
        raise Inapplicable
    first = next(
        line for line in got if line["place"] == deleted[0] and list(deleted[1:]) in [i[4:7] for i in line["items"]]
    )
    for line in of_it:
        if line.get("place") != deleted[0]:
            continue
        if line["what"] == "got" and line is not first:
            line["items"] = [item for item in line["items"] if tuple(item[4:7]) != deleted[1:]]
        elif line["what"] in ("acking", "acked", "nacked"):
            line["ids"] = [one for one in line["ids"] if tuple(one) != deleted[1:]]


def skipped_by_the_next_consumer(invented: Invented, chance: random.Random) -> None:
    """It came to one that did not acknowledge it, and the next one went on behind it."""
    story = invented.story
    handed: set[tuple[str, str, tuple[int, int, int]]] = set()
    acknowledged: set[tuple[str, str, tuple[int, int, int]]] = set()
    redelivered: set[tuple[str, str, tuple[int, int, int]]] = set()
    found = []
    for line in story.lines:
        consumer, partition = line.get("consumer", ""), line.get("place", "")
        one = consumer.partition("#")[0]
        if not one.endswith((".Exclusive", ".Failover")):
            continue
        if line["what"] == "got":
            ids = [tuple(item[4:7]) for item in line["items"]]
            for more in ids[:-1]:
                mine = (one, partition, more)
                if mine in handed - acknowledged and (consumer, partition, more) not in redelivered:
                    found.append((consumer, partition, more))
            handed |= {(one, partition, more) for more in ids}
            redelivered |= {(consumer, partition, more) for more in ids}
        elif line["what"] == "acking":
            acknowledged |= {(one, partition, tuple(more)) for more in line["ids"]}
        elif line["what"] == "acking_up_to":
            acknowledged |= {mine for mine in handed if mine[:2] == (one, partition) and mine[2] <= tuple(line["id"])}
    consumer, partition, deleted = _choose(chance, found)
    for line in story.of("got", consumer=consumer, place=partition):
        line["items"] = [item for item in line["items"] if tuple(item[4:7]) != deleted]


def stored_the_wrong_way_round_and_not_scanned(invented: Invented, chance: random.Random) -> None:
    two_messages_stored_the_wrong_way_round(invented, chance)
    story = invented.story
    story.lines = [line for line in story.lines if line["what"] not in ("scan", "scanned")]


def two_messages_stored_the_wrong_way_round(invented: Invented, chance: random.Random) -> None:
    """Everybody saw them so: the log itself is out of order."""
    story, once = invented.story, _once_with_receipt(invented)
    pairs = [
        ((line["producer"], first[0]), (line["producer"], second[0]))
        for line in story.of("sending")
        for first, second in zip(line["items"], line["items"][1:], strict=False)
        if {(line["producer"], first[0]), (line["producer"], second[0])} <= once
    ]
    pair = _choose(chance, pairs)
    contents = {}
    for line, at in _items(story, "scan"):
        contents[tuple(line["items"][at][:2])] = line["items"][at][:4]
    for line, at in _items(story, "scan", "got"):
        item = line["items"][at]
        if tuple(item[:2]) in pair:
            other = pair[1 - pair.index(tuple(item[:2]))]
            line["items"][at] = [*contents[other], *item[4:]]
    ids = {
        (line["producer"], item[0]): item[1:]
        for line in story.of("receipt")
        for item in line["items"]
        if (line["producer"], item[0]) in pair
    }
    for line in story.of("receipt"):
        for item in line["items"]:
            if (line["producer"], item[0]) in pair:
                item[1:] = ids[pair[1 - pair.index((line["producer"], item[0]))]]


def handed_over_the_wrong_way_round(invented: Invented, chance: random.Random) -> None:
    story = invented.story
    firsts: dict[tuple[str, str], Line] = {}
    for line in story.of("got"):
        if ".Reader#" in line["consumer"]:
            firsts.setdefault((line["consumer"], line["place"]), line)
    line = _choose(chance, [line for line in firsts.values() if len(line["items"]) > 1])
    line["items"][0], line["items"][1] = line["items"][1], line["items"][0]


def keys_handed_over_the_wrong_way_round(invented: Invented, chance: random.Random) -> None:
    """Two messages with one key came to a Key_Shared consumer in another order than the log's, both for the first time,
    and nobody had acknowledged them.
    """
    known: set[tuple[str, str, tuple[int, ...]]] = set()  # by subscription, delivered or acknowledged before
    found = []
    for line in invented.story.lines:
        subscription, partition = line.get("consumer", "").partition("#")[0], line.get("place", "")
        if not subscription.endswith(".Key_Shared"):
            continue
        if line["what"] == "got":
            ids = [(subscription, partition, tuple(item[4:7])) for item in line["items"]]
            for at, (one, other) in enumerate(itertools.pairwise(line["items"])):
                if one[3] == other[3] and not {ids[at], ids[at + 1]} & known:
                    found.append((line, at))
            known.update(ids)
        elif line["what"] == "acking":
            known.update((subscription, partition, tuple(one)) for one in line["ids"])
    line, at = _choose(chance, found)
    line["items"][at], line["items"][at + 1] = line["items"][at + 1], line["items"][at]


def another_digest(invented: Invented, chance: random.Random) -> None:
    line, at = _choose(chance, _items(invented.story, "got", "scan"))
    line["items"][at][2] = f"{int(line['items'][at][2], 16) ^ 1 << chance.randrange(32):08x}"


def another_key(invented: Invented, chance: random.Random) -> None:
    line, at = _choose(chance, _items(invented.story, "scan"))
    line["items"][at][3] = "d"


def another_message_at_the_same_id(invented: Invented, chance: random.Random) -> None:
    """To somebody who was not drained, and so need not have seen the one that it hides."""
    readers = [one for one in _items(invented.story, "got") if ".Reader#" in one[0]["consumer"]]
    line, at = _choose(chance, readers)
    item = line["items"][at]
    others = [
        more["items"][index]
        for more, index in _items(invented.story, "got")
        if more["at"] < line["at"] and more["place"] == line["place"] and more["items"][index][:2] != item[:2]
    ]
    line["items"][at] = [*_choose(chance, others)[:4], *item[4:]]


def unreadable(invented: Invented, chance: random.Random) -> None:
    line, at = _choose(chance, _items(invented.story, "scan"))
    fields = {"reader": "spark", "place": line["place"], "id": line["items"][at][4:7], "why": "checksum"}
    _insert_before_end(invented.story, ("spark", "unreadable", fields))


def never_announced(invented: Invented, chance: random.Random) -> None:
    """A number too high, or a producer that is nobody."""
    line = _choose(chance, invented.story.of("scan"))
    producer = chance.choice([line["items"][0][0], "nobody"])
    line["items"].append([producer, 100_000, "00000000", None, *_beyond(line)])
    (scanned,) = invented.story.of("scanned", place=line["place"])
    scanned["messages"] += 1
    _only_last_scan(invented.story, line)


def refused_and_stored(invented: Invented, chance: random.Random) -> None:
    line, at = _choose(chance, _items(invented.story, "scan"))
    producer, number = line["items"][at][:2]
    if (producer, number) in _receipted(invented.story):
        raise Inapplicable
    fields = {"producer": producer, "numbers": [number], "why": "too large"}
    _insert_before_end(invented.story, ("publish", "refused", fields))


def sent_to_another_topic(invented: Invented, chance: random.Random) -> None:
    """An unknown send of one topic turns up in the log of another."""
    line = _choose(chance, invented.story.of("scan"))
    topic = line["items"][0][0].partition("/")[0]
    sent = [
        (more["producer"], *item)
        for more in invented.story.of("sending")
        if not more["producer"].startswith(f"{topic}/")
        for item in more["items"]
        if (more["producer"], item[0]) not in _copies(invented)
    ]
    refused = {(more["producer"], number) for more in invented.story.of("refused") for number in more["numbers"]}
    message = _choose(chance, [one for one in sent if one[:2] not in refused])
    line["items"].append([*message, *_beyond(line)])
    (scanned,) = invented.story.of("scanned", place=line["place"])
    scanned["messages"] += 1
    _only_last_scan(invented.story, line)


def _beyond(line: Line) -> list[int]:
    return [line["items"][-1][4] + 1000, 0, -1]


def _only_last_scan(story: Story, line: Line) -> None:
    """What was added stands at the end of its partition's scan."""
    lines = story.of("scan", place=line["place"])
    if lines[-1] is not line:
        lines[-1]["items"].append(line["items"].pop())


def stored_again(invented: Invented, chance: random.Random) -> None:
    deduplicated = {line["topic"] for line in invented.story.of("topic") if line["deduplicated"]}
    items = [one for one in _items(invented.story, "scan") if one[0]["items"][0][0].partition("/")[0] in deduplicated]
    line, at = _choose(chance, items)
    line["items"].append([*line["items"][at][:4], *_beyond(line)])
    (scanned,) = invented.story.of("scanned", place=line["place"])
    scanned["messages"] += 1
    _only_last_scan(invented.story, line)


def scanned_twice(invented: Invented, chance: random.Random) -> None:
    line, at = _choose(chance, _items(invented.story, "scan"))
    line["items"].insert(at, list(line["items"][at]))
    (scanned,) = invented.story.of("scanned", place=line["place"])
    scanned["messages"] += 1


def missing_in_the_log(invented: Invented, chance: random.Random) -> None:
    """It had no receipt, but somebody was handed it."""
    story = invented.story
    got = {tuple(line["items"][at][:2]) for line, at in _items(story, "got")} - _receipted(story)
    unfinished = [
        (line, at)
        for line in story.of("scan")
        for at, item in enumerate(line["items"])
        if tuple(item[:2]) in got and line is not _first_scan(story, line)
    ]
    line, at = _choose(chance, unfinished)
    del line["items"][at]
    (scanned,) = story.of("scanned", place=line["place"])
    scanned["messages"] -= 1


def receipt_for_another_id(invented: Invented, chance: random.Random) -> None:
    lines = [line for line in invented.story.of("receipt") if len(line["items"]) > 1 and line["items"][0][1] >= 0]
    first, second = _choose(chance, lines)["items"][:2]
    first[1:], second[1:] = second[1:], first[1:]


def receipt_twice(invented: Invented, chance: random.Random) -> None:
    line = _choose(chance, invented.story.of("receipt"))
    fields = {name: line[name] for name in ("producer", "place", "items")}
    _insert_before_end(invented.story, ("publish", "receipt", fields))


def duplicate_without_deduplication(invented: Invented, chance: random.Random) -> None:
    deduplicated = {line["topic"] for line in invented.story.of("topic") if line["deduplicated"]}
    lines = [line for line in invented.story.of("receipt") if line["producer"].partition("/")[0] not in deduplicated]
    _choose(chance, _choose(chance, lines)["items"])[1:] = [-1, -1, -1]


def key_in_two_partitions(invented: Invented, chance: random.Random) -> None:
    """A copy in another partition, of an unknown send with a key, that nobody else saw."""
    scans = [line for line in invented.story.of("scan") if line["place"].startswith("parts-")]
    line = _choose(chance, scans)
    keys_here = {item[3] for more in scans if more["place"] == line["place"] for item in more["items"]}
    keys = {item[3] for more in scans for item in more["items"]} - keys_here - {None}
    stored, refused = (
        _copies(invented),
        {(more["producer"], number) for more in invented.story.of("refused") for number in more["numbers"]},
    )
    sent = [
        (more["producer"], *item)
        for more in invented.story.of("sending")
        for item in more["items"]
        if item[2] in keys
        and more["producer"].startswith("parts/")
        and not {(more["producer"], item[0])} & (stored.keys() | refused)
    ]
    line["items"].append([*_choose(chance, sent), *_beyond(line)])
    (scanned,) = invented.story.of("scanned", place=line["place"])
    scanned["messages"] += 1
    _only_last_scan(invented.story, line)


def redelivered_after_its_receipt(invented: Invented, chance: random.Random) -> None:
    """To one that was opened after it."""
    story = invented.story
    drained = _choose(chance, story.of("drained"))["subscription"]
    got = {
        (line["place"], tuple(item[4:7])): item
        for line in story.of("got")
        if line["consumer"].startswith(f"{drained}#")
        for item in line["items"]
    }
    acked = [
        (line["place"], tuple(one))
        for line in story.of("acked")
        if line["consumer"].startswith(f"{drained}#")
        for one in line["ids"]
    ]
    partition, one_id = _choose(chance, acked)
    consumer = f"{drained}#late"
    _insert_before_end(
        story,
        ("late", "opening", {"consumer": consumer, "subscription": drained}),
        ("late", "opened", {"consumer": consumer}),
        (
            "late",
            "got",
            {"consumer": consumer, "since": story.now, "place": partition, "items": [got[partition, one_id]]},
        ),
        (RIG, "killed", {"writer": "late"}),
    )


PLANTS: Final[list[tuple[str, Callable[[Invented, random.Random], None]]]] = [
    ("lost", stored_message_missing),
    ("lost", message_never_handed_over),
    ("lost", forgotten_after_it_was_handed_over),
    ("skipped", skipped_by_the_next_consumer),
    ("order", two_messages_stored_the_wrong_way_round),
    ("order", stored_the_wrong_way_round_and_not_scanned),
    ("delivered_order", handed_over_the_wrong_way_round),
    ("key_order", keys_handed_over_the_wrong_way_round),
    ("corrupted", another_digest),
    ("corrupted", another_key),
    ("corrupted", another_message_at_the_same_id),
    ("corrupted", unreadable),
    ("never_sent", never_announced),
    ("never_sent", refused_and_stored),
    ("never_sent", sent_to_another_topic),
    ("stored_twice", stored_again),
    ("scan", scanned_twice),
    ("vanished", missing_in_the_log),
    ("receipts", receipt_for_another_id),
    ("receipts", receipt_twice),
    ("receipts", duplicate_without_deduplication),
    ("places", key_in_two_partitions),
    ("redelivered", redelivered_after_its_receipt),
]
