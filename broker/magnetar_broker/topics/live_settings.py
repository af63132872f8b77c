"""The settings of one topic, by the policies that apply to it now.

A topic's parts read their settings from `LiveSettings.current`, which has the fields of the broker's settings. A field
that a policy of the topic, or of its namespace, sets has that value (catalog/policy_settings.py); each other field has
the broker's value, which changes, too, if it is dynamic. So a part that reads a setting whenever it needs it follows
all changes. A part that has to act when a policy changes adds a callback to `on_changed`.

`PolicyRefresh` (policy_refresh.py) reads the policies of all loaded topics every few seconds. A topic is opened also if
its own policies can't be read. Until they are known, `are_known` is False, and none of them, or former ones, apply.
What can't be undone must not be done by unknown policies: nothing is deleted that a policy might retain.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from magnetar_broker.catalog.policy_settings import settings_by_policies
from magnetar_broker.settings.dynamic import change_fields
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_protos.catalog_pb2 import Policies
from magnetar_wire.topic_name import TopicName

__all__ = ["FindPolicies", "LiveSettings"]

_log = logging.getLogger(__name__)

# Returns the policies that apply to the topic of this incarnation, at most a few seconds old; None: its own can't be
# read, and are not known. Raises `BrokerError`: its namespace's can't be read.
FindPolicies = Callable[[TopicName, str], Awaitable[Policies | None]]


class LiveSettings:
    __slots__ = ("_changed", "_policies", "are_known", "current", "on_changed")

    def __init__(self, settings: BrokerServiceSettings, policies: Policies, *, are_known: bool) -> None:
        """`policies`: those that apply to the topic, its own and its namespace's."""
        self._policies = policies
        self._changed: dict[str, Any] = settings_by_policies(policies)
        self.current: BrokerServiceSettings = change_fields(settings, self._changed)
        self.are_known = are_known
        self.on_changed: list[Callable[[], object]] = []

    def update(self, policies: Policies) -> None:
        """Apply these policies, which are known, instead of the former ones."""
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
            except Exception:  # noqa: BLE001 (the other parts of the topic follow the change)
                _log.exception("A part of a topic failed to follow a change of its policies")
