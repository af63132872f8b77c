"""Paths of the nodes in the metadata store.

    /ledgers/0000/0000/0001/002a      LedgerMetadata of ledger 0x1002a
    /ledger-ids                       LedgerIdCounter
    /ledger-intents/<ledger id>       LedgerIntent
    /bookies/cookies/<bookie id>      Cookie: every bookie of the cluster, registered or not
    /bookies/available/<bookie id>    BookieRegistration, ephemeral
    /bookies/leaving/<bookie id>      Decommission
    /repair/auditor                   ephemeral: the elected auditor
    /repair/tasks/<ledger id>         RepairTask
    /repair/locks/<ledger id>         ephemeral: the worker that repairs the ledger

All but the ephemeral ones are changed through magnetar_metadata.compare_and_set.
"""

from __future__ import annotations

from typing import Final

LEDGERS: Final = "/ledgers"
LEDGER_IDS: Final = "/ledger-ids"
INTENTS: Final = "/ledger-intents"
COOKIES: Final = "/bookies/cookies"
AVAILABLE: Final = "/bookies/available"
LEAVING: Final = "/bookies/leaving"
AUDITOR: Final = "/repair/auditor"
TASKS: Final = "/repair/tasks"
LOCKS: Final = "/repair/locks"


def format_ledger_id(ledger_id: int) -> str:
    """Return the ledger id as names of nodes contain it."""
    return f"{ledger_id:016x}"


def parse_ledger_id(name: str) -> int:
    """Return the ledger id that `format_ledger_id` has formatted. Raises `ValueError`."""
    if len(name) != 16 or not is_hexadecimal(name):
        raise ValueError(f"{name!r} is not a ledger id: it must have 16 hexadecimal digits, in lower case")
    return int(name, 16)


def is_hexadecimal(name: str) -> bool:
    return all(digit in "0123456789abcdef" for digit in name)


def ledger(ledger_id: int) -> str:
    name = format_ledger_id(ledger_id)
    return "/".join((LEDGERS, name[:4], name[4:8], name[8:12], name[12:]))


def intent(ledger_id: int) -> str:
    return f"{INTENTS}/{format_ledger_id(ledger_id)}"


def task(ledger_id: int) -> str:
    return f"{TASKS}/{format_ledger_id(ledger_id)}"


def lock(ledger_id: int) -> str:
    return f"{LOCKS}/{format_ledger_id(ledger_id)}"


def cookie(bookie_id: str) -> str:
    return f"{COOKIES}/{bookie_id}"


def available(bookie_id: str) -> str:
    return f"{AVAILABLE}/{bookie_id}"


def leaving(bookie_id: str) -> str:
    return f"{LEAVING}/{bookie_id}"
