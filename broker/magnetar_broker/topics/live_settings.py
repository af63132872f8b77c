"""The settings of one topic, by the policies that apply to it now.

`LiveSettings.current` has all fields of the broker's settings. If a policy of the topic, or of its namespace, sets a
field, the field has the policy's value (catalog/policy_settings.py). If not, it has the broker's value, which may
change, too, if the setting is dynamic. So code that reads a setting each time that it needs it follows all changes.
Code that must act when a policy changes adds a callback to `on_changed`.

`PolicyRefresh` (policy_refresh.py) reads the policies of all loaded topics every few seconds. A topic can be opened
while its own policies can't be read. Then `are_known` is False until they are, and only its namespace's policies apply,
or an older state of its own ones. In the meantime nothing may be done that can't be undone: nothing is deleted that a
policy might retain.

Policies in `current` may be a few seconds older than those that the topic's previous owner followed. Where that does
harm, `read_now` applies those of this moment.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from magnetar_broker.catalog.policy_settings import settings_by_policies
from magnetar_broker.settings.dynamic import change_fields
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_protos.catalog_pb2 import Policies
from magnetar_wire.topic_name import TopicName

__all__ = ["FindPolicies", "LiveSettings"]

_log = logging.getLogger(__name__)


class FindPolicies(Protocol):
    def __call__(
        self, name: TopicName, incarnation: str, /, *, since: float | None = None
    ) -> Awaitable[Policies | None]:
        """Return the policies that apply to the topic of this name and incarnation, at most a few seconds old.

        `since`: they are read after this time of the monotonic clock. None: the topic's own policies are unknown,
        because they can't be read. Raises `BrokerError`: the namespace's can't be read.
        """


class LiveSettings:
    __slots__ = ("_changed", "_policies", "are_known", "current", "on_changed", "read_now")

    def __init__(self, settings: BrokerServiceSettings, policies: Policies, *, are_known: bool) -> None:
        """`policies`: its namespace's, and its own if `are_known`."""
        self._policies = policies
        self._changed: dict[str, Any] = settings_by_policies(policies)
        self.current: BrokerServiceSettings = change_fields(settings, self._changed)
        self.are_known = are_known
        self.on_changed: list[Callable[[], object]] = []
        # Applies the policies as they are now, and returns whether they can be read.
        self.read_now: Callable[[], Awaitable[bool]] = _are_current

    def update(self, policies: Policies) -> None:
        """Replace the policies by these, which are known."""
        self.are_known = True
        if policies is self._policies:
            return
        is_same, self._policies = policies == self._policies, policies
        if is_same:
            return
        changed = settings_by_policies(policies)
        self._changed.clear()
        self._changed.update(changed)
        for notify in self.on_changed:
            try:
                notify()
            except Exception:  # noqa: BLE001 (the other callbacks are called)
                _log.exception("A part of a topic failed to apply a change of its policies")


async def _are_current() -> bool:
    return True
