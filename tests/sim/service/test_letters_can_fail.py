"""Each check of retry and dead letters reports a small constructed history with its violation (CON-9, CON-10), and
accepts one without it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from magnetar_protos.managed_ledger_pb2 import LIVE, ListedLedger, ManagedLedgerNode
from tests.sim.invariants.history import Violation
from tests.sim.service.history import ConsumerSeen
from tests.sim.service.judge_scene import MESSAGES, Scene, at

# By the ends of their names: their ledgers.
_LEDGERS = {"RETRY": 8, "DLQ": 9}


class Letters(Scene):
    """Subscription s has letters: each message is redelivered once. Entry 0 was retried, and entry 1 refused twice."""

    def __init__(self) -> None:
        super().__init__()
        self.history.letters.expect("t", "s", 1)
        for end, ledger_id in _LEDGERS.items():
            listed = [ListedLedger(ledger_id=ledger_id)]
            node = ManagedLedgerNode(incarnation=end, owner_epoch=b"owner", ledgers=listed, state=LIVE)
            self.history.topic_changed(f"persistent://public/default/t-s-{end}", node, self.b[0])
        for number in (0, 1, 1):
            self.given(number)
            self.history.refused(self.consumer, at(number))

    def letter(
        self,
        number: int,
        end: str,
        to: ConsumerSeen | None = None,
        *,
        origin: int | None = None,
        index: int = 0,
        key: str = "",
        payload: bytes = b"",
    ) -> None:
        """A letter is delivered, without `to` to the last drain."""
        properties = {"ORIGIN_MESSAGE_ID": f"7:{number if origin is None else origin}:-1:{index}"}
        consumer = to or ConsumerSeen("drain", f"t-s-{end}", "s", "EXCLUSIVE")
        position = at(number, _LEDGERS[end])
        self.history.delivered(consumer, payload or MESSAGES[number], position, properties, key)

    def ends(self) -> None:
        """Only entry 2 is delivered still."""
        self.drains(2)
        self.history.check_end()


def waits_in_the_retry_topic(scene: Letters) -> None:
    scene.letter(0, "RETRY")


def was_acknowledged_as_a_letter(scene: Letters) -> None:
    scene.letter(0, "RETRY", scene.consumer)
    scene.history.acknowledging(scene.consumer, [at(0, _LEDGERS["RETRY"])], cumulative=False, receipt=False)


def died_as_a_letter(scene: Letters) -> None:
    scene.letter(0, "RETRY", scene.consumer)
    scene.history.refused(scene.consumer, at(0, _LEDGERS["RETRY"]))
    scene.letter(0, "DLQ")


@pytest.mark.parametrize("happens", [waits_in_the_retry_topic, was_acknowledged_as_a_letter, died_as_a_letter])
def test_a_message_with_a_letter_is_not_lost(happens: Callable[[Letters], None]) -> None:
    scene = Letters()
    scene.letter(1, "DLQ")
    happens(scene)
    scene.ends()
    assert scene.history.looked["CON-9, CON-10"]


def a_message_without_a_letter(scene: Letters) -> None:
    scene.letter(1, "DLQ")


def a_letter_that_only_the_sdk_acknowledged(scene: Letters) -> None:
    scene.letter(1, "DLQ")
    scene.letter(0, "RETRY", scene.consumer)


def a_trimmed_message_without_a_letter(scene: Letters) -> None:
    scene.letter(1, "DLQ")
    scene.found(1, 2)


def a_dead_letter_too_soon(scene: Letters) -> None:
    scene.letter(0, "DLQ")


def a_dead_letter_though_another_message_of_its_batch_was_retried(scene: Letters) -> None:
    for _ in range(2):
        scene.history.refused(scene.consumer, at(2), alone=True)
    scene.letter(2, "DLQ", index=1)


def another_origin(scene: Letters) -> None:
    scene.letter(1, "DLQ", origin=2)


def another_key(scene: Letters) -> None:
    scene.letter(1, "DLQ", key="k")


def a_letter_that_nobody_sent(scene: Letters) -> None:
    scene.letter(1, "DLQ", payload=b"another")


@pytest.mark.parametrize(
    ("item", "happens"),
    [
        ("CON-10", a_message_without_a_letter),
        ("CON-10", a_letter_that_only_the_sdk_acknowledged),
        ("CON-10", a_trimmed_message_without_a_letter),
        ("CON-10", a_dead_letter_too_soon),
        ("CON-10", a_dead_letter_though_another_message_of_its_batch_was_retried),
        ("CON-10", another_origin),
        ("CON-10", another_key),
        ("2", a_letter_that_nobody_sent),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_check_of_letters_can_fail(item: str, happens: Callable[[Letters], None]) -> None:
    scene = Letters()
    with pytest.raises(Violation) as raised:
        happens(scene)
        scene.ends()
    assert item in raised.value.item.split(", "), raised.value
