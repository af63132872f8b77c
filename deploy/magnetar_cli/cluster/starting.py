"""Bringing parts up: all at once, until each says that it is ready.

Everything is started before anything is waited for: bookies and brokers wait for what they need by themselves, and all
take their time to load. They are asked at the same time, since a broker's answer takes as long as a message does. A
part that ends is not waited for any longer. If it has never been ready and somebody else has its port, it gets another
and is started again, and those with it who were told the old one; any other end is the user's to see.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from magnetar_cli.cluster.errors import NotStarted
from magnetar_cli.cluster.part import Part
from magnetar_cli.cluster.process import start
from magnetar_cli.cluster.state import ClusterState
from magnetar_cli.cluster.stopping import kill
from magnetar_cli.cluster.zookeeper_part import ZooKeeperPart

__all__ = ["Starter"]

_STARTS: Final = 5
_POLL_S: Final = 0.05
_SAY_S: Final = 0.5


class Starter:
    """`save` keeps the state; it is called before each step that must not be forgotten."""

    def __init__(
        self,
        state: ClusterState,
        save: Callable[[], None],
        say: Callable[[str], None],
        *,
        die_with_parent: bool,
    ) -> None:
        self._state = state
        self._save = save
        self._say = say
        self._die_with_parent = die_with_parent

    def bring_up(self, parts: Sequence[Part], timeout_s: float) -> None:
        """Starts those that do not run, and returns when all are ready. Raises `NotStarted`; the others go on."""
        deadline = time.monotonic() + timeout_s
        for attempt in range(1, _STARTS + 1):
            down = [part for part in parts if not part.running]
            # All ports first: ZooKeeper's servers are told each other's, and everybody theirs.
            for part in down:
                if not part.place.settled and part.port_lost():
                    part.choose_ports(self._state.ports())
            for part in down:
                self.launch(part)
            displaced = self._wait_ready(parts, deadline, may_displace=attempt < _STARTS)
            if not displaced:
                return
            for part in displaced:
                self._move(part, parts)

    def launch(self, part: Part) -> None:
        place = part.place
        part.configure(self._state)
        place.launching, place.process, place.stopped = True, None, False
        place.log_from = part.log.stat().st_size if part.log.exists() else 0
        self._save()
        try:
            place.process = start(part.command, part.log, part.environment(), die_with_parent=self._die_with_parent)
        except OSError as error:
            raise NotStarted(f"{part.name} can't be started: {error}") from None
        finally:
            place.launching = False
            self._save()

    def _wait_ready(self, parts: Sequence[Part], deadline: float, *, may_displace: bool) -> list[Part]:
        """The parts that have lost their port to somebody else; none: all are ready."""
        waiting = {part.name: part for part in parts}
        failed: list[Part] = []
        displaced: list[Part] = []
        said_at = 0.0
        with _Asking(len(parts)) as asking:
            while waiting:
                for name, part in list(waiting.items()):
                    if not part.running:
                        del waiting[name]
                        lost = may_displace and not part.place.settled and part.port_lost()
                        (displaced if lost else failed).append(part)
                    elif asking.reason(part) == "":
                        if not part.place.settled:
                            part.place.settled = True
                            self._save()
                        del waiting[name]
                if failed or any(isinstance(part, ZooKeeperPart) for part in displaced):
                    break
                reasons = {name: reason for name, part in waiting.items() if (reason := asking.reason(part))}
                if reasons and time.monotonic() >= said_at + _SAY_S:
                    said_at = time.monotonic()
                    self._say("; ".join(f"{name}: {reason}" for name, reason in reasons.items()))
                if waiting and time.monotonic() >= deadline:
                    late = next(iter(waiting.values()))
                    raise NotStarted(
                        f"{late.name} is not ready in time: {reasons.get(late.name, 'no reason reported')}\n"
                        f"it logged ({late.log}):\n{late.last_words()}"
                    )
                time.sleep(_POLL_S)
        if failed:
            raise NotStarted(
                "\n".join(f"{one.name} has ended; it logged ({one.log}):\n{one.last_words()}" for one in failed)
            )
        return displaced

    def _move(self, part: Part, parts: Sequence[Part]) -> None:
        """To other ports. All were told where ZooKeeper is when they were started: they start once more."""
        part.choose_ports(self._state.ports())
        self._save()
        if isinstance(part, ZooKeeperPart):
            kill([other for other in parts if other is not part])


class _Asking:
    """Asks parts whether they are ready, each by itself, one question at a time."""

    def __init__(self, parts: int) -> None:
        self._pool = ThreadPoolExecutor(max(parts, 1))
        self._questions: dict[str, Future[str]] = {}
        # What each answered last.
        self._answers: dict[str, str] = {}

    def __enter__(self) -> _Asking:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def reason(self, part: Part) -> str | None:
        """What keeps it from being ready, as far as it has said; empty: it is; None: it has said nothing yet."""
        question = self._questions.get(part.name)
        if question is not None and question.done():
            self._answers[part.name] = question.result()
            question = None
        if question is None and self._answers.get(part.name) != "":
            self._questions[part.name] = self._pool.submit(part.waits_for)
        return self._answers.get(part.name)
