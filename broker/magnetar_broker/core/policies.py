"""What may stand in a namespace's policies."""

from __future__ import annotations

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies

__all__ = ["check_known", "check_policies", "find_unmet"]

_MAX_ENSEMBLE = 100


def check_policies(policies: Policies, max_partitions: int) -> None:
    """Raises `BrokerError` for what can't hold."""
    if policies.HasField("persistence"):
        ensemble, write, ack = (
            policies.persistence.ensemble_size,
            policies.persistence.write_quorum,
            policies.persistence.ack_quorum,
        )
        if not _MAX_ENSEMBLE >= ensemble >= write >= ack >= 1:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"persistence: an ensemble of {ensemble}, a write quorum of {write} and an ack quorum of "
                f"{ack} are invalid: use {_MAX_ENSEMBLE} >= ensemble_size >= write_quorum >= ack_quorum >= "
                "1",
            )
    partitions = policies.auto_topic_creation.partitions
    if partitions > max_partitions:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"auto_topic_creation: {partitions:,} partitions are above the limit of {max_partitions:,} "
            "(max_num_partitions_per_partitioned_topic)",
        )


def find_unmet(namespace: str, policies: Policies, writable: int, registered: int) -> list[str]:
    """Return warnings about policies that the bookies can't meet now: `writable` of those `registered` take ledgers."""
    if not policies.HasField("persistence"):
        return []
    persistence = policies.persistence
    there = f"{writable} of {registered} registered bookies accept a new ledger"
    if writable < persistence.ack_quorum:
        return [
            f"namespace {namespace}: its persistence policy can't be met now: {there}, and the ack quorum "
            f"needs {persistence.ack_quorum} (the ensemble {persistence.ensemble_size}). Messages to its "
            "topics are not stored until more bookies are registered or the policy is changed"
        ]
    if writable < persistence.ensemble_size:
        return [
            f"namespace {namespace}: its persistence policy can't be met in full now: {there}, and the "
            f"ensemble needs {persistence.ensemble_size} (the write quorum {persistence.write_quorum}). New "
            f"ledgers are created on {writable} bookies until more are registered or the policy is changed"
        ]
    return []


def check_known(message: Message, what: str) -> None:
    """Raises `BrokerError` if the message asks for something that this program does not know, at any depth."""
    unknown = [field.field_number for field in iter(UnknownFieldSet(message))]
    if unknown:
        raise BrokerError(
            ErrorCode.UNSUPPORTED,
            f"{what}: this broker does not know field {unknown[0]} of {message.DESCRIPTOR.full_name}, so it "
            "could not apply it: upgrade the broker, or leave the field out",
        )
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for one in value if field.is_repeated else [value]:
            check_known(one, what)
