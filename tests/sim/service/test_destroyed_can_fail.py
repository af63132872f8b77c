"""CHK-67: what the judge allows once records were destroyed is limited to their log and entry."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from magnetar.exceptions import ChecksumError
from tests.sim.invariants.history import History, Violation
from tests.sim.service.errors import check_error, is_damaged
from tests.sim.service.history import ConsumerSeen, Found
from tests.sim.service.judge_scene import MESSAGES, TOPIC, Scene, at
from tests.sim.service.operator import check_destroyed
from tests.sim.service.world import ServiceWorld


def _find(*numbers: int, destroyed: tuple[tuple[int, int], ...]) -> None:
    """Three messages were stored, and these are found."""
    scene = Scene()
    found = [Found(at(number), MESSAGES[number], number) for number in numbers]
    scene.history.found(TOPIC, found, destroyed)


def test_a_destroyed_entry_may_be_missing() -> None:
    _find(0, 2, destroyed=((7, 1),))


@pytest.mark.parametrize("destroyed", [(), ((7, 0),), ((8, 1),)])
def test_another_entry_may_not_be_missing(destroyed: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(Violation):
        _find(0, 2, destroyed=destroyed)


def _world() -> ServiceWorld:
    """A record of subscription s of topic t was destroyed."""
    history = History(lambda: 0.0)
    history.ledger(5).chain = f"{TOPIC}-partition-1 s"
    history.destroyed.add((5, 0))
    judged = lambda check, *arguments: check(*arguments)  # noqa: E731
    world = SimpleNamespace(
        checker=SimpleNamespace(history=history),
        count=lambda what: None,
        judged=judged,
        service=SimpleNamespace(everybody_owns=False),
    )
    return cast(ServiceWorld, world)


def test_only_the_subscription_with_a_destroyed_record_may_be_damaged() -> None:
    world = _world()
    assert is_damaged(world, "t", "s")
    check_destroyed(world, "t", "s")
    check_error(world, "no consumer", ChecksumError("damaged"), ConsumerSeen("k", "t", "s", "SHARED"))
    for topic, subscription in (("t", "other"), ("other", "s")):
        assert not is_damaged(world, topic, subscription)
        with pytest.raises(Violation):
            check_destroyed(world, topic, subscription)
        with pytest.raises(Violation):
            check_error(
                world, "no consumer", ChecksumError("damaged"), ConsumerSeen("k", topic, subscription, "SHARED")
            )
    with pytest.raises(Violation):
        check_error(world, "send failed", ChecksumError("damaged"))


def test_destroyed_entries_are_those_of_one_log() -> None:
    history = History(lambda: 0.0)
    history.ledger(1).chain, history.ledger(2).chain = "t", "t s"
    history.destroyed.update({(1, 3), (2, 0)})
    assert history.destroyed_in("t") == [(1, 3)]
    assert history.destroyed_in("t s") == [(2, 0)]
