"""Calls on policies over HTTP: Pulsar's REST API has a path for each policy, so several policies take several requests.

They are not atomic: if one of the requests fails, those before it are done, and others may see what is between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from google.protobuf.message import Message

from magnetar.admin._calls import AdminCalls
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.catalog_pb2 import Policies
from magnetar_wire.admin.json.namespaces import NamespaceJson
from magnetar_wire.admin.json.policies import QUOTA_BY_AGE, QUOTA_BY_SIZE
from magnetar_wire.admin.policies import POLICIES, POLICY_OF, Level

__all__ = [
    "change_policies",
    "change_properties",
    "change_topic_policies",
    "create_namespace",
    "read_topic_policies",
    "replace_policies",
]

_NAMESPACE: Final = NamespaceJson()
_PROPERTIES: Final = "properties"
_REQUESTS_AT_ONCE: Final = 8


async def create_namespace(
    calls: AdminCalls, namespace: str, policies: Policies, bundles: int | None
) -> tuple[str, ...]:
    """Create a namespace, and then set the policies that the request for that can't have, such as rates."""
    first, then = Policies(), Policies()
    for field, _ in policies.ListFields():
        probe = Policies()
        _copy(field.name, policies, probe)
        _copy(field.name, policies, first if _NAMESPACE.carries(pb.NamespaceRequest(policies=probe)) else then)
    answer = await calls.call("create_namespace", namespace=namespace, policies=first, bundles=bundles)
    return (*answer.warnings, *await change_policies(calls, namespace, then, ()))


async def replace_policies(calls: AdminCalls, namespace: str, wanted: Policies) -> tuple[str, ...]:
    """Set the policies that differ, and remove the others that the namespace has."""
    found: Policies = (await calls.call("namespace", namespace=namespace)).policies
    changed = Policies()
    for field, value in wanted.ListFields():
        if not found.HasField(field.name) or getattr(found, field.name) != value:
            _copy(field.name, wanted, changed)
    removed = [field.name for field, _ in found.ListFields() if not wanted.HasField(field.name)]
    return await change_policies(calls, namespace, changed, removed)


async def change_policies(
    calls: AdminCalls, namespace: str, policies: Policies, remove: Sequence[str]
) -> tuple[str, ...]:
    """Set and remove policies of a namespace. Properties are a policy with requests of their own."""
    if policies.HasField(_PROPERTIES):
        await change_properties(calls, namespace, policies.properties.values, (), remove_all=True)
    elif _PROPERTIES in remove:
        await change_properties(calls, namespace, {}, (), remove_all=True)
    target = {"namespace": namespace}
    return await _change_one_by_one(calls, "change_policies", target, Level.NAMESPACE, policies, remove)


async def change_topic_policies(
    calls: AdminCalls, topic: str, policies: Policies, remove: Sequence[str]
) -> tuple[str, ...]:
    """Set and remove policies of a topic."""
    return await _change_one_by_one(calls, "change_topic_policies", {"topic": topic}, Level.TOPIC, policies, remove)


async def _change_one_by_one(
    calls: AdminCalls,
    name: str,
    target: Mapping[str, str],
    level: Level,
    policies: Policies,
    remove: Sequence[str],
) -> tuple[str, ...]:
    warnings: list[str] = []
    for field, _ in policies.ListFields():
        if field.name != _PROPERTIES:
            one = Policies()
            _copy(field.name, policies, one)
            warnings += (await calls.call(name, **target, set=one)).warnings
    for removed in remove:
        if removed != _PROPERTIES:
            await calls.call(name, **target, **_remove(removed, level))
    return tuple(warnings)


def _remove(name: str, level: Level) -> dict[str, Any]:
    """Return the fields of the request that removes a policy: if Pulsar's API can't, by the value of a policy that is
    not set."""
    policy = POLICY_OF.get(name)
    path = None if policy is None else policy.path(level)
    if policy is None or path is None or path.remover or path.removed_without_body or path.unset is None:
        return {"remove": [name]}
    default = Policies()
    policy.part.fill(default, path.unset, name)
    return {"set": default}


async def read_topic_policies(calls: AdminCalls, topic: str, applied: bool, only: Sequence[str]) -> Any:
    """Return the answer of `topic_policies`, made of the answers to a request for each policy."""
    answer = pb.TopicPoliciesAnswer()
    paths = [fields for fields in _list_paths() if not only or not set(only).isdisjoint(fields)]
    for first in range(0, len(paths), _REQUESTS_AT_ONCE):
        some = paths[first : first + _REQUESTS_AT_ONCE]
        requests = [calls.call("topic_policies", topic=topic, applied=applied, only=fields) for fields in some]
        for found in await asyncio.gather(*requests):
            answer.policies.MergeFrom(found.policies)
            answer.warnings.extend(found.warnings)
    for field, _ in answer.policies.ListFields():
        if (only and field.name not in only) or (not applied and _is_default(field.name, answer.policies)):
            answer.policies.ClearField(field.name)
    return answer


def _list_paths() -> Iterator[list[str]]:
    """Yield the fields of the policies that each path has: both quotas have the same."""
    for policy in POLICIES:
        if policy.topic is not None and policy.field not in (QUOTA_BY_SIZE, _PROPERTIES):
            yield [QUOTA_BY_SIZE, QUOTA_BY_AGE] if policy.field == QUOTA_BY_AGE else [policy.field]


def _is_default(name: str, policies: Policies) -> bool:
    """Whether it is what a broker answers if the topic does not have the policy."""
    path = POLICY_OF[name].topic
    return path is not None and path.unset is not None and POLICY_OF[name].part.to_json(policies) == path.unset


def _copy(name: str, source: Policies, target: Policies) -> None:
    value = getattr(source, name)
    if isinstance(value, Message):
        getattr(target, name).CopyFrom(value)
    else:
        setattr(target, name, value)


async def change_properties(
    calls: AdminCalls, namespace: str, properties: Mapping[str, str], remove: Sequence[str], remove_all: bool
) -> dict[str, str]:
    """Set and remove properties. Return the removed ones."""
    removed: dict[str, str] = {}
    if remove_all:
        found = (await calls.call("namespace_properties", namespace=namespace)).properties
        removed = {name: value for name, value in found.items() if name not in properties}
        if removed and not properties:
            await calls.call("change_namespace_properties", namespace=namespace, remove_all=True)
            return removed
        remove = list(removed)
    if properties:
        await calls.call("change_namespace_properties", namespace=namespace, set=properties)
    for name in remove:
        answer = await calls.call("change_namespace_properties", namespace=namespace, remove=[name])
        if answer.value:
            removed[name] = answer.value
    return removed
