"""The routes of the calls on policies, made from the table of policies.

    read_routes      GET of each policy
    change_routes    the paths that set or remove one policy

Backlog quotas are two policies with one path, see json/policies.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies
from magnetar_wire.admin.http.route import Route
from magnetar_wire.admin.json.parts import Defaulted, Field, QueryText
from magnetar_wire.admin.json.policies import QUOTA_BY_AGE, QUOTA_BY_SIZE, QUOTA_MAP, OneQuota, QuotaType, RemovedQuota
from magnetar_wire.admin.policies import POLICIES, Level, Policy, PolicyPath

__all__ = ["change_routes", "read_routes"]

_QUOTA_TYPE: Final = "backlogQuotaType"
_DEFAULT_QUOTA_TYPE: Final = "destination_storage"


def read_routes(level: Level) -> tuple[Route, ...]:
    """Return the routes that read one policy. The request has `only`; and for topics `applied`: the policies that apply
    where the topic has none. The response has `policies`."""
    return tuple(_list_read_routes(level))


def change_routes(level: Level) -> tuple[Route, ...]:
    """Return the routes that set or remove one policy. The request has `set` and `remove`."""
    return tuple(_list_change_routes(level))


def _list_read_routes(level: Level) -> Iterator[Route]:
    query = {"applied": "applied"} if level is Level.TOPIC else {}
    for policy in POLICIES:
        path = policy.path(level)
        if path is None or policy.field in (QUOTA_BY_SIZE, "properties"):
            continue
        name, part, only = path.name or policy.name, policy.part, [policy.field]
        if policy.field == QUOTA_BY_AGE:
            name, part, only = "backlogQuotaMap", QUOTA_MAP, [QUOTA_BY_SIZE, QUOTA_BY_AGE]
        if path.unset is not None:
            part = Defaulted(part, path.unset)
        answer = Field("policies", of=part)
        summary = f"Return a {level.value}'s policy {name}."
        yield Route(
            "GET",
            f"{level.base}/{name}",
            fixed={"only": only},
            query=query,
            answer=answer,
            empty_status=path.unset_status,
            summary=summary,
        )


def _list_change_routes(level: Level) -> Iterator[Route]:
    for policy in POLICIES:
        path = policy.path(level)
        if path is None or policy.field == QUOTA_BY_AGE:
            continue
        target = f"{level.base}/{path.name or policy.name}"
        make = _make_quota_setter if policy.field == QUOTA_BY_SIZE else _make_setter
        if path.setter:
            yield make(policy, path, target)
        if path.remover and policy.field == QUOTA_BY_SIZE:
            yield Route(
                path.remover,
                target,
                query={_QUOTA_TYPE: RemovedQuota()},
                query_defaults={_QUOTA_TYPE: _DEFAULT_QUOTA_TYPE},
                summary=f"Remove the policy {policy.name}. {policy.help}",
            )
        elif path.remover:
            yield Route(
                path.remover,
                target,
                fixed={"remove": [policy.field]},
                summary=f"Remove the policy {policy.name}. {policy.help}",
            )


def _make_setter(policy: Policy, path: PolicyPath, target: str) -> Route:
    part, summary = Field("set", of=policy.part), f"Set the policy {policy.name}. {policy.help}"
    if path.value is not None:
        return Route(path.setter, target, fixed={"set": Policies(**{policy.field: path.value})}, summary=summary)
    if path.parameter:
        query = {path.parameter: Field("set", of=QueryText(policy.part))}
        without_query = {"remove": [policy.field]} if path.removed_without_body else {}
        return Route(path.setter, target, query=query, without_query=without_query, summary=summary)
    return Route(
        path.setter,
        target,
        body=part,
        needs_body=not path.removed_without_body,
        without_body={"remove": [policy.field]} if path.removed_without_body else {},
        empty_status=path.set_status,
        statuses={int(ErrorCode.INVALID_ARGUMENT): path.invalid_status},
        summary=summary,
    )


def _make_quota_setter(policy: Policy, path: PolicyPath, target: str) -> Route:
    return Route(
        path.setter,
        target,
        query={_QUOTA_TYPE: Field("set", of=QuotaType())},
        query_defaults={_QUOTA_TYPE: _DEFAULT_QUOTA_TYPE},
        body=Field("set", of=OneQuota()),
        needs_body=True,
        summary=f"Set the policy {policy.name}. {policy.help}",
    )
