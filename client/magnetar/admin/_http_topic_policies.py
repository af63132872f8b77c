"""Policies of topics over HTTP: Pulsar's REST API has a path for each, and none for all.

Not atomic: if one of the requests fails, those before it are done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from magnetar.admin._calls import AdminCalls
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.catalog_pb2 import Policies
from magnetar_wire.admin.policies import POLICIES, POLICY_OF, Level
from magnetar_wire.admin.policy_parts import QUOTA_BY_AGE, QUOTA_BY_SIZE

__all__ = ["change_topic_policies", "read_topic_policies"]

_AT_ONCE = 8


async def read_topic_policies(calls: AdminCalls, topic: str, applied: bool, only: Sequence[str]) -> Any:
    """Return the answer of `topic_policies`, put together from one request for each policy."""
    answer = pb.TopicPoliciesAnswer()
    wanted = [fields for fields in _list_paths() if not only or not set(only).isdisjoint(fields)]
    for first in range(0, len(wanted), _AT_ONCE):
        requests = [
            calls.call("topic_policies", topic=topic, applied=applied, only=fields)
            for fields in wanted[first : first + _AT_ONCE]
        ]
        for found in await asyncio.gather(*requests):
            answer.policies.MergeFrom(found.policies)
            answer.warnings.extend(found.warnings)
    for field, _ in answer.policies.ListFields():
        if only and field.name not in only:
            answer.policies.ClearField(field.name)
    return answer


def _list_paths() -> Iterator[list[str]]:
    """Yield the fields of the policies that each path has."""
    for policy in POLICIES:
        if policy.path(Level.TOPIC) is not None and policy.field not in (QUOTA_BY_SIZE, "properties"):
            yield [QUOTA_BY_SIZE, QUOTA_BY_AGE] if policy.field == QUOTA_BY_AGE else [policy.field]


async def change_topic_policies(
    calls: AdminCalls, topic: str, policies: Policies, remove: Sequence[str]
) -> tuple[str, ...]:
    """Set and remove policies, each by a request of its own. Return the warnings."""
    warnings: list[str] = []
    for field, _ in policies.ListFields():
        one = Policies()
        one.CopyFrom(policies)
        for other, _ in policies.ListFields():
            if other.name != field.name:
                one.ClearField(other.name)
        warnings += (await calls.call("change_topic_policies", topic=topic, set=one)).warnings
    for name in remove:
        await calls.call("change_topic_policies", topic=topic, **_remove(name))
    return tuple(warnings)


def _remove(name: str) -> dict[str, Any]:
    """Return the fields of the request that removes a policy: if Pulsar's API can't, by the value of a policy that is
    not set."""
    policy = POLICY_OF.get(name)
    path = None if policy is None else policy.path(Level.TOPIC)
    if policy is None or path is None or path.remover or path.removed_without_body or path.unset is None:
        return {"remove": [name]}
    default = Policies()
    policy.part.fill(default, path.unset, name)
    return {"set": default}
