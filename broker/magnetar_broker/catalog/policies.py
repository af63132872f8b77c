"""Rules about the policies of namespaces."""

from __future__ import annotations

from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies

__all__ = ["check_policies", "find_unmet_policies"]

_MAX_ENSEMBLE = 100


def check_policies(policies: Policies, max_partitions: int) -> None:
    """Raise `BrokerError` for invalid policies."""
    if policies.HasField("persistence"):
        ensemble, write, ack = (
            policies.persistence.ensemble_size,
            policies.persistence.write_quorum,
            policies.persistence.ack_quorum,
        )
        if not _MAX_ENSEMBLE >= ensemble >= write >= ack >= 1:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"persistence: an ensemble of {ensemble}, a write quorum of {write} and an ack quorum of {ack} are "
                f"invalid: use {_MAX_ENSEMBLE} >= ensemble_size >= write_quorum >= ack_quorum >= 1",
            )
    partitions = policies.auto_topic_creation.partitions
    if partitions > max_partitions:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"auto_topic_creation: {partitions:,} partitions are above the limit of {max_partitions:,} "
            "(max_num_partitions_per_partitioned_topic)",
        )


def find_unmet_policies(namespace: str, policies: Policies, writable: int, registered: int) -> list[str]:
    """Return warnings about policies that the bookies can't meet now: `writable` of those `registered` take ledgers."""
    if not policies.HasField("persistence"):
        return []
    persistence = policies.persistence
    available = f"{writable} of {registered} registered bookies accept a new ledger"
    if writable < persistence.ack_quorum:
        return [
            f"namespace {namespace}: its persistence policy can't be met now: {available}, and the ack quorum "
            f"needs {persistence.ack_quorum} (the ensemble {persistence.ensemble_size}). Messages to its "
            "topics are not stored until more bookies are registered or the policy is changed"
        ]
    if writable < persistence.ensemble_size:
        return [
            f"namespace {namespace}: its persistence policy can't be met in full now: {available}, and the "
            f"ensemble needs {persistence.ensemble_size} (the write quorum {persistence.write_quorum}). New "
            f"ledgers are created on {writable} bookies until more are registered or the policy is changed"
        ]
    return []
